"""A policy's folder: the same decisions by TensorFlow's SavedModel, TFLite, numpy and C++, on real observations."""

import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler_opt.collect.backends.development import with_seed
from compiler_opt.errors import OutputError
from compiler_opt.export.saved_model import save_policy
from compiler_opt.llvm.advisors import LOGITS, OUTPUT_SPEC_FILE, TFLITE_FILE
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.model_card import ModelCard
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.binary import Binary, BinaryPolicy
from compiler_opt.spaces.heads.categorical import BinaryHead
from compiler_opt.spaces.heads.tflite import tflite_files
from compiler_opt.spaces.native import NATIVE_FILE, native_blob
from tests.native.cpp import DRIVER, build, driver_logits
from tests.real_observations import real_observations, weights_for

# After `compiler_opt.rl`, which says which Keras it is to use.
tf: Any = importlib.import_module("tensorflow")

_ADVICE = "inlining_decision"

_ONE_COMPILER = pytest.mark.parametrize("clang_path", ["clang-22"], indirect=True)
"""Where observations come from makes no difference to how a policy is saved."""


@pytest.fixture(scope="module")
def weights(observations: dict[str, np.ndarray]) -> NetworkWeights:
    return weights_for(observations)


@pytest.fixture(scope="module")
def policy_dir(weights: NetworkWeights, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "policy"
    save_policy(path, weights, Binary(), _ADVICE)
    return path


def _saved_model_decisions(policy_dir: Path, observations: dict[str, np.ndarray]) -> np.ndarray:
    """`[T]`, one call of the signature after the other, as LLVM calls it."""
    model: Any = tf.saved_model.load(str(policy_dir))  # its variables live as long as it does
    signature = model.signatures["action"]
    others = {
        "step_type": tf.zeros([1], tf.int32),
        "reward": tf.zeros([1]),
        "discount": tf.ones([1]),
    }

    def decide(row: dict[str, Any]) -> Any:
        inputs = {name: tf.reshape(value, [1]) for name, value in row.items()}
        return signature(**inputs, **others)[_ADVICE][0]

    def decide_all(rows: dict[str, Any]) -> Any:
        return tf.map_fn(decide, rows, fn_output_signature=tf.int64)

    decisions: np.ndarray = tf.function(decide_all)(observations).numpy()
    return decisions


def _tensorflow_logits(weights: NetworkWeights, observations: dict[str, np.ndarray]) -> np.ndarray:
    head = BinaryHead(dict(zip(weights.features, weights.quantiles, strict=True)))
    actor = head.from_weights(weights, _ADVICE)
    distribution, _ = actor(head.observe(observations), step_type=(), network_state=())
    logits: np.ndarray = distribution.logits_parameter().numpy()
    return logits


def _interpreter(model: bytes) -> tuple[Any, Callable[[dict[str, int]], tuple[int, np.ndarray]]]:
    """An interpreter, and a function from features to the decision and the logits."""
    with warnings.catch_warnings():
        # That it moves to a package of its own, and that looking at all tensors is for debugging.
        warnings.simplefilter("ignore", UserWarning)
        interpreter: Any = tf.lite.Interpreter(model_content=model, experimental_preserve_all_tensors=True)
    interpreter.allocate_tensors()
    places = {detail["name"]: detail["index"] for detail in interpreter.get_input_details()}
    [output] = interpreter.get_output_details()
    [logits] = [
        each["index"]
        for each in interpreter.get_tensor_details()
        if each["dtype"] is np.float32 and each["shape"].tolist() == [1, 2]
    ][-1:]

    def decide(features: dict[str, int]) -> tuple[int, np.ndarray]:
        for name, value in features.items():
            interpreter.set_tensor(places[f"action_{name}:0"], np.array([value]))
        interpreter.invoke()
        return int(interpreter.get_tensor(output["index"])[0]), interpreter.get_tensor(logits)[0]

    return interpreter, decide


def _check_all_agree(
    weights: NetworkWeights, policy_dir: Path, observations: dict[str, np.ndarray], directory: Path
) -> None:
    """TensorFlow's decisions and logits against those of C++ and numpy."""
    expected = _tensorflow_logits(weights, observations)
    decided = np.abs(expected[:, 1] - expected[:, 0]) > 1e-5
    assert 0.2 < (expected[:, 1] > expected[:, 0]).mean() < 0.8
    assert decided.mean() > 0.999
    driver = build([DRIVER], directory / "driver", "clang++-22", "-O2")
    native = driver_logits(driver, weights, np.stack(list(observations.values()), axis=-1), directory)
    numpy = BinaryPolicy(weights).logits(observations)
    saved_model = _saved_model_decisions(policy_dir, observations)
    np.testing.assert_array_equal(saved_model[decided], expected.argmax(axis=1)[decided])
    for found in (native, numpy):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)
        np.testing.assert_array_equal(found.argmax(axis=1)[decided], saved_model[decided])


