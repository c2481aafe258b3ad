"""Evolution strategies: over networks, by the ranks of gains; over a rule, by their significance; pairs of rollouts."""

import types
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from compiler_opt.collect.groups import Attempt, Group, Tagged
from compiler_opt.collect.rollout import Rollout, RolloutSettings
from compiler_opt.corpus.module import Module
from compiler_opt.errors import ConfigError, PolicyError
from compiler_opt.policies.rule import Rule, RuleParameter
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.rl.algorithm import AlgorithmConfigs
from compiler_opt.rl.algorithms.es import ALGORITHM, ESConfig
from compiler_opt.rl.config import TrainingConfig
from compiler_opt.rl.training_run import TrainingRun
from compiler_opt.spaces.binary import BinaryPolicy
from compiler_opt.tensorflow_loading import load_tensorflow

load_tensorflow()

import tensorflow as tf  # noqa: E402

from compiler_opt.rl.algorithms.es.algorithm import AntitheticPairs  # noqa: E402
from compiler_opt.rl.algorithms.es.network import NetworkES, centred_ranks  # noqa: E402
from compiler_opt.rl.algorithms.es.rule import RuleES, cloned_parameters, weighted_gain  # noqa: E402
from compiler_opt.rl.algorithms.es.trust_region import TrustRegion  # noqa: E402
from compiler_opt.rl.checkpoints import Checkpoints  # noqa: E402
from tests.own_scores import OWN_SCORES  # noqa: E402
from tests.rl.algorithms.toy_decisions import HEADS, NETWORK, quality  # noqa: E402


def _context(name: str = "binary", **config: object) -> TrainingRun:
    run = types.SimpleNamespace(
        config=TrainingConfig(**config),  # type: ignore[arg-type]
        problem=OWN_SCORES,
        rollout_settings=RolloutSettings,
        head=HEADS[name](),
        action_name="decision",
        network=NETWORK,
        warm_start_weights=lambda: None,
    )
    return cast(TrainingRun, run)


def _search(name: str = "binary", **config: object) -> NetworkES:
    settings = ESConfig(**{"noise": 0.1, "learning_rate": 0.05, **config})  # type: ignore[arg-type]
    return NetworkES(_context(name), settings)


def _train(search: NetworkES, name: str, iterations: int, rng: np.random.Generator) -> None:
    head = HEADS[name]()

    def gain(direction: np.ndarray) -> float:
        return quality(head, search.weights(direction)) - quality(head, search.weights(-direction))

    for _ in range(iterations):
        if (probe := search.probe()) is not None:
            search.judge(gain(probe))
        directions = np.stack([search.direction(rng) for _ in range(20)])
        search.update(directions, np.array([gain(each) for each in directions]))


def test_ranks_are_among_gains_and_losses() -> None:
    # All of -5 -2 -1 0 0 1 2 5, in the middle of which is 0.
    np.testing.assert_allclose(centred_ranks(np.array([5.0, -1.0, 0.0, 2.0])), (np.array([7, 2, 3.5, 6]) / 7) - 0.5)
    assert centred_ranks(np.array([3.0])).tolist() == [0.5]
    assert centred_ranks(np.array([-1e-9])).tolist() == [-0.5]
    assert centred_ranks(np.zeros(3)).tolist() == [0.0, 0.0, 0.0]
    # Ties share a rank.
    assert centred_ranks(np.array([1.0, 1.0])).tolist() == pytest.approx([1 / 3, 1 / 3])


@pytest.mark.ci
@pytest.mark.parametrize(("name", "optimizer"), [*((name, "adam") for name in HEADS), ("binary", "trust_region")])
def test_it_finds_a_rule(name: str, optimizer: str) -> None:
    search = _search(name, optimizer=optimizer)
    _train(search, name, 25, np.random.default_rng(0))
    head = HEADS[name]()
    assert quality(head, search.policy()) > 0.85


