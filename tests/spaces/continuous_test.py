"""Continuous policies: the advice for the compiler, and the actions and log probabilities for learning."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler_opt.errors import PolicyError
from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.binary import BinaryPolicy
from compiler_opt.spaces.continuous import ContinuousPolicy
from compiler_opt.spaces.distributions import learnable_log_deviation, mean_and_log_deviation
from compiler_opt.spaces.learned_policy import outputs
from compiler_opt.spaces.quantile_encoder import QuantileEncoder
from compiler_opt.spaces.quantizer import LARGEST_ADVICE, ActionQuantizer
from compiler_opt.tensor_spec import TensorSpec

_FEATURES = ("size", "weight")
_SCALE = ActionQuantizer(lowest=-2.0, highest=2.0, steps=50)
_HEADER = Header(
    (
        TensorSpec("unused", np.dtype("i8"), (1,)),
        TensorSpec("weight", np.dtype("f4"), (1,)),
        TensorSpec("size", np.dtype("i8"), (1,)),
    ),
    TensorSpec("urgency", np.dtype("f4"), (1,)),
)


def _weights(seed: int, *, num_outputs: int = 2) -> NetworkWeights:
    rng = np.random.default_rng(seed)
    sizes = (3 * len(_FEATURES), 8, num_outputs)
    return NetworkWeights(
        _FEATURES,
        (np.arange(0.0, 90.0, 9.0), np.append(np.linspace(-1, 1, 12), float(np.finfo("f4").max))),
        tuple(rng.normal(size=size).astype(np.float32) for size in itertools.pairwise(sizes)),
        tuple(rng.normal(size=size).astype(np.float32) for size in sizes[1:]),
    )


def _observation(size: int, weight: float) -> bytes:
    return np.zeros(1, "i8").tobytes() + np.array([weight], "f4").tobytes() + np.array([size], "i8").tobytes()


@given(st.lists(st.floats(-1e6, 1e6), min_size=2), st.floats(-100, 100), st.floats(0.1, 100), st.integers(1, 1000))
@settings(max_examples=100)
def test_advice_is_whole_and_keeps_the_order(actions: list[float], lowest: float, width: float, steps: int) -> None:
    scale = ActionQuantizer(lowest, lowest + width, steps + 10)
    advice = scale.to_advice(np.sort(actions))
    # As the compiler converts it.
    unsigned = advice.astype(np.uint32)
    np.testing.assert_array_equal(unsigned, advice)
    assert (np.diff(unsigned.astype(np.int64)) >= 0).all()
    assert unsigned.max() <= scale.largest_advice <= LARGEST_ADVICE


def test_each_advice_has_an_action() -> None:
    advice = np.arange(_SCALE.largest_advice + 1).astype("f4")
    assert _SCALE.largest_advice == 4 * 50
    actions = _SCALE.to_actions(advice)
    np.testing.assert_array_equal(_SCALE.to_advice(actions), advice)
    np.testing.assert_allclose(np.diff(actions), 1 / 50, atol=1e-6)
    for odd in (-1.0, 0.5, 201.0, math.nan, math.inf):
        with pytest.raises(PolicyError, match="expected decisions that are whole numbers from 0 to 200, found"):
            _SCALE.to_actions(np.array([3.0, odd]))


@pytest.mark.parametrize(("lowest", "highest", "steps"), [(1, 1, 9), (2, 1, 9), (0, 1, 0), (0, 1 << 24, 1)])
def test_a_quantizer_without_steps_or_with_too_many_is_refused(lowest: float, highest: float, steps: int) -> None:
    with pytest.raises(ValueError, match="expected 1 to 16777215 steps"):
        ActionQuantizer(lowest, highest, steps)


def test_decisions_equal_the_plain_computation() -> None:
    rng, weights = np.random.default_rng(1), _weights(2)
    policy = ContinuousPolicy(weights, _SCALE)
    decide = policy.start(_HEADER, 0)
    advised = set()
    for _ in range(300):
        size = int(rng.integers(-5, 100))
        weight = float(np.float32(rng.choice([rng.normal(), np.inf])))
        row = np.array([[size, weight]])
        [expected] = mean_and_log_deviation(outputs(weights, QuantileEncoder(weights.quantiles).ranks(row)))[0]
        advice = decide(_observation(size, weight))
        assert advice == _SCALE.to_advice(np.array([expected]))[0]
        assert policy.means({"size": row[:, 0], "weight": row[:, 1]}) == pytest.approx([expected], abs=1e-6)
        advised.add(advice)
    assert len(advised) > 20
    assert decide.log_probs() is None and decide.sampled_actions() is None


def test_samples_follow_the_recorded_density() -> None:
    weights, temperature = _weights(2), 0.5
    observation = _observation(40, 0.25)
    raw = outputs(weights, QuantileEncoder(weights.quantiles).ranks(np.array([[40, 0.25]])))
    [mean], [log_deviation] = mean_and_log_deviation(raw)
    deviation = temperature * math.exp(log_deviation)
    decide = ContinuousPolicy(weights, _SCALE, temperature=temperature).start(_HEADER, seed=3)
    advice = np.array([decide(observation) for _ in range(4000)])
    drawn, log_probs = decide.sampled_actions(), decide.log_probs()
    assert drawn is not None and log_probs is not None
    assert drawn.dtype == log_probs.dtype == np.float32
    # Five standard deviations of mean and deviation of 4,000 numbers.
    assert drawn.mean() == pytest.approx(mean, abs=5 * deviation / 4000**0.5)
    assert drawn.std() == pytest.approx(deviation, rel=5 / 8000**0.5)
    assert np.mean(np.abs(drawn - mean) < 2 * deviation) == pytest.approx(0.9545, abs=5 * 0.21 / 4000**0.5)
    np.testing.assert_array_equal(advice, _SCALE.to_advice(drawn))
    density = np.exp(-((drawn.astype("f8") - mean) ** 2) / (2 * deviation**2)) / (deviation * math.sqrt(2 * math.pi))
    np.testing.assert_allclose(log_probs, np.log(density), atol=1e-4)
    again = ContinuousPolicy(weights, _SCALE, temperature=temperature).start(_HEADER, seed=3)
    assert [again(observation) for _ in range(50)] == advice[:50].tolist()


def test_labels_stay_within_what_a_network_can_represent() -> None:
    for deviation in (0.0, 1e-6, 0.03, 0.1, 1.0, 100.0):
        raw = np.linspace(-3, 3, 2001)
        said = mean_and_log_deviation(np.stack([np.zeros_like(raw), raw], axis=-1))[1]
        assert np.abs(said - learnable_log_deviation(deviation)).min() < 0.01
    assert math.exp(learnable_log_deviation(0.03)) == pytest.approx(0.03)
    assert math.exp(learnable_log_deviation(0.0)) < 0.01


def test_policies_and_compilers_that_do_not_fit_are_refused() -> None:
    with pytest.raises(PolicyError, match="expected a network with 2 outputs, found 1"):
        ContinuousPolicy(_weights(1, num_outputs=1), _SCALE)
    policy = ContinuousPolicy(_weights(1), _SCALE)
    with pytest.raises(PolicyError, match="does not send: size"):
        policy.start(Header(_HEADER.features[:2], _HEADER.advice), 0)
    many = TensorSpec("size", np.dtype("i8"), (1, 3))
    with pytest.raises(PolicyError, match=r"expected scalar features, found .*'size'"):
        policy.start(Header((*_HEADER.features[:2], many), _HEADER.advice), 0)
    choice = TensorSpec("choice", np.dtype("i8"), (1,))
    with pytest.raises(PolicyError, match=r"takes continuous actions, but the compiler expects .*'choice'"):
        policy.start(Header(_HEADER.features, choice), 0)
    with pytest.raises(PolicyError, match="expected scalar int64 features"):
        BinaryPolicy(_weights(1)).start(_HEADER, 0)
