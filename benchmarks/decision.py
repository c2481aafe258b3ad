"""Measures the cost of a decision: CPU microseconds of the native form, numpy, TFLite and TensorFlow's SavedModel.

The observations come from a trace, shuffled across modules. The forms alternate, so that changes of the machine's speed
affect all alike, and each receives one observation at a time, as in a compiler. The benchmark also prints how often the
forms disagree; only ties may differ.
"""

import os
import platform
import statistics
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags

from compiler_opt.errors import ConfigError, ToolchainError
from compiler_opt.llvm import processes
from compiler_opt.llvm.advisors import TFLITE_FILE
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.toolchain import probe
from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.binary import Binary, BinaryPolicy
from compiler_opt.spaces.native import NATIVE_FILE, include_directory, native_blob
from compiler_opt.tensor_spec import TensorSpec
from compiler_opt.tensorflow_loading import load_tensorflow, stderr_held
from compiler_opt.tools import entry_point, shared_flags

_POLICY_PATH = flags.DEFINE_string("policy_path", "demo/training/policy", "A trained policy.")
_DATA_PATH = flags.DEFINE_string("data_path", "demo/default_trace.tfrecord", "A trace.")
_CLANG_PATH = shared_flags.clang_path("Compiler of the native form; by default the newest clang.")
_REPETITIONS = flags.DEFINE_integer("repetitions", 11, "Repetitions of each form.", 1)
_NUM_DECISIONS = flags.DEFINE_integer("num_decisions", 100_000, "Observations to sample from the trace.", 1)
_NUM_SLOW = flags.DEFINE_integer("num_slow_decisions", 500, "Number of these for TensorFlow.", 1)
_SEED = shared_flags.seed("the sample", 1)

_SOURCE = Path(__file__).with_name("decision_native.cpp")
_TIMEOUT_S = 600.0

Run = Callable[[], tuple[float, np.ndarray]]
"""One repetition: microseconds of a decision, and the decisions."""


@entry_point.command
def entry() -> None:
    for path in (_DATA_PATH.value, _POLICY_PATH.value):
        if not Path(path).exists():
            raise ConfigError(f"{path}: not there; run ./run_demo.sh first, or give --data_path and --policy_path")
    policy = BinaryPolicy(NetworkWeights.load(Path(_POLICY_PATH.value)))
    toolchain = probe(_CLANG_PATH.value)
    load_tensorflow()
    rows = _observations(policy.weights.features)  # [T, F]
    logits = policy.logits(dict(zip(policy.weights.features, rows.T, strict=True)))
    margins = np.abs(logits[:, 1] - logits[:, 0])
    slow = rows[: _NUM_SLOW.value]
    with scratch_directory() as scratch:
        forms: Mapping[str, Run] = {
            "native": _native(policy, rows, toolchain.clang, scratch),
            "numpy (interactive channel)": _numpy(policy, rows[: 20 * len(slow)]),
            "TFLite": _tflite(policy, slow),
            "SavedModel": _saved_model(policy, slow),
        }
        microseconds: dict[str, list[float]] = {name: [] for name in forms}
        decisions: dict[str, np.ndarray] = {}
        # The first repetition warms caches and does not count.
        for repetition in range(-1, _REPETITIONS.value):
            for name, run in forms.items():
                cost, decisions[name] = run()
                if repetition >= 0:
                    microseconds[name].append(cost)
    print("CPU microseconds a decision: median (least to most) of the repetitions")
    for name, costs in microseconds.items():
        decided = margins[: len(decisions[name])] > 1e-5
        different = int((decisions[name] != logits.argmax(axis=1)[: len(decided)])[decided].sum())
        print(
            f"  {name:28} {statistics.median(costs):9.3f}  ({min(costs):.3f} to {max(costs):.3f}); "
            f"{different} of {len(decided)} decisions differ"
        )
    print(f"  {rows.shape[1]} features, layers {'-'.join(str(len(bias)) for bias in policy.weights.biases)}")
    print(f"  {_REPETITIONS.value} repetitions; native by {toolchain.version_text}, -O2")
    print(f"  Python {platform.python_version()}; {os.cpu_count()} threads; {platform.machine()}")