@pytest.mark.parametrize("optimizer", ["plain", "momentum", "adam"])
def test_optimisers_follow_the_gradient(optimizer: str) -> None:
    search, rng = _search(optimizer=optimizer, momentum=0.5), np.random.default_rng(0)
    start = search.weights(np.zeros_like(search.direction(rng)))
    directions = np.stack([search.direction(rng), search.direction(rng)])
    # Ranks 1/2 and 1/6 - 1/2, see above.
    gradient = (0.5 * directions[0] - 1 / 6 * directions[1]) / (2 * 0.1)
    steps = {"plain": (1, 1), "momentum": (1, 1.5), "adam": (1, 1)}[optimizer]
    expected = np.zeros_like(gradient)
    for step in steps:
        search.update(directions, np.array([9.0, -1.0]))
        expected += 0.05 * step * (np.sign(gradient) if optimizer == "adam" else gradient)
    moved = search.weights(np.zeros_like(gradient)).kernels[0] - start.kernels[0]
    size = moved.size
    np.testing.assert_allclose(moved.reshape(-1), expected[:size], rtol=1e-2, atol=1e-4)


def test_without_gains_the_weights_stay() -> None:
    search, rng = _search(), np.random.default_rng(0)
    nothing = np.zeros_like(search.direction(rng))
    before = search.weights(nothing).kernels[0]
    directions = np.stack([search.direction(rng)] * 3)
    assert search.update(directions, np.zeros(3)) == {"gradient_norm": 0.0}
    np.testing.assert_array_equal(search.weights(nothing).kernels[0], before)


@pytest.mark.parametrize("first", [0.001, 50.0])
def test_a_trust_region_settles_where_steps_reach_the_best_point(first: float) -> None:
    best = np.array([1.0, -2.0, 3.0], np.float32)
    place, region = tf.Variable(np.zeros(3, np.float32)), TrustRegion(first)
    region.build([place])
    assert region.probe() is None

    def reward(moved: np.ndarray) -> float:
        return -float(np.sum((moved - best) ** 2))

    lengths = []
    for _ in range(100):
        # Of any scale: only its direction counts.
        region.apply_gradients([(1e-6 * (place - best), place)])
        step = region.probe()
        assert step is not None
        lengths.append(float(np.linalg.norm(step)))
        region.judge(reward(place.numpy() + step) - reward(place.numpy() - step))
    assert np.linalg.norm(place.numpy() - best) < 0.1
    # From too short or too long, steps get about as long as the way that is left, and the last ones are short.
    assert max(lengths) > 100 * first if first < 1 else min(lengths) < first / 100
    assert lengths[-1] < 0.2


def test_each_module_tries_the_last_step_once_more() -> None:
    search, rng = _search(optimizer="trust_region", radius=0.5), np.random.default_rng(0)
    before = search.weights(0 * search.direction(rng)).kernels[0]
    assert not AntitheticPairs(search, RolloutSettings(), 4, 1).has_probe
    search.update(np.stack([search.direction(rng) for _ in range(3)]), np.array([1.0, 2.0, -1.0]))
    pairs = AntitheticPairs(search, RolloutSettings(), 4, modules_per_direction=1)
    assert pairs.has_probe
    one, other = (list(pairs.policies(Module(name, "p", Path("/nowhere")), rng)) for name in "ab")
    assert one[:2] == other[:2] and set(one[2:]).isdisjoint(other[2:])
    now = search.weights(0 * pairs.directions[0]).kernels[0]
    further, back = (cast(BinaryPolicy, each.policy).weights.kernels[0] for each in one[:2])
    np.testing.assert_allclose(back, before, atol=1e-6)
    np.testing.assert_allclose(further - now, now - before, atol=1e-6)
    gain = pairs.gains([_group("a", {0: 0.8, 1: 1.0}, one), _group("b", {0: 0.9, 1: 0.8}, other)])[0]
    assert gain == pytest.approx(0.05)
    radius = search.judge(gain)["radius"]
    assert search.judge(-gain)["radius"] < radius
    assert search.judge(0.0) == search.judge(0.0)


