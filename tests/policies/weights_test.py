"""The numpy network against the same computation written out, and its file against damage."""

import itertools
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler_opt.array_files import save_arrays
from compiler_opt.errors import OutputError, PolicyError
from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.weights import NETWORK_FILE, NetworkPolicy, NetworkWeights
from compiler_opt.tensor_spec import TensorSpec

_INT64 = np.dtype("i8")
_ADVICE = TensorSpec("inlining_decision", _INT64, (1,))


def _weights(seed: int, num_features: int = 5, hidden: tuple[int, ...] = (7, 4)) -> NetworkWeights:
    rng = np.random.default_rng(seed)
    sizes = (3 * num_features, *hidden, 2)
    return NetworkWeights(
        tuple(f"f{index}" for index in range(num_features)),
        tuple(
            np.sort(rng.integers(-9, 2 + 10**index, rng.integers(1, 30))).astype(float) for index in range(num_features)
        ),
        tuple(rng.normal(size=shape).astype("f4") for shape in itertools.pairwise(sizes)),
        tuple(rng.normal(size=size).astype("f4") for size in sizes[1:]),
        {"seed": seed},
    )


def _header(names: tuple[str, ...]) -> Header:
    return Header(tuple(TensorSpec(name, _INT64, (1,)) for name in names), _ADVICE)


def _slow_logits(weights: NetworkWeights, values: dict[str, int]) -> list[float]:
    inputs: list[float] = []
    for name, quantiles in zip(weights.features, weights.quantiles, strict=True):
        x = sum(quantile <= values[name] for quantile in quantiles) / len(quantiles)
        inputs += [x, math.sqrt(x), x * x]
    for layer, (kernel, bias) in enumerate(zip(weights.kernels, weights.biases, strict=True)):
        outputs = [
            sum(inputs[i] * float(kernel[i, j]) for i in range(len(inputs))) + float(bias[j]) for j in range(len(bias))
        ]
        inputs = outputs if layer == len(weights.kernels) - 1 else [max(0.0, value) for value in outputs]
    return inputs


@settings(max_examples=50)
@given(st.integers(0, 1000), st.lists(st.integers(-(2**62), 2**62) | st.integers(-20, 20), min_size=6, max_size=6))
def test_decisions_are_those_of_the_network_written_out(seed: int, values: list[int]) -> None:
    weights = _weights(seed)
    # The compiler sends one feature more than the policy knows, and in another order.
    names = ("extra", *reversed(weights.features))
    by_name = dict(zip(names, values, strict=True))
    expected = _slow_logits(weights, by_name)
    policy = NetworkPolicy(weights)
    batch = policy.logits({name: np.array([value]) for name, value in by_name.items()})
    np.testing.assert_allclose(batch[0], expected, rtol=1e-4, atol=1e-4)
    if abs(expected[1] - expected[0]) > 1e-4:
        observation = np.array([by_name[name] for name in names], np.int64).tobytes()
        assert policy.start(_header(names), seed=0)(observation) == int(expected[1] > expected[0])


def test_sampling_follows_the_probabilities_and_tells_them() -> None:
    weights = _weights(3)
    observation = np.arange(5).tobytes()
    off, on = _slow_logits(weights, {f"f{index}": index for index in range(5)})
    probability = 1 / (1 + math.exp(off - on))
    decider = NetworkPolicy(weights, temperature=1.0).start(_header(weights.features), seed=11)
    actions = np.array([decider(observation) for _ in range(4000)])
    # Four standard deviations of a mean of 4,000.
    assert abs(actions.mean() - probability) < 4 * math.sqrt(probability * (1 - probability) / 4000)
    log_probs = decider.log_probs()
    assert log_probs is not None
    np.testing.assert_allclose(
        log_probs, np.where(actions, math.log(probability), math.log(1 - probability)), rtol=1e-4, atol=1e-5
    )


def test_the_same_seed_decides_the_same() -> None:
    policy = NetworkPolicy(_weights(5), temperature=1.0)
    observations = [np.arange(index, index + 5).tobytes() for index in range(200)]

    def decide(seed: int) -> list[int | float]:
        decider = policy.start(_header(policy.weights.features), seed)
        return [decider(observation) for observation in observations]

    assert decide(1) == decide(1)
    assert decide(1) != decide(2)


def test_a_feature_that_the_compiler_lacks_is_named() -> None:
    policy = NetworkPolicy(_weights(1))
    with pytest.raises(PolicyError, match=r"does not send: f3, f4;"):
        policy.start(_header(("f0", "f1", "f2")), seed=0)


