"""Policies of google/ml-compiler-opt decide the same after their import; others are refused by name."""

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler_opt import problem as problems
from compiler_opt.collect.rollout import RolloutSettings, rollout
from compiler_opt.errors import PolicyError
from compiler_opt.importing.imported_policy import (
    Comparison,
    ImportedPolicy,
    compare,
    made_up_observations,
    read_policy,
)
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.binary import BinaryPolicy
from compiler_opt.tensor_spec import TensorSpec
from tests import programs
from tests.importing.hostile_models import add_dead_operation, add_write_to_restore
from tests.importing.original_policies import (
    convert_to_tflite,
    encoding,
    original_decisions,
    save_original,
    tf,
    tflite_decisions,
    tflite_interpreter,
)
from tests.native.cpp import DRIVER, build, driver_logits
from tests.real_observations import SOURCES
from tests.small_corpus import make_corpus

_ONE_COMPILER = pytest.mark.parametrize("clang_path", ["clang-22"], indirect=True)


_FEATURES = ("callee_users", "callsite_cost", "cost_estimate", "edge_count")
"""A few of LLVM's: saving a policy takes TF-Agents a while for each."""


@pytest.fixture(scope="module")
def saved(observations: dict[str, np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy as google/ml-compiler-opt saves it after PPO."""
    directory = tmp_path_factory.mktemp("original") / "saved_policy"
    save_original(directory, {name: observations[name] for name in _FEATURES})
    return directory


def _many(policy: ImportedPolicy, observations: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """10,000 observations: real ones, and made-up ones at the edges of the quantiles."""
    made_up = made_up_observations(policy.weights, 10_000 - len(observations["callsite_cost"]))
    return {name: np.concatenate([observations[name], made_up[name]]) for name in policy.weights.features}


def _decisions(weights: NetworkWeights, observations: dict[str, np.ndarray]) -> list[float]:
    """As compilers ask for them, one at a time."""
    header = Header(
        tuple(TensorSpec(name, np.dtype("i8"), (1,)) for name in observations),
        TensorSpec("inlining_decision", np.dtype("i8"), (1,)),
    )
    decider = BinaryPolicy(weights).start(header, 0)
    return [decider(row.tobytes()) for row in np.stack(list(observations.values()), axis=-1)]


def _check_all_forms(saved: Path, observations: dict[str, np.ndarray], directory: Path) -> None:
    """On 10,000 observations: TensorFlow as it loads SavedModels, TFLite's interpreter, our evaluation of either graph,
    numpy, C++."""
    convert_to_tflite(saved, directory / "model.tflite")
    policy, converted = read_policy(saved), read_policy(directory / "model.tflite")
    many = _many(policy, observations)
    expected = original_decisions(saved, many)
    assert len(expected) == 10_000
    assert 0.2 < expected[: len(observations["callsite_cost"])].mean() < 0.8
    np.testing.assert_array_equal(tflite_decisions(directory / "model.tflite", many), expected)
    driver = build([DRIVER], directory / "driver", "clang++-22", "-O2")
    for each in (policy, converted):
        assert compare(each, many) == Comparison(10_000, int(expected.sum()), 0)
        np.testing.assert_array_equal(_decisions(each.weights, many), expected)
        columns = np.stack([many[name] for name in each.weights.features], axis=-1)
        native = driver_logits(driver, each.weights, columns, directory)
        np.testing.assert_array_equal(native.argmax(axis=1), expected)


@pytest.mark.ci
@_ONE_COMPILER
def test_it_decides_alike_in_all_forms(saved: Path, observations: dict[str, np.ndarray], tmp_path: Path) -> None:
    policy = read_policy(saved)
    assert policy.weights.features == _FEATURES
    assert [len(bias) for bias in policy.weights.biases] == [40, 40, 20, 2]
    _check_all_forms(saved, observations, tmp_path)


@pytest.mark.slow
def test_all_features_of_the_original(observations: dict[str, np.ndarray], tmp_path: Path) -> None:
    save_original(tmp_path / "saved_policy", observations, num_quantiles=1000, layers=(100, 40))
    assert set(read_policy(tmp_path / "saved_policy").weights.features) == set(observations)
    _check_all_forms(tmp_path / "saved_policy", observations, tmp_path)


@pytest.mark.slow
def test_it_decides_alike_in_the_plugin(saved: Path, toolchain: Toolchain, tmp_path: Path) -> None:
    problem = problems.load("inlining")
    policy = problem.decision.policy(read_policy(saved).weights)
    corpus = make_corpus(tmp_path, str(toolchain.clang), SOURCES)
    settings = RolloutSettings(backend="plugin")
    found = rollout(corpus.modules[0], policy, problem, toolchain, scratch=tmp_path, settings=settings)
    assert found.trajectory is not None, found.failure
    features = found.trajectory.features()
    seen = {name: features[name].reshape(-1) for name in _FEATURES}
    assert len(found.trajectory.advice) > 100
    np.testing.assert_array_equal(found.trajectory.advice, original_decisions(saved, seen))


@pytest.mark.ci
@_ONE_COMPILER
def test_cloned_policies_without_roots(observations: dict[str, np.ndarray], tmp_path: Path) -> None:
    some = {name: observations[name] for name in _FEATURES[:2]}
    save_original(tmp_path, some, of_values=True, layers=(8,), with_root=False)
    policy = read_policy(tmp_path)
    assert not policy.weights.kernels[0][1::3].any() and policy.weights.kernels[0][::3].all()
    np.testing.assert_array_equal(_decisions(policy.weights, some), original_decisions(tmp_path, some))


@pytest.mark.ci
@_ONE_COMPILER
def test_the_command(saved: Path, tmp_path: Path) -> None:
    output = tmp_path / "policy"
    result = programs.run("compiler_opt/tools/import_policy.py", f"--policy_path={saved}", f"--output_dir={output}")
    assert result.returncode == 0, result.stderr
    assert "SavedModel, 4 features, dense layers 40-40-20-2" in result.stdout
    assert "decides alike on 10000 of 10000 observations" in result.stdout
    imported = NetworkWeights.load(output)
    assert imported.checksum() == read_policy(saved).weights.checksum()
    assert {"saved_model.pb", "model.tflite", "network.mlgo"} <= {path.name for path in output.iterdir()}


@pytest.mark.ci
@_ONE_COMPILER
def test_nothing_else_of_a_tflite_file_runs(saved: Path, tmp_path: Path) -> None:
    """An operation beside the network, which TFLite's interpreter would run, writes a file."""
    model, written = tmp_path / "model.tflite", tmp_path / "written"
    convert_to_tflite(saved, model)
    add_dead_operation(model, written)
    try:
        tflite_interpreter(model).invoke()
        assert written.read_text() == "written"
        written.unlink()
    except RuntimeError as error:  # The interpreter of TensorFlow 2.21 has no delegate for TensorFlow's operations.
        assert "FlexWriteFile" in str(error)
    policy = read_policy(model)
    assert compare(policy, made_up_observations(policy.weights, 200)).num_ties == 0
    assert not written.exists()


@_ONE_COMPILER
def test_nothing_else_of_a_saved_model_runs(saved: Path, tmp_path: Path) -> None:
    written = tmp_path / "written"
    shutil.copytree(saved, tmp_path / "saved")
    add_write_to_restore(tmp_path / "saved", written)
    policy = read_policy(tmp_path / "saved")
    assert compare(policy, made_up_observations(policy.weights, 200)).num_ties == 0
    assert not written.exists()


@pytest.mark.ci
@_ONE_COMPILER
def test_damaged_files_are_refused(saved: Path, tmp_path: Path) -> None:
    """A flipped bit, or an end that is missing, is an error of one line or, in a few places, another policy."""
    shutil.copytree(saved, tmp_path / "saved")
    convert_to_tflite(saved, tmp_path / "model.tflite")
    rng = np.random.default_rng(0)
    for path, source in (
        (tmp_path / "model.tflite", tmp_path / "model.tflite"),
        (tmp_path / "saved" / "saved_model.pb", tmp_path / "saved"),
    ):
        whole = path.read_bytes()
        refused = 0
        for number in range(20):
            damaged = bytearray(whole)
            damaged[rng.integers(len(damaged))] ^= 1 << rng.integers(8)
            path.write_bytes(damaged[: rng.integers(len(damaged))] if number % 2 else damaged)
            try:
                read_policy(source)
            except PolicyError as error:
                assert str(error).startswith(str(tmp_path))
                assert "\n" not in str(error)
                refused += 1
        assert refused >= 10
        path.write_bytes(whole)
    (tmp_path / "saved" / "variables" / "variables.index").write_bytes(b"")
    with pytest.raises(PolicyError, match=r"no SavedModel that this program understands"):
        read_policy(tmp_path / "saved")


def _save_module(
    directory: Path,
    quantiles: np.ndarray,
    *,
    logits: Callable[[Any, Any], Any] = lambda x, raw: tf.matmul(x, tf.ones([3, 2])),
    decide: Callable[[Any], Any] = lambda logits: tf.argmax(logits, axis=-1),
    feature: str = "node_count",
    advice: str = "inlining_decision",
    divisor: float = 1.0,
    with_logits: bool = False,
) -> None:
    """A SavedModel of TensorFlow's alone, a part of which a test replaces."""
    encode = encoding(quantiles, lambda x: [x / divisor if divisor != 1 else x, tf.square(x), tf.sqrt(x)])

    def action(**inputs: Any) -> dict[str, Any]:
        found = logits(encode(inputs[feature]), inputs[feature])
        return {advice: decide(found), **({"logits": found} if with_logits else {})}

    module = tf.Module()
    signature = tf.function(action, autograph=False).get_concrete_function(
        **{feature: tf.TensorSpec([1], tf.int64, feature)}
    )
    tf.saved_model.save(module, str(directory), signatures={"action": signature})


_QUANTILES = np.array([1.0, 3.0, 3.0, 8.0])
_KERNEL = np.array([[1.0, 0.5], [-3.0, 2.0], [0.25, -1.0]], np.float32)


def _dense(x: Any) -> Any:
    return tf.nn.bias_add(tf.matmul(x, tf.constant(_KERNEL)), tf.constant([0.5, 0.0]))


def test_a_network_by_hand(tmp_path: Path) -> None:
    _save_module(tmp_path / "saved", _QUANTILES, logits=lambda x, raw: _dense(x))
    policy = read_policy(tmp_path / "saved")
    assert policy.weights.features == ("node_count",)
    np.testing.assert_array_equal(policy.weights.quantiles[0], _QUANTILES)
    # There: x, x^2, sqrt(x); here: x, sqrt(x), x^2.
    np.testing.assert_array_equal(policy.weights.kernels[0], _KERNEL[[0, 2, 1]])
    np.testing.assert_array_equal(policy.weights.biases[0], [0.5, 0.0])


def test_quantiles_beyond_float32(tmp_path: Path) -> None:
    """TensorFlow compares in float32: 2^25 + 1 becomes 2^25, 2^25 + 2 (a tie) too, and 2^25 + 3 becomes 2^25 + 4."""
    _save_module(tmp_path / "saved", np.array([2.0**25, 2.0**25 + 4, 2.0**40]), logits=lambda x, raw: _dense(x))
    policy = read_policy(tmp_path / "saved")
    values = np.concatenate([np.arange(-8, 9) + centre for centre in (2**25, 2**25 + 4, 2**40, 2**40 - 2**15)])
    signature = tf.saved_model.load(str(tmp_path / "saved")).signatures["action"]
    expected = [int(signature(node_count=tf.constant([value], tf.int64))["inlining_decision"][0]) for value in values]
    assert len(set(expected)) == 2
    found = BinaryPolicy(policy.weights).logits({"node_count": values}).argmax(axis=1)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"logits": lambda x, raw: _dense(tf.tanh(tf.matmul(x, tf.eye(3))))}, "operation Tanh, which no policy"),
        (
            {"logits": lambda x, raw: _dense(tf.concat([x[:, :2], tf.cast(raw, tf.float32)[:, tf.newaxis]], -1))},
            "the operation StridedSlice",
        ),
        (
            {"logits": lambda x, raw: tf.matmul(tf.cast(raw, tf.float32)[tf.newaxis], tf.ones([1, 2]))},
            "expected the quantile rank of a feature",
        ),
        ({"logits": lambda x, raw: tf.matmul(x, tf.ones([3, 5]))}, "expected two logits, found 5"),
        ({"decide": lambda logits: tf.argmin(logits, axis=-1)}, "by the operation ArgMin"),
        ({"decide": lambda logits: tf.argmax(logits, axis=-1) + 1}, "a decision of 0 or 1, found AddV2 with"),
        (
            {"decide": lambda logits: tf.random.categorical(logits, 1)[:, 0]},
            r"samples its decisions \(operation Multinomial\); give the greedy policy",
        ),
        ({"decide": lambda logits: tf.cast(logits[:, 0], tf.int64)}, "expected a decision by arg max of two logits"),
        ({"feature": "number_of_moons"}, "observes 'number_of_moons', which compilers do not send"),
        ({"advice": "index_to_evict"}, "decides 'index_to_evict', which is regalloc_eviction; expected"),
        ({"advice": "unroll"}, "decides 'unroll'; expected 'inlining_decision'"),
        ({"with_logits": True}, r"one output, the decision; found inlining_decision, logits.*saved_collect_policy"),
        ({"divisor": 2.0}, "expected the quantile rank of a feature|expected the bucket divided by its 4 quantiles"),
        (
            {"decide": lambda logits: tf.strings.length(tf.io.read_file("/etc/passwd"))[tf.newaxis]},
            "by the operation (StringLength|ExpandDims|ReadFile)",
        ),
    ],
)
def test_other_shapes_are_refused_by_name(changes: dict[str, Any], reason: str, tmp_path: Path) -> None:
    _save_module(tmp_path / "saved", _QUANTILES, **changes)
    with pytest.raises(PolicyError, match=reason) as caught:
        read_policy(tmp_path / "saved")
    assert str(caught.value).startswith(str(tmp_path / "saved"))