@pytest.mark.parametrize("optimizer", ["momentum", "adam", "trust_region"])
def test_the_same_seed_finds_the_same_and_resumes(optimizer: str, tmp_path: Path) -> None:
    results = []
    for interrupted in (False, True):
        search, rng = _search(optimizer=optimizer), np.random.default_rng(5)
        _train(search, "binary", 2, rng)
        if interrupted:
            Checkpoints(tmp_path, **search.checkpointed()).save(2, {})
            search = _search(optimizer=optimizer)
            assert Checkpoints(tmp_path, **search.checkpointed()).restore() == {}
        _train(search, "binary", 2, rng)
        results.append((search.weights(np.zeros_like(search.direction(rng))), search.policy()))
    for one, other in zip(*results, strict=True):
        for kernel, same in zip(one.kernels, other.kernels, strict=True):
            np.testing.assert_array_equal(kernel, same)


def _group(module: str, scores: dict[int, float], tried: list[Tagged]) -> Group:
    attempts = [
        Attempt(tried[place].policy, Rollout(module, "p", "policy", 0, None, score), tried[place].tag)
        for place, score in scores.items()
    ]
    return Group(module, attempts, 1.0, None)


def test_pairs_of_rollouts_give_gains() -> None:
    search, rng = _search(), np.random.default_rng(0)
    pairs = AntitheticPairs(search, RolloutSettings(), 4, modules_per_direction=2)
    modules = [Module(name, "p", Path("/nowhere")) for name in "abc"]
    first, same, other = (list(pairs.policies(module, rng)) for module in modules)
    assert first == same and set(first).isdisjoint(other)
    assert len(pairs.directions) == 4
    middle = search.weights(0 * pairs.directions[0]).kernels[0]
    for pair, direction in ((first[:2], 0), (first[2:], 1), (other[:2], 2)):
        along, against = (cast(BinaryPolicy, each.policy).weights for each in pair)
        np.testing.assert_array_equal(along.kernels[0], search.weights(pairs.directions[direction]).kernels[0])
        np.testing.assert_allclose(along.kernels[0] - middle, middle - against.kernels[0], atol=1e-6)
    groups = [
        _group("a", {0: 0.7, 1: 0.9, 2: 1.0, 3: 0.5}, first),
        # One rollout failed, and so its pair is left out.
        _group("b", {0: 1.0, 1: 1.0, 3: 0.5}, same),
        _group("c", {0: 0.9, 3: 0.2}, other),
    ]
    assert pairs.gains(groups) == {0: pytest.approx((0.2 + 0.0) / 2), 1: pytest.approx(-0.5)}
    assert pairs.gains([]) == {}


_BEST = np.array([0.3, -2.0, 0.0])


class _Rule(Rule):
    """Of the parameters `[P]`, the third does not matter."""

    features = ()
    parameters = tuple(RuleParameter(name, 0.0, scale) for name, scale in (("a", 0.1), ("b", 1.0), ("c", 0.5)))

    def choose(self, values: np.ndarray, features: Mapping[str, np.ndarray]) -> np.ndarray:
        raise AssertionError("decides nothing")

    def quality(self, values: np.ndarray) -> float:
        return -float((((values - _BEST) / self.scale()) ** 2)[:2].sum())


def _rule_search() -> RuleES:
    config = ESConfig("rule", noise=0.6, learning_rate=0.5, momentum=0.75, averaging=0.85)
    return RuleES(_context(), _Rule(), config)


def _evolve(search: RuleES, iterations: int, noise: float, seed: int = 1) -> None:
    rng, quality = np.random.default_rng(seed), _Rule().quality
    for _ in range(iterations):
        directions = np.stack([search.direction(rng) for _ in range(40)])
        gains = np.array([quality(search.current + each) - quality(search.current - each) for each in directions])
        search.update(directions, gains + noise * rng.standard_normal(len(gains)))


