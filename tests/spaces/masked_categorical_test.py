"""Masked categorical policies choose legal candidates only, and equal a plain computation."""

import itertools
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler_opt.errors import PolicyError, ProtocolError
from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.binary import BinaryPolicy
from compiler_opt.spaces.candidates import CandidateInputs
from compiler_opt.spaces.learned_policy import outputs
from compiler_opt.spaces.masked_categorical import MaskedCategoricalPolicy
from compiler_opt.spaces.quantile_encoder import QuantileEncoder
from compiler_opt.tensor_spec import TensorSpec

_PLACES = 5


class _Inputs(CandidateInputs):
    mask = "mask"
    features = ("mask", "cost", "height")
    names = ("cost", "height")

    def legal(self, features: Mapping[str, np.ndarray]) -> np.ndarray:
        return features["mask"].reshape(-1, _PLACES) != 0

    def values(self, features: Mapping[str, np.ndarray]) -> np.ndarray:
        columns = [features[name].reshape(-1, _PLACES) for name in self.names]
        return np.stack(columns, axis=-1).astype(np.float32)


_HEADER = Header(
    (
        TensorSpec("unused", np.dtype("i8"), (1,)),
        TensorSpec("height", np.dtype("i8"), (1, _PLACES)),
        TensorSpec("mask", np.dtype("i8"), (1, _PLACES)),
        TensorSpec("cost", np.dtype("f4"), (1, _PLACES)),
    ),
    TensorSpec("index", np.dtype("i8"), (1,)),
)


def _weights(
    seed: int, scale: float = 1.0, features: tuple[str, ...] = _Inputs.names, num_outputs: int = 1
) -> NetworkWeights:
    rng = np.random.default_rng(seed)
    sizes = (3 * len(features), 6, num_outputs)
    return NetworkWeights(
        features,
        tuple(np.sort(rng.normal(size=7 + index)) for index in range(len(features))),
        tuple(scale * rng.normal(size=size).astype(np.float32) for size in itertools.pairwise(sizes)),
        tuple(scale * rng.normal(size=size).astype(np.float32) for size in sizes[1:]),
    )


def _observation(rng: np.random.Generator, mask: np.ndarray) -> bytes:
    height, cost = rng.integers(-1, 5, _PLACES), rng.normal(size=_PLACES).astype("f4")
    return np.zeros(1, "i8").tobytes() + height.tobytes() + mask.astype("i8").tobytes() + cost.tobytes()


@given(st.integers(0, _PLACES - 1), st.integers(0, 2**32 - 1), st.floats(0, 1e6), st.sampled_from([0.0, 1.0]))
@settings(max_examples=60)
def test_the_only_legal_candidate_is_chosen_for_any_weights(
    place: int, seed: int, scale: float, temperature: float
) -> None:
    policy = MaskedCategoricalPolicy(_weights(seed, scale), _Inputs(), temperature=temperature)
    decide = policy.start(_HEADER, seed)
    assert decide(_observation(np.random.default_rng(seed), np.arange(_PLACES) == place)) == place
    if temperature:
        assert decide.log_probs() == [0.0]


def test_decisions_equal_the_plain_computation() -> None:
    rng, weights, inputs = np.random.default_rng(1), _weights(2), _Inputs()
    decide = MaskedCategoricalPolicy(weights, inputs).start(_HEADER, 0)
    chosen = set()
    for _ in range(200):
        mask = rng.random(_PLACES) < 0.6
        mask[rng.integers(_PLACES)] = True
        observation = _observation(rng, mask)
        features = _HEADER.decode(observation)
        scores = outputs(weights, QuantileEncoder(weights.quantiles).ranks(inputs.values(features)))[0, :, 0]
        expected = int(np.where(mask, scores, -np.inf).argmax())
        assert decide(observation) == expected
        chosen.add(expected)
    assert chosen == set(range(_PLACES))


def test_samples_follow_the_recorded_probabilities() -> None:
    rng, weights, inputs = np.random.default_rng(1), _weights(2, scale=0.7), _Inputs()
    mask = np.array([1, 0, 1, 1, 1])
    observation = _observation(rng, mask)
    ranks = QuantileEncoder(weights.quantiles).ranks(inputs.values(_HEADER.decode(observation)))
    scores = outputs(weights, ranks)[0, :, 0]
    likelihood = np.where(mask, np.exp(scores / 2.0), 0)
    probability = likelihood / likelihood.sum()
    decide = MaskedCategoricalPolicy(weights, inputs, temperature=2.0).start(_HEADER, seed=3)
    drawn = np.array([decide(observation) for _ in range(4000)])
    # Five standard deviations of a share of 4,000.
    np.testing.assert_allclose(np.bincount(drawn, minlength=_PLACES) / 4000, probability, atol=5 * 0.5 / 4000**0.5)
    log_probs = decide.log_probs()
    assert log_probs is not None
    np.testing.assert_allclose(log_probs, np.log(probability[drawn]), atol=1e-5)
    again = MaskedCategoricalPolicy(weights, inputs, temperature=2.0).start(_HEADER, seed=3)
    assert [again(observation) for _ in range(50)] == drawn[:50].tolist()


def test_policies_and_compilers_that_do_not_fit_are_refused() -> None:
    with pytest.raises(PolicyError, match="expected a network with 1 outputs, found 2"):
        MaskedCategoricalPolicy(_weights(1, num_outputs=2), _Inputs())
    with pytest.raises(PolicyError, match="expected a network with 2 outputs, found 1"):
        BinaryPolicy(_weights(1))
    with pytest.raises(PolicyError, match="they differ in height"):
        MaskedCategoricalPolicy(_weights(1, features=("cost",)), _Inputs())
    policy = MaskedCategoricalPolicy(_weights(1), _Inputs())
    with pytest.raises(PolicyError, match="does not send: height"):
        policy.start(Header(_HEADER.features[2:], _HEADER.advice), 0)
    with pytest.raises(ProtocolError, match="without a legal candidate"):
        policy.start(_HEADER, 0)(_observation(np.random.default_rng(1), np.zeros(_PLACES)))