@pytest.mark.ci
@_ONE_COMPILER
def test_all_forms_decide_alike(
    weights: NetworkWeights, policy_dir: Path, observations: dict[str, np.ndarray], tmp_path: Path
) -> None:
    _check_all_agree(weights, policy_dir, observations, tmp_path)


@pytest.mark.slow
def test_all_forms_decide_alike_a_hundred_thousand_times(toolchain: Toolchain, tmp_path: Path) -> None:
    observations = real_observations(toolchain, tmp_path, at_least=100_000)
    assert len(observations["callsite_cost"]) >= 100_000
    weights = weights_for(observations, seed=1)
    save_policy(tmp_path / "policy", weights, Binary(), _ADVICE)
    _check_all_agree(weights, tmp_path / "policy", observations, tmp_path)


@pytest.mark.ci
@_ONE_COMPILER
def test_tflite_decides_alike(weights: NetworkWeights, policy_dir: Path, observations: dict[str, np.ndarray]) -> None:
    _, decide = _interpreter((policy_dir / "model.tflite").read_bytes())
    expected = BinaryPolicy(weights).logits(observations)
    for row in range(0, len(expected), 5):
        action, logits = decide({name: values[row] for name, values in observations.items()})
        np.testing.assert_allclose(logits, expected[row], rtol=0, atol=1e-4)
        if abs(expected[row, 1] - expected[row, 0]) > 1e-5:
            assert action == expected[row].argmax()


@pytest.mark.slow
@_ONE_COMPILER
def test_where_logits_differ_by_less_than_the_margin_the_default_is_rebuilt(
    weights: NetworkWeights, observations: dict[str, np.ndarray], tmp_path: Path
) -> None:
    off, on = BinaryPolicy(weights).logits(observations).T
    margin = float(np.median(np.abs(on - off)))
    save_policy(tmp_path / "policy", weights.with_margin(margin), Binary(), _ADVICE)
    is_default = np.abs(on - off) < margin
    expected = np.where(is_default, observations["cost_estimate"] < observations["threshold"], on > off)
    assert 0.1 < (expected != (on > off)).mean() < 0.9
    decided = np.abs(np.abs(on - off) - margin) > 1e-4
    decisions = _saved_model_decisions(tmp_path / "policy", observations)
    np.testing.assert_array_equal(decisions[decided], expected[decided])
    _, decide = _interpreter((tmp_path / "policy" / "model.tflite").read_bytes())
    for row in np.flatnonzero(decided)[::5]:
        action, _ = decide({name: values[row] for name, values in observations.items()})
        assert action == expected[row]


@_ONE_COMPILER
def test_tflite_has_llvms_names_and_builtin_operations(weights: NetworkWeights, policy_dir: Path) -> None:
    interpreter, _ = _interpreter((policy_dir / "model.tflite").read_bytes())
    inputs = interpreter.get_input_details()
    assert {detail["name"] for detail in inputs} == {f"action_{name}:0" for name in weights.features}
    assert all(detail["dtype"] is np.int64 and detail["shape"].tolist() == [1] for detail in inputs)
    [output] = interpreter.get_output_details()
    [spec] = json.loads((policy_dir / "output_spec.json").read_text())
    tensor = spec["tensor_spec"]
    assert spec["logging_name"] == _ADVICE
    assert f"{tensor['name']}:{tensor['port']}" == output["name"]
    assert (tensor["type"], tensor["shape"]) == ("int64_t", output["shape"].tolist())
    assert output["dtype"] is np.int64
    operations = {operation["op_name"] for operation in interpreter._get_ops_details()}
    assert not any(name.startswith(("Flex", "CUSTOM")) for name in operations)


def test_tflite_and_extreme_values() -> None:
    """Quantiles and features at the ends of 64 bits and beyond."""
    limits = np.iinfo(np.int64)
    columns = {"f0": np.array([-1e300, -3.5, 0.0, 1e300]), "f1": np.array([float(limits.min), 2.0, 2.0**62, 2.0**63])}
    weights = weights_for(columns, hidden=(4,))
    weights = NetworkWeights(("f0", "f1"), tuple(columns.values()), weights.kernels, weights.biases)
    _, decide = _interpreter(tflite_files(weights, Binary(), _ADVICE)[TFLITE_FILE])
    for f0 in (limits.min, -4, -3, 0, limits.max):
        for f1 in (limits.min, 1, 2, 2**62 - 1, 2**62, limits.max):
            # Compared as Python's integers, of any size.
            positions = [
                sum(int(np.ceil(quantile)) <= value for quantile in column) / 4
                for value, column in zip((f0, f1), columns.values(), strict=True)
            ]
            inputs = np.array([t for x in positions for t in (x, np.sqrt(x), x * x)])
            hidden = np.maximum(inputs @ weights.kernels[0] + weights.biases[0], 0)
            _, logits = decide({"f0": f0, "f1": f1})
            np.testing.assert_allclose(logits, hidden @ weights.kernels[1] + weights.biases[1], atol=1e-5)