@pytest.mark.parametrize("seed", range(3))
def test_the_parameters_of_a_rule_are_found_in_noise(seed: int) -> None:
    search = _rule_search()
    _evolve(search, 80, noise=3.0, seed=seed)
    found = (search.averaged - _BEST) / _Rule().scale()
    assert np.abs(found[:2]).max() < 0.5
    # The parameter that does not matter has not drifted far.
    assert abs(found[2]) < 3


def test_parameters_of_a_rule_move_by_a_step_at_most_and_only_by_gains() -> None:
    search, rng = _rule_search(), np.random.default_rng(0)
    directions = np.stack([search.direction(rng) for _ in range(64)])
    assert search.update(directions, np.zeros(64)) == {"max_z": 0.0}
    assert search.update(directions[:1], np.ones(1)) == {}
    assert search.current.tolist() == search.averaged.tolist() == [0.0, 0.0, 0.0]
    assert search.update(directions, directions[:, 0] * 1e6)["max_z"] > 3
    assert search.current[0] == pytest.approx(0.05)


def test_a_search_for_a_rule_resumes_from_its_state() -> None:
    whole, first, second = (_rule_search() for _ in range(3))
    _evolve(whole, 3, noise=0.0)
    _evolve(whole, 2, noise=0.0, seed=2)
    _evolve(first, 3, noise=0.0)
    second.restore(first.state())
    _evolve(second, 2, noise=0.0, seed=2)
    assert second.averaged.tolist() == whole.averaged.tolist()
    assert second.current.tolist() == whole.current.tolist()


def test_weights_of_functions() -> None:
    along, against = {"cold": 5.0, "hot": 900.0, "new": 10.0}, {"cold": 15.0, "hot": 1100.0}
    assert weighted_gain(along, against, score_exponent=1.0, offset=1.0) == pytest.approx(10 + 200 - 10)
    assert weighted_gain(along, against, score_exponent=0.0, offset=10.0) == pytest.approx(
        10 / 20 + 200 / 1010 - 10 / 15
    )
    assert weighted_gain({}, {}, score_exponent=0.5, offset=1.0) == 0


def _policy(metadata: dict[str, object]) -> NetworkWeights:
    kernels, biases = (np.zeros((3, 1), np.float32),), (np.zeros(1, np.float32),)
    return NetworkWeights(("x",), (np.array([0.5]),), kernels, biases, metadata)


def test_a_search_for_a_rule_starts_from_that_of_an_earlier_policy() -> None:
    rule = _Rule()
    assert cloned_parameters(rule, _policy({"rule": {"a": 0.25, "b": 0.5, "c": 1.0}})).tolist() == [0.25, 0.5, 1.0]
    assert cloned_parameters(rule, _policy({"method": "behavioral cloning"})).tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(PolicyError, match="they differ in c"):
        cloned_parameters(rule, _policy({"rule": {"a": 0.25, "b": 0.5}}))


def test_what_it_cannot_do_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"rollouts_per_module: expected an even number, .*, found 3"):
        ALGORITHM.build(_context(rollouts_per_module=3), AlgorithmConfigs())
    with pytest.raises(ConfigError, match="backend: expected 'auto', 'plugin' or 'channel', found 'development'"):
        ALGORITHM.build(_context(rollouts_per_module=2, backend="development"), AlgorithmConfigs())
    with pytest.raises(ConfigError, match=r"rollouts_per_module: expected at least 4 .*, found 2"):
        ALGORITHM.build(_context(rollouts_per_module=2), AlgorithmConfigs([ESConfig(optimizer="trust_region")]))
    with pytest.raises(ConfigError, match=r"es\.parameters: expected 'network' for inlining, which has no rule"):
        ALGORITHM.build(_context(rollouts_per_module=2), AlgorithmConfigs([ESConfig(parameters="rule")]))