def _observations(features: tuple[str, ...]) -> np.ndarray:
    """`[T, F]` int64, sampled from the whole trace."""
    from compiler_opt.rl.trace_files import Trace

    batches = Trace(Path(_DATA_PATH.value)).batches(features)
    values = np.concatenate(
        [np.stack([batch.features[name].reshape(-1) for name in features], axis=-1) for batch in batches]
    )
    order = np.random.default_rng(_SEED.value).permutation(len(values))[: _NUM_DECISIONS.value]
    return np.ascontiguousarray(values[order])


def _timed(decide: Callable[[Any], int], observations: list[Any]) -> Run:
    def run() -> tuple[float, np.ndarray]:
        start_s = time.process_time()
        decisions = [decide(observation) for observation in observations]
        cpu_s = time.process_time() - start_s
        return 1e6 * cpu_s / len(observations), np.array(decisions)

    return run


def _native(policy: BinaryPolicy, rows: np.ndarray, clang: Path, scratch: Path) -> Run:
    (scratch / NATIVE_FILE).write_bytes(native_blob(policy.weights))
    rows.tofile(scratch / "features")
    program = scratch / "decision_native"
    command = [str(clang), "--driver-mode=g++", "-std=c++17", "-O2", f"-I{include_directory()}", str(_SOURCE)]
    _checked([*command, "-o", str(program)])
    files = [str(scratch / name) for name in (NATIVE_FILE, "features")]

    def run() -> tuple[float, np.ndarray]:
        # The first round of each process is cold.
        output = _checked([str(program), *files, "2", str(scratch / "decisions")])
        return float(output.split()[-1]) / 1e3, np.fromfile(scratch / "decisions", np.int8)

    return run


def _checked(command: list[str]) -> str:
    result = processes.run(command, timeout_s=_TIMEOUT_S)
    if not result.ok:
        raise ToolchainError(result.describe())
    return result.stdout.decode()


def _numpy(policy: BinaryPolicy, rows: np.ndarray) -> Run:
    int64 = np.dtype("i8")
    specs = tuple(TensorSpec(name, int64, (1,)) for name in policy.weights.features)
    header, observations = Header(specs, TensorSpec("advice", int64, (1,))), [row.tobytes() for row in rows]

    def run() -> tuple[float, np.ndarray]:
        # A decider remembers what it has computed.
        decider = policy.start(header, seed=0)
        return _timed(lambda observation: int(decider(observation)), observations)()

    return run


def _tflite(policy: BinaryPolicy, rows: np.ndarray) -> Run:
    import tensorflow as tf

    from compiler_opt.spaces.heads.tflite import tflite_files

    with warnings.catch_warnings(), stderr_held():
        warnings.simplefilter("ignore")  # TensorFlow announces that the interpreter moves to another package
        model = tflite_files(policy.weights, Binary(), "advice")[TFLITE_FILE]
        interpreter = tf.lite.Interpreter(model_content=model, num_threads=1)
        interpreter.allocate_tensors()
    places = {detail["name"]: detail["index"] for detail in interpreter.get_input_details()}
    inputs = [places[f"action_{name}:0"] for name in policy.weights.features]
    output = interpreter.get_output_details()[0]["index"]
    buffers = [interpreter.tensor(place) for place in inputs]

    def decide(row: list[int]) -> int:
        # Like C++: into the tensors' own memory.
        for buffer, value in zip(buffers, row, strict=True):
            buffer()[0] = value
        interpreter.invoke()
        return int(interpreter.get_tensor(output)[0])

    return _timed(decide, rows.tolist())


def _saved_model(policy: BinaryPolicy, rows: np.ndarray) -> Run:
    import tensorflow as tf

    model = tf.saved_model.load(_POLICY_PATH.value)
    signature = model.signatures["action"]
    others = {"step_type": tf.zeros([1], tf.int32), "reward": tf.zeros([1]), "discount": tf.ones([1])}
    [name] = signature.structured_outputs

    def decide(row: np.ndarray) -> int:
        assert model is not None  # its variables live as long as it does
        inputs = {feature: tf.constant(row[place : place + 1]) for place, feature in enumerate(policy.weights.features)}
        return int(signature(**inputs, **others)[name][0])

    return _timed(decide, list(rows))


if __name__ == "__main__":
    entry()
