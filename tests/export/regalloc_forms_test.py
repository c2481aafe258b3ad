"""Policies for the register allocator as SavedModel, TFLite and AOT: numpy's decisions, and never an illegal one."""

import importlib
import json
import subprocess
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler_opt import problem as problems
from compiler_opt.decisions.regalloc_eviction.signature import PLUGIN_DEFAULT
from compiler_opt.errors import PolicyError
from compiler_opt.export.formats import export_policy
from compiler_opt.export.release_model import EMBEDDED_MODELS, EmbeddedModel
from compiler_opt.export.saved_model import save_policy
from compiler_opt.llvm.advisors import OUTPUT_SPEC_FILE, TFLITE_FILE
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.heads.networks import LEGAL
from compiler_opt.spaces.native import NATIVE_FILE
from compiler_opt.tensor_spec import TensorSpec
from tests.native.release_models import build_runner, check_decisions, run_runner
from tests.real_observations import Decisions
from tests.regalloc_networks import random_network_over

# After `compiler_opt.export`, which says which Keras it is to use.
tf: Any = importlib.import_module("tensorflow")

pytestmark = pytest.mark.parametrize("clang_path", ["clang-22"], indirect=True)

_EVICTION, _PRIORITY = EMBEDDED_MODELS["regalloc_eviction"], EMBEDDED_MODELS["regalloc_priority"]


@pytest.fixture(scope="module")
def weights(evictions: Decisions) -> NetworkWeights:
    return random_network_over(evictions.problem, evictions.features, 1)


