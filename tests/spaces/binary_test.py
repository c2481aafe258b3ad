"""Binary policies against a plain computation of the network."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler_opt import problem as problems
from compiler_opt.errors import PolicyError
from compiler_opt.llvm import ir2vec
from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.policy import uniforms
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.binary import Binary, BinaryPolicy
from compiler_opt.spaces.distributions import bernoulli_log_probs
from compiler_opt.tensor_spec import TensorSpec
from tests.real_observations import recurrent

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
def test_decisions_equal_the_plain_computation(seed: int, values: list[int]) -> None:
    weights = _weights(seed)
    # The compiler sends one more feature than the policy observes, in another order.
    names = ("extra", *reversed(weights.features))
    by_name = dict(zip(names, values, strict=True))
    expected = _slow_logits(weights, by_name)
    policy = BinaryPolicy(weights)
    batch = policy.logits({name: np.array([value]) for name, value in by_name.items()})
    np.testing.assert_allclose(batch[0], expected, rtol=1e-4, atol=1e-4)
    if abs(expected[1] - expected[0]) > 1e-4:
        observation = np.array([by_name[name] for name in names], np.int64).tobytes()
        assert policy.start(_header(names), seed=0)(observation) == int(expected[1] > expected[0])


def test_quantiles_may_lie_far_apart() -> None:
    weights = dataclasses.replace(_weights(2, num_features=1), quantiles=(np.array([-(2.0**63), -1.0, 2.0**62]),))
    decide = BinaryPolicy(weights).start(_header(("f0",)), seed=0)
    for value in (-(2**63), -2, -1, 0, 2**61, 2**62, 2**63 - 1):
        off, on = _slow_logits(weights, {"f0": value})
        assert decide(np.array([value]).tobytes()) == int(on > off)


def test_samples_follow_the_recorded_probabilities() -> None:
    weights = _weights(3)
    observation = np.arange(5).tobytes()
    off, on = _slow_logits(weights, {f"f{index}": index for index in range(5)})
    probability = 1 / (1 + math.exp(off - on))
    decider = BinaryPolicy(weights, temperature=1.0).start(_header(weights.features), seed=11)
    actions = np.array([decider(observation) for _ in range(4000)])
    # Four standard deviations of a mean of 4,000.
    assert abs(actions.mean() - probability) < 4 * math.sqrt(probability * (1 - probability) / 4000)
    log_probs = decider.log_probs()
    assert log_probs is not None
    np.testing.assert_allclose(
        log_probs, np.where(actions, math.log(probability), math.log(1 - probability)), rtol=1e-4, atol=1e-5
    )


def test_the_same_seed_decides_the_same() -> None:
    policy = BinaryPolicy(_weights(5), temperature=1.0)
    observations = [np.arange(index, index + 5).tobytes() for index in range(200)]

    def decide(seed: int) -> list[int | float]:
        decider = policy.start(_header(policy.weights.features), seed)
        return [decider(observation) for observation in observations]

    assert decide(1) == decide(1)
    assert decide(1) != decide(2)


def test_what_was_decided_before_changes_no_decision() -> None:
    policy = BinaryPolicy(_weights(1))
    rng = np.random.default_rng(1)
    distinct = [np.array([rng.choice(each) for each in policy.weights.quantiles], np.int64) for _ in range(20)]
    observations = [values.tobytes() for values in distinct] * 5
    decider = policy.start(_header(policy.weights.features), seed=0)
    decided = [decider(observation) for observation in observations]
    alone = [policy.start(_header(policy.weights.features), seed=0)(observation) for observation in observations]
    assert decided == alone
    assert set(decided) == {0, 1}


def test_a_feature_that_the_compiler_lacks_is_named() -> None:
    policy = BinaryPolicy(_weights(1))
    with pytest.raises(PolicyError, match=r"does not send: f3, f4;"):
        policy.start(_header(("f0", "f1", "f2")), seed=0)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_recurrent_policy_decides_a_module_in_order(temperature: float) -> None:
    """One decision at a time as all at once; and each compilation begins anew."""
    weights = recurrent(_weights(4), 6)
    values = np.random.default_rng(1).integers(-9, 9, (300, 5))
    features = {f"f{index}": values[:, index] for index in range(5)}
    # About half of the decisions are taken either way.
    weights.biases[-1][1] -= np.median(np.diff(BinaryPolicy(weights).logits(features)))
    policy = BinaryPolicy(weights, temperature=temperature)
    logits = policy.logits(features).astype(np.float64)
    difference = logits[:, 1] - logits[:, 0]
    for _ in range(2):
        decider = policy.start(_header(weights.features), seed=2)
        advice = np.array([decider(row.tobytes()) for row in values])
        if temperature:
            draw = uniforms(2)
            np.testing.assert_array_equal(advice, np.array([draw() for _ in values]) < 1 / (1 + np.exp(-difference)))
            log_probs = decider.log_probs()
            assert log_probs is not None
            np.testing.assert_allclose(log_probs, bernoulli_log_probs(advice, difference), atol=1e-4)
        else:
            np.testing.assert_array_equal(advice, difference > 0)
    assert 30 < advice.sum() < 270
    alone = np.concatenate([policy.logits({f"f{i}": row[i : i + 1] for i in range(5)}) for row in values])
    assert np.mean((alone[:, 1] > alone[:, 0]) != (difference > 0)) > 0.02


def test_a_recurrent_policy_has_our_forms_only() -> None:
    assert Binary().formats(recurrent(_weights(1), 2)) == ("native", "cpp")
    with pytest.raises(PolicyError, match="expected a network without a recurrent layer, found an LSTM"):
        problems.load("regalloc_priority").decision.policy(recurrent(_weights(1), 2))


def test_a_recurrent_policy_may_observe_embeddings() -> None:
    names = (f"{ir2vec.TENSORS[0]}_0", f"{ir2vec.TENSORS[0]}_1", "f2")
    weights = dataclasses.replace(recurrent(_weights(4, num_features=3), 6), features=names)
    dtypes: tuple[np.dtype, ...] = (np.dtype("f4"), np.dtype("f4"), _INT64)
    header = Header(tuple(TensorSpec(name, dtype, (1,)) for name, dtype in zip(names, dtypes, strict=True)), _ADVICE)
    values = np.zeros(200, [(name, dtype) for name, dtype in zip(names, dtypes, strict=True)])
    for name in names:
        values[name] = np.random.default_rng(len(name)).integers(-20, 100, 200)
    features = {name: values[name] for name in names}
    weights.biases[-1][1] -= np.median(np.diff(BinaryPolicy(weights).logits(features)))
    policy = BinaryPolicy(weights)
    decider = policy.start(header, seed=2)
    expected = np.diff(policy.logits(features))[:, 0]
    found = np.array([decider(row.tobytes()) for row in values])
    clear = np.abs(expected) > 1e-4
    np.testing.assert_array_equal(found[clear], expected[clear] > 0)
    assert 20 < found.sum() < 180
    assert Binary().formats(weights) == ()