def test_other_decisions_are_found(tmp_path: Path) -> None:
    """A network that is not the model's is refused, and one that differs in ties alone is not."""
    _save_module(tmp_path / "saved", _QUANTILES, logits=lambda x, raw: _dense(x))
    policy = read_policy(tmp_path / "saved")
    values = {"node_count": np.arange(10)}
    assert compare(policy, values).num_observations == 10
    biases = (policy.weights.biases[0] + np.array([0, 5], np.float32),)
    other = dataclasses.replace(policy, weights=dataclasses.replace(policy.weights, biases=biases))
    with pytest.raises(PolicyError, match=r"decisions are not those of the imported network on \d+ of 10 observations"):
        compare(other, values)
    with pytest.raises(PolicyError, match="observes node_count, which the trace does not have"):
        compare(policy, {"edge_count": np.arange(10)})


def test_made_up_observations_reach_every_quantile() -> None:
    quantiles = np.array([-5.0, 0.0, 0.0, 2.5, 1000.0])
    weights = NetworkWeights(("a",), (quantiles,), (np.zeros((3, 2), np.float32),), (np.zeros(2, np.float32),))
    found = set(made_up_observations(weights, 2000)["a"].tolist())
    assert {-6, -5, -4, -1, 0, 1, 2, 3, 999, 1000, 1001} <= found
    assert min(found) < -100 and max(found) > 1100
