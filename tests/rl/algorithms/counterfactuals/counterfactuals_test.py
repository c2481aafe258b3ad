"""Counterfactuals: which are drawn, their samples, and what the learner learns from them."""

import dataclasses
from collections.abc import Mapping
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from compiler_opt.errors import ConfigError
from compiler_opt.problems import problem as problems
from compiler_opt.tensorflow_loading import load_tensorflow

load_tensorflow()

from compiler_opt.llvm.interactive import FunctionOfDecisions  # noqa: E402
from compiler_opt.policies.weights import NetworkConfig, mean_network  # noqa: E402
from compiler_opt.rl.algorithm import AlgorithmConfigs  # noqa: E402
from compiler_opt.rl.algorithms.counterfactuals import ALGORITHM, CounterfactualsConfig  # noqa: E402
from compiler_opt.rl.algorithms.counterfactuals.algorithm import candidate_pairs, draw_counterfactuals  # noqa: E402
from compiler_opt.rl.algorithms.counterfactuals.learner import GainLearner, Samples, log_gain  # noqa: E402
from compiler_opt.rl.training_context import TrainingContext  # noqa: E402
from compiler_opt.spaces.candidates import CandidateInputs  # noqa: E402
from compiler_opt.spaces.heads.categorical import MaskedCategoricalHead  # noqa: E402
from compiler_opt.tensor_spec import TensorSpec  # noqa: E402

_PLACES = 5
_NETWORK = NetworkConfig((16,), (8,))
_CONFIG = CounterfactualsConfig(learning_rate=0.01, minibatch_size=64, weight_decay=0.0)


class _Inputs(CandidateInputs):
    mask = "mask"
    features = ("mask", "cost", "default")
    names = ("cost", "is_default")
    default_input = "is_default"

    def legal(self, features: Mapping[str, np.ndarray]) -> np.ndarray:
        return features["mask"] != 0

    def values(self, features: Mapping[str, np.ndarray]) -> np.ndarray:
        is_default = np.arange(_PLACES) == features["default"][:, np.newaxis]
        return np.stack([features["cost"], is_default], axis=-1).astype(np.float32)


def _head() -> MaskedCategoricalHead:
    quantiles = {"cost": np.linspace(0.0, 1.0, 21), "is_default": np.array([0.0, 0.0, 1.0])}
    return MaskedCategoricalHead(quantiles, _Inputs(), [TensorSpec("mask", np.dtype("i8"), (1, _PLACES))])


def _learner(config: CounterfactualsConfig = _CONFIG) -> GainLearner:
    return GainLearner(_head(), "index", _NETWORK, config, seed=1)