def test_it_survives_the_disk(tmp_path: Path) -> None:
    weights = _weights(7)
    weights.save(tmp_path)
    loaded = NetworkWeights.load(tmp_path)
    assert loaded.features == weights.features
    assert loaded.metadata == {"seed": 7}
    for name in ("quantiles", "kernels", "biases"):
        for one, other in zip(getattr(loaded, name), getattr(weights, name), strict=True):
            np.testing.assert_array_equal(one, other)
    assert [path.name for path in tmp_path.iterdir()] == [NETWORK_FILE]


@settings(max_examples=60)
@given(st.data())
def test_a_damaged_file_is_refused(data: st.DataObject) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        _weights(1, num_features=2, hidden=(3,)).save(directory)
        content = bytearray((directory / NETWORK_FILE).read_bytes())
        if data.draw(st.booleans()):
            content = content[: data.draw(st.integers(0, len(content) - 1))]
        else:
            content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
        (directory / NETWORK_FILE).write_bytes(content)
        try:
            NetworkWeights.load(directory)
        except PolicyError as error:
            assert str(directory) in str(error) or "policy network" in str(error) or "vocabulary" in str(error)


_GOOD_HEADER: Mapping[str, Any] = {"format": 1, "features": ["a", "b"], "metadata": {"seed": 1}}
_GOOD_ARRAYS = {
    "quantiles_0": np.arange(4.0),
    "quantiles_1": np.arange(3.0),
    "kernel_0": np.ones((6, 3), "f4"),
    "bias_0": np.ones(3, "f4"),
    "kernel_1": np.ones((3, 2), "f4"),
    "bias_1": np.ones(2, "f4"),
}


@pytest.mark.parametrize(
    "header",
    [
        {"metadata": None},
        {"metadata": [1]},
        {"metadata": "x"},
        {"metadata": {"toolchain": "clang"}},
        {"metadata": {"corpus": [1]}},
        {"metadata": {"method": {}}},
        {"features": {"a": 1, "b": 2}, "metadata": 5},
        {"features": ["a", "a"]},
        {"features": ["a", "\ud800"]},
        {"features": ["a", 1]},
        {"features": 5},
        {"format": "x" * 999},
        {"quantiles_0": np.zeros((2, 2))},
        {"quantiles_0": np.zeros((2, 0))},
        {"quantiles_0": np.array([1e308, -1e308])},
        {"quantiles_0": np.array([-(2.0**63), 2.0**62])},
        {"bias_0": np.zeros((3, 1), "f4")},
        {"bias_0": np.full(3, 1e300)},
        {"kernel_0": np.zeros((6, 3, 1), "f4")},
    ],
    ids=str,
)
def test_a_file_that_says_something_odd_is_refused(header: dict[str, Any], tmp_path: Path) -> None:
    """And not half-way through an evaluation: by what loads the policy, or asks whether it fits the compiler."""
    arrays = {**_GOOD_ARRAYS, **{name: header.pop(name) for name in list(header) if name in _GOOD_ARRAYS}}
    text = json.dumps({**_GOOD_HEADER, **header})
    save_arrays(tmp_path / NETWORK_FILE, {**arrays, "header": np.frombuffer(text.encode(), np.uint8)})
    with pytest.raises(PolicyError) as error:
        NetworkPolicy.load(tmp_path).check(["a", "b"])
    assert str(tmp_path) in str(error.value) and "\n" not in str(error.value)


def test_the_file_that_these_are_made_of_is_good(tmp_path: Path) -> None:
    header = {"header": np.frombuffer(json.dumps(_GOOD_HEADER).encode(), np.uint8)}
    save_arrays(tmp_path / NETWORK_FILE, {**_GOOD_ARRAYS, **header})
    NetworkPolicy.load(tmp_path).check(["a", "b"])


def test_a_missing_policy_is_named(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="expected a policy"):
        NetworkWeights.load(tmp_path)


def test_weights_that_do_not_fit_the_vocabulary_are_refused() -> None:
    good = _weights(1)
    with pytest.raises(PolicyError, match=r"expected a kernel of shape \(12, 7\), found \(15, 7\)"):
        NetworkWeights(good.features[:4], good.quantiles[:4], good.kernels, good.biases)


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = _weights(1)
    old.save(tmp_path)

    def refuse(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", refuse)
    with pytest.raises(OutputError, match="No space left on device; what was there before is untouched"):
        _weights(2).save(tmp_path)
    monkeypatch.undo()
    assert NetworkWeights.load(tmp_path).metadata == {"seed": 1}
    assert [path.name for path in tmp_path.iterdir()] == [NETWORK_FILE]