@pytest.fixture(scope="module")
def policy_dir(evictions: Decisions, weights: NetworkWeights, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the tensors of a trace of our plugin, which sends the default decision, too; LLVM's models do not get it."""
    path = tmp_path_factory.mktemp("saved") / "policy"
    sent = (*evictions.header.features, TensorSpec(PLUGIN_DEFAULT, np.dtype("i8"), (1,)))
    save_policy(path, weights, evictions.problem.decision.action_space, _EVICTION.advice.name, sent)
    return path


def _batches(decisions: Decisions) -> dict[str, np.ndarray]:
    return {name: np.ascontiguousarray(decisions.records[name]) for name in decisions.header.names}


def _saved_model_advice(folder: Path, model: EmbeddedModel, decisions: Decisions) -> np.ndarray:
    loaded: Any = tf.saved_model.load(str(folder))  # its variables live as long as it does
    signature = loaded.signatures["action"]
    others = {"step_type": tf.zeros([1], tf.int32), "reward": tf.zeros([1]), "discount": tf.ones([1])}

    def decide(row: dict[str, Any]) -> Any:
        return signature(**row, **others)[model.advice.name][0]

    def decide_all(rows: dict[str, Any]) -> Any:
        return tf.map_fn(decide, rows, fn_output_signature=model.advice.dtype)

    advice: np.ndarray = tf.function(decide_all)(_batches(decisions)).numpy()
    return advice


def _interpreter(folder: Path) -> Any:
    with warnings.catch_warnings():
        # That it moves to a package of its own.
        warnings.simplefilter("ignore", UserWarning)
        interpreter: Any = tf.lite.Interpreter(model_path=str(folder / TFLITE_FILE))
    interpreter.allocate_tensors()
    operations = {operation["op_name"] for operation in interpreter._get_ops_details()}
    assert not any(name.startswith(("Flex", "CUSTOM")) for name in operations)
    return interpreter


def _tflite_advice(folder: Path, model: EmbeddedModel, features: Mapping[str, np.ndarray]) -> np.ndarray:
    """By the names and shapes that LLVM gives to the tensors."""
    interpreter = _interpreter(folder)
    inputs = {detail["name"]: detail for detail in interpreter.get_input_details()}
    assert set(inputs) == {f"action_{spec.name}:0" for spec in model.features}
    for spec in model.features:
        detail = inputs[f"action_{spec.name}:0"]
        assert (detail["dtype"], tuple(detail["shape"].tolist())) == (spec.dtype.type, spec.shape)
    [output] = interpreter.get_output_details()
    [entry] = json.loads((folder / OUTPUT_SPEC_FILE).read_text())
    assert entry["logging_name"] == model.advice.name
    assert f"{entry['tensor_spec']['name']}:{entry['tensor_spec']['port']}" == output["name"]
    assert (output["dtype"], output["shape"].tolist()) == (model.advice.dtype.type, [1])
    advice = []
    for row in range(len(next(iter(features.values())))):
        for spec in model.features:
            interpreter.set_tensor(inputs[f"action_{spec.name}:0"]["index"], features[spec.name][row])
        interpreter.invoke()
        advice.append(interpreter.get_tensor(output["index"])[0])
    return np.array(advice)


@pytest.mark.ci
def test_a_folder_has_all_forms(policy_dir: Path) -> None:
    names = {path.name for path in policy_dir.iterdir()}
    assert {"saved_model.pb", "variables", TFLITE_FILE, OUTPUT_SPEC_FILE, NATIVE_FILE, "network.npz"} <= names


@pytest.mark.ci
def test_the_saved_model_decides_as_numpy(policy_dir: Path, evictions: Decisions, weights: NetworkWeights) -> None:
    check_decisions(evictions, weights, _saved_model_advice(policy_dir, _EVICTION, evictions))
    signature = tf.saved_model.load(str(policy_dir)).signatures["action"]
    found = {name: (spec.shape.as_list(), spec.dtype) for name, spec in signature.structured_input_signature[1].items()}
    training = {"step_type": ([1], tf.int32), "reward": ([1], tf.float32), "discount": ([1], tf.float32)}
    assert found == {spec.name: (list(spec.shape), tf.as_dtype(spec.dtype)) for spec in _EVICTION.features} | training


@pytest.mark.ci
def test_tflite_decides_as_numpy(policy_dir: Path, evictions: Decisions, weights: NetworkWeights) -> None:
    check_decisions(evictions, weights, _tflite_advice(policy_dir, _EVICTION, _batches(evictions)))


def test_no_form_chooses_an_illegal_candidate(policy_dir: Path, evictions: Decisions) -> None:
    """With one legal candidate, which mostly has not the highest score."""
    features = {name: values[:40].copy() for name, values in _batches(evictions).items()}
    legal = np.arange(40) % _EVICTION.features[0].num_elements
    features["mask"][:] = 0
    features["mask"][np.arange(40), 0, legal] = 1
    np.testing.assert_array_equal(_tflite_advice(policy_dir, _EVICTION, features), legal)


def test_no_weights_make_an_illegal_candidate_the_best(evictions: Decisions, weights: NetworkWeights) -> None:
    quantiles = dict(zip(weights.features, weights.quantiles, strict=True))
    head = evictions.problem.decision.head(quantiles, _EVICTION.features)
    outputs, legal = tf.fill([2, 33, 1], -1e30), np.zeros((2, 33), np.float32)
    legal[0, 7] = legal[1, 32] = 1
    assert head.advice(outputs, {LEGAL: tf.constant(legal)}, 0.0).numpy().tolist() == [7, 32]


@pytest.mark.ci
def test_priorities_in_tflite_are_numpys(priorities: Decisions, tmp_path: Path) -> None:
    weights = random_network_over(priorities.problem, priorities.features, 2)
    weights.save(tmp_path / "policy")
    written = export_policy(tmp_path / "policy", tmp_path / "out", ["tflite", "native", "cpp"])
    assert [path.name for path in written["cpp"]] == [
        "mlgo_policy_blob.cpp",
        *("policy_network.h", "regalloc_policy.h", "regalloc_models.h"),
    ]
    native = (tmp_path / "out" / NATIVE_FILE).read_bytes()
    assert native == problems.load("regalloc_priority").decision.native_form(weights)
    check_decisions(priorities, weights, _tflite_advice(tmp_path / "out", _PRIORITY, _batches(priorities)))


def test_a_margin_is_refused(weights: NetworkWeights, tmp_path: Path) -> None:
    weights.with_margin(0.5).save(tmp_path / "policy")
    for form in ("release_model", "saved_model", "tflite", "aot"):
        with pytest.raises(PolicyError, match=r"expected margin 0, found 0\.5; only policies with binary actions"):
            export_policy(tmp_path / "policy", tmp_path / "out", [form])


_RUNTIME = (
    "tensorflow/compiler/tf2xla/xla_compiled_cpu_function.cc",
    "xla/cpu_function_runtime.cc",
    "xla/executable_run_options.cc",
    "xla/service/custom_call_status.cc",
    "xla/service/cpu/runtime_single_threaded_matmul_f32.cc",
)
"""What the class needs of the sources that LLVM's build compiles from the folder `xla_aot_runtime_src`."""


@pytest.mark.slow
def test_the_class_by_tensorflows_aot_compiler_decides_as_numpy(
    policy_dir: Path, evictions: Decisions, weights: NetworkWeights, toolchain: Toolchain, tmp_path: Path
) -> None:
    """Linked with TensorFlow's runtime, as in an LLVM that is built with it."""
    written = export_policy(policy_dir, tmp_path, ["aot"])["aot"]
    assert [path.name for path in written] == ["RegAllocEvictModel.h", "RegAllocEvictModel.o"]
    tensorflow, compiler = Path(tf.__file__).parent, str(toolchain.tool("clang++"))
    objects = [written[1]]
    for source in _RUNTIME:
        objects.append(tmp_path / f"{Path(source).name}.o")
        command = [compiler, "-std=c++17", "-O1", "-w", "-isystem", str(tensorflow / "include"), "-c"]
        subprocess.run([*command, str(tensorflow / "xla_aot_runtime_src" / source), "-o", str(objects[-1])], check=True)
    include = ("-isystem", str(tensorflow / "include"), "-w")
    runner = build_runner(_EVICTION, toolchain, compiler, tmp_path, objects, include)
    rows = evictions.records.tobytes()
    check_decisions(evictions, weights, run_runner(runner, _EVICTION, evictions.header.features, rows, tmp_path))