@_ONE_COMPILER
def test_tflite_draws_as_often_as_its_logits_say(weights: NetworkWeights, observations: dict[str, np.ndarray]) -> None:
    """The same observation many times over: the share of ones, and streams that differ by their seeds alone."""
    temperature = 5.0
    files = tflite_files(weights, Binary(), _ADVICE, temperature=temperature)
    specs = {entry["logging_name"]: entry["tensor_spec"] for entry in json.loads(files[OUTPUT_SPEC_FILE])}
    assert list(specs) == [_ADVICE, LOGITS]
    assert (specs[LOGITS]["type"], specs[LOGITS]["shape"]) == ("float", [1, 2])
    logits = BinaryPolicy(weights).logits(observations)
    probabilities = 1 / (1 + np.exp(-(logits[:, 1] - logits[:, 0]).astype(np.float64) / temperature))
    row = int(np.abs(probabilities - 0.3).argmin())

    def draws(seed: int, count: int) -> np.ndarray:
        interpreter: Any = tf.lite.Interpreter(model_content=with_seed(files[TFLITE_FILE], seed))
        interpreter.allocate_tensors()
        operations = {operation["op_name"] for operation in interpreter._get_ops_details()}
        assert not any(name.startswith(("Flex", "CUSTOM")) for name in operations)
        inputs = {detail["name"]: detail["index"] for detail in interpreter.get_input_details()}
        outputs = {detail["name"]: detail["index"] for detail in interpreter.get_output_details()}
        for name, values in observations.items():
            interpreter.set_tensor(inputs[f"action_{name}:0"], values[row : row + 1])
        drawn: list[int] = []
        for _ in range(count):
            interpreter.invoke()
            drawn.append(*interpreter.get_tensor(outputs[f"{specs[_ADVICE]['name']}:{specs[_ADVICE]['port']}"]))
        evaluated = interpreter.get_tensor(outputs[f"{specs[LOGITS]['name']}:{specs[LOGITS]['port']}"])
        np.testing.assert_allclose(evaluated, logits[row : row + 1], rtol=0, atol=1e-4)
        return np.array(drawn)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        drawn = draws(1, 4000)
        assert abs(drawn.mean() - probabilities[row]) < 5 * np.sqrt(0.25 / 4000)
        np.testing.assert_array_equal(draws(1, 100), drawn[:100])
        for seed in (0, 2, -1, 1 << 40):
            assert (draws(seed, 100) != drawn[:100]).any()


@_ONE_COMPILER
def test_a_policys_folder(weights: NetworkWeights, policy_dir: Path) -> None:
    assert {path.name for path in policy_dir.iterdir()} == {
        "MODEL_CARD.md",
        "assets",
        "fingerprint.pb",
        "model.tflite",
        "model_card.json",
        "network.mlgo",
        "network.npz",
        "output_spec.json",
        "policy_specs.pbtxt",
        "saved_model.pb",
        "variables",
    }
    assert (policy_dir / NATIVE_FILE).read_bytes() == native_blob(weights)
    card = ModelCard.load(policy_dir)
    assert card is not None and card.checksum == weights.checksum() == NetworkWeights.load(policy_dir).checksum()


_SAVE_AND_DIE = """
import os, signal, sys
from pathlib import Path
from compiler_opt.tensorflow_loading import load_tensorflow
load_tensorflow()
from compiler_opt.export.saved_model import save_policy
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.binary import Binary
save_policy(Path(sys.argv[2]), NetworkWeights.load(Path(sys.argv[1])), Binary(), "inlining_decision")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
@_ONE_COMPILER
def test_killed_it_leaves_no_file_of_tensorflows(policy_dir: Path, tmp_path: Path) -> None:
    """TensorFlow removes what it generates at the program's end, which a killed program does not reach."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    process = subprocess.run(
        [sys.executable, "-c", _SAVE_AND_DIE, str(policy_dir), str(tmp_path / "policy")],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "TMPDIR": str(temporary)},
        stderr=subprocess.PIPE,
        timeout=200,
    )
    assert process.returncode == -signal.SIGKILL, process.stderr
    assert (tmp_path / "policy" / NATIVE_FILE).is_file()
    assert list(temporary.iterdir()) == []


def test_a_file_that_tensorflow_cannot_write_is_one_line(tmp_path: Path) -> None:
    """As on a full disk; the variables are the first file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OutputError, match="policy: the policy cannot be written: ") as caught:
            save_policy(tmp_path / "policy", weights_for({"f": np.arange(9)}), Binary(), _ADVICE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert isinstance(caught.value.__cause__, tf.errors.OpError)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