def _features(rng: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    mask = rng.random((count, _PLACES)) < 0.6
    mask[:, -1] = True
    return {"mask": mask, "cost": rng.random((count, _PLACES)), "default": rng.integers(0, _PLACES, count)}


def test_a_gain_is_the_logarithm_of_the_ratio() -> None:
    assert log_gain(7.0, 3.0, 1.0, 3.0) == pytest.approx(np.log(8 / 4))
    assert log_gain(3.0, 7.0, 1.0, 3.0) == pytest.approx(-np.log(2))
    assert log_gain(0.0, 0.0, 1.0, 3.0) == 0
    assert log_gain(1e9, 0.0, 1.0, 3.0) == 3
    assert log_gain(0.0, 1e9, 1.0, 3.0) == -3


def _draw(uniform_share: float, count: int) -> tuple[dict[str, np.ndarray], np.ndarray, FunctionOfDecisions, list]:
    rng = np.random.default_rng(0)
    features, head = _features(rng, 40), _head()
    weights = _learner().average.weights()
    advice = head.logits(weights, head.observe(features)).argmax(axis=-1)
    sites = FunctionOfDecisions(("f", "g", "lonely"), np.array([0] * 25 + [1] * 14 + [2], np.int32))
    features["mask"][39, :-1] = False
    advice[39] = _PLACES - 1
    config = dataclasses.replace(_CONFIG, uniform_share=uniform_share, promise_temperature=1e-4)
    drawn = draw_counterfactuals(head, config, weights, features, advice, sites, count, rng)
    return features, advice, sites, drawn


def test_counterfactuals_are_legal_change_the_decision_and_differ() -> None:
    features, advice, sites, drawn = _draw(1.0, 12)
    observed = _head().observe(features)["quantile_ranks"]
    seen = set()
    for counterfactuals in drawn:
        # Nothing else is legal in the third function.
        assert [site.caller for site in counterfactuals] == ["f", "g"]
        pairs = candidate_pairs(counterfactuals, {"quantile_ranks": observed}, advice, sites)
        for (site, other), pair in zip(counterfactuals.items(), pairs, strict=True):
            [decisions] = np.nonzero(sites.indices == sites.functions.index(site.caller))
            decision = decisions[site.ordinal]
            assert features["mask"][decision, other]
            assert other != advice[decision]
            np.testing.assert_array_equal(pair, observed[decision][[advice[decision], other]])
            seen.add((site, other))
    assert len(seen) == 24


def test_no_counterfactual_is_drawn_twice() -> None:
    features, _, sites, drawn = _draw(0.5, 200)
    pairs = [int(features["mask"][sites.indices == index].sum() - count) for index, count in ((0, 25), (1, 14))]
    tried = [sum(site.caller == name for counterfactuals in drawn for site in counterfactuals) for name in "fg"]
    # Every decision's other legal candidates; where the policy chose an illegal one for want of a mask, one more.
    assert all(0 <= count - expected <= 25 for count, expected in zip(tried, pairs, strict=True))


def test_without_uniform_draws_the_highest_expected_gain_comes_first() -> None:
    features, advice, sites, drawn = _draw(1e-9, 1)
    head = _head()
    scores = head.logits(_learner().average.weights(), head.observe(features))
    for site, other in drawn[0].items():
        [decisions] = np.nonzero(sites.indices == sites.functions.index(site.caller))
        rows = scores[decisions]
        lag = rows[np.arange(len(rows)), advice[decisions]][:, np.newaxis] - rows
        lag[np.arange(len(rows)), advice[decisions]] = np.inf
        assert lag[site.ordinal, other] == pytest.approx(lag.min(), abs=1e-2)


def _noisy_samples(rng: np.random.Generator, count: int) -> Samples:
    """Candidates gain by costing less and lose by costing more, with noise; nothing depends on the default."""
    features = _features(rng, count)
    ranks = _head().observe(features)["quantile_ranks"]
    chosen, tried = rng.permuted(np.tile(np.arange(_PLACES), (count, 1)), axis=1)[:, :2].T
    rows = np.arange(count)
    pairs = np.stack([ranks[rows, chosen], ranks[rows, tried]], axis=1)
    gains = (features["cost"][rows, chosen] - features["cost"][rows, tried]).astype(np.float32)
    return Samples(pairs, gains + rng.normal(0, 0.3, count).astype(np.float32))


def test_it_learns_which_candidates_cost_less() -> None:
    rng, head = np.random.default_rng(0), _head()
    learner = _learner()
    metrics = learner.update(_noisy_samples(rng, 4000), 0.0, 1000, rng)
    # The noise has more variance (0.09) than the gains (1 / 6) leave to be explained: sqrt(1/6 / (1/6 + 0.09)) = 0.81.
    assert metrics["gain_correlation"] > 0.75
    assert learner.gain_correlation(_noisy_samples(rng, 4000), 0.0) > 0.75
    features = _features(rng, 300)
    decided = head.logits(learner.average.weights(), head.observe(features)).argmax(axis=-1)
    costs = np.where(features["mask"], features["cost"], np.inf)
    regret = costs[np.arange(300), decided] - costs.min(axis=-1)
    assert regret.mean() < 0.03


def test_small_gains_within_the_margin_do_not_leave_the_default() -> None:
    rng, head = np.random.default_rng(1), _head()
    learner = _learner()
    learner.update(_noisy_samples(rng, 4000), 0.3, 1000, rng)
    features = _features(rng, 2000)
    features["mask"][:] = True
    rows = np.arange(2000)
    decided = head.logits(learner.average.weights(), head.observe(features)).argmax(axis=-1)
    gain = features["cost"][rows, features["default"]] - features["cost"].min(axis=-1)
    left = decided != features["default"]
    assert left[gain > 0.4].mean() > 0.95
    assert left[gain < 0.2].mean() < 0.05


def test_the_warm_start_decides_until_the_first_update() -> None:
    rng = np.random.default_rng(2)
    start = _learner().average.weights()
    start = dataclasses.replace(start, biases=tuple(bias + 1 for bias in start.biases))
    learner = _learner()
    learner.warm_start(start)
    assert learner.average.weights().checksum() == start.checksum()
    learner.update(_noisy_samples(rng, 500), 0.0, 200, rng)
    continued = learner.average.weights()
    fresh = _learner()
    rng = np.random.default_rng(2)
    fresh.update(_noisy_samples(rng, 500), 0.0, 200, rng)
    for one, other in zip(continued.kernels, fresh.average.weights().kernels, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_no_samples() -> None:
    assert len(Samples.concatenate([])) == 0


def test_the_same_seed_makes_the_same_network() -> None:
    kernels = [GainLearner(_head(), "index", _NETWORK, _CONFIG, seed).average.weights().kernels for seed in (1, 1, 2)]
    for one, same, other in zip(*kernels, strict=True):
        np.testing.assert_array_equal(one, same)
        assert (one != other).all()


def test_the_mean_network_has_the_mean_logits() -> None:
    head, rng = _head(), np.random.default_rng(3)
    networks = []
    for seed in (1, 2, 3):
        network = GainLearner(head, "index", NetworkConfig((8, 6, 5)), _CONFIG, seed).average.weights()
        biases = tuple(rng.normal(size=len(bias)).astype(np.float32) for bias in network.biases)
        networks.append(dataclasses.replace(network, biases=biases))
    observations = head.observe(_features(rng, 50))
    expected = np.mean([head.logits(network, observations) for network in networks], axis=0)
    np.testing.assert_allclose(head.logits(mean_network(networks), observations), expected, atol=1e-5)


def test_problems_without_candidates_are_refused() -> None:
    context = cast(TrainingContext, SimpleNamespace(problem=problems.load("regalloc_priority")))
    with pytest.raises(ConfigError, match="regalloc_priority: counterfactuals are for problems that choose among"):
        ALGORITHM.build(context, AlgorithmConfigs())
