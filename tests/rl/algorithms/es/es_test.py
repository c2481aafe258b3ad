"""Evolution strategies over networks: ranks, gradients, pairs of rollouts, and a rule that is found."""

import types
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from compiler_opt.collect.groups import Attempt, Group
from compiler_opt.collect.rollout import Rollout, RolloutSettings
from compiler_opt.corpus.module import Module
from compiler_opt.errors import ConfigError
from compiler_opt.rl.algorithm import AlgorithmConfigs
from compiler_opt.rl.algorithms.es import ALGORITHM, ESConfig
from compiler_opt.rl.config import TrainingConfig
from compiler_opt.rl.training_context import TrainingContext
from compiler_opt.spaces.binary import BinaryPolicy
from compiler_opt.tensorflow_loading import load_tensorflow

load_tensorflow()

import tensorflow as tf  # noqa: E402

from compiler_opt.rl.algorithms.es.algorithm import AntitheticPairs, WeightSearch, centred_ranks  # noqa: E402
from compiler_opt.rl.algorithms.es.trust_region import TrustRegion  # noqa: E402
from compiler_opt.rl.checkpoints import Checkpoints  # noqa: E402
from tests.own_scores import OWN_SCORES  # noqa: E402
from tests.rl.algorithms.toy_decisions import HEADS, NETWORK, quality  # noqa: E402


def _search(name: str = "binary", **config: object) -> WeightSearch:
    settings = ESConfig(**{"noise": 0.1, "learning_rate": 0.05, **config})  # type: ignore[arg-type]
    return WeightSearch(HEADS[name](), "decision", NETWORK, settings, seed=1)


def _train(search: WeightSearch, name: str, iterations: int, rng: np.random.Generator) -> None:
    head = HEADS[name]()

    def gain(direction: np.ndarray) -> float:
        return quality(head, search.moved(direction)) - quality(head, search.moved(-direction))

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


@pytest.mark.parametrize(("name", "optimizer"), [*((name, "adam") for name in HEADS), ("binary", "trust_region")])
def test_it_finds_a_rule(name: str, optimizer: str) -> None:
    search = _search(name, optimizer=optimizer)
    _train(search, name, 25, np.random.default_rng(0))
    head = HEADS[name]()
    assert quality(head, search.average.weights()) > 0.85


@pytest.mark.parametrize("optimizer", ["plain", "momentum", "adam"])
def test_optimisers_follow_the_gradient(optimizer: str) -> None:
    search, rng = _search(optimizer=optimizer, momentum=0.5), np.random.default_rng(0)
    start = search.moved(np.zeros_like(search.direction(rng)))
    directions = np.stack([search.direction(rng), search.direction(rng)])
    # Ranks 1/2 and 1/6 - 1/2, see above.
    gradient = (0.5 * directions[0] - 1 / 6 * directions[1]) / (2 * 0.1)
    steps = {"plain": (1, 1), "momentum": (1, 1.5), "adam": (1, 1)}[optimizer]
    expected = np.zeros_like(gradient)
    for step in steps:
        search.update(directions, np.array([9.0, -1.0]))
        expected += 0.05 * step * (np.sign(gradient) if optimizer == "adam" else gradient)
    moved = search.moved(np.zeros_like(gradient)).kernels[0] - start.kernels[0]
    size = moved.size
    np.testing.assert_allclose(moved.reshape(-1), expected[:size], rtol=1e-2, atol=1e-4)


def test_without_gains_the_weights_stay() -> None:
    search, rng = _search(), np.random.default_rng(0)
    nothing = np.zeros_like(search.direction(rng))
    before = search.moved(nothing).kernels[0]
    directions = np.stack([search.direction(rng)] * 3)
    assert search.update(directions, np.zeros(3)) == {"gradient_norm": 0.0}
    assert search.update(directions[:0], np.zeros(0)) == {}
    np.testing.assert_array_equal(search.moved(nothing).kernels[0], before)


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
    before = search.moved(0 * search.direction(rng)).kernels[0]
    assert not AntitheticPairs(_context(rollouts_per_module=4), search, 1).has_probe
    search.update(np.stack([search.direction(rng) for _ in range(3)]), np.array([1.0, 2.0, -1.0]))
    pairs = AntitheticPairs(_context(rollouts_per_module=4), search, modules_per_direction=1)
    assert pairs.has_probe
    one, other = (list(pairs.policies(Module(name, "p", Path("/nowhere")), rng)) for name in "ab")
    assert one[:2] == other[:2] and set(one[2:]).isdisjoint(other[2:])
    now = search.moved(0 * pairs.directions[0]).kernels[0]
    further, back = (cast(BinaryPolicy, policy).weights.kernels[0] for policy in one[:2])
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
        results.append((search.moved(np.zeros_like(search.direction(rng))), search.average.weights()))
    for one, other in zip(*results, strict=True):
        for kernel, same in zip(one.kernels, other.kernels, strict=True):
            np.testing.assert_array_equal(kernel, same)


def _context(**config: object) -> TrainingContext:
    context = types.SimpleNamespace(
        config=TrainingConfig(**config),  # type: ignore[arg-type]
        problem=OWN_SCORES,
        rollout_settings=RolloutSettings,
    )
    return cast(TrainingContext, context)


def _group(module: str, scores: dict[int, float], policies: list) -> Group:
    attempts = [
        Attempt(policies[place], Rollout(module, "p", "policy", 0, None, score)) for place, score in scores.items()
    ]
    return Group(module, attempts, 1.0, None)


def test_pairs_of_rollouts_give_gains() -> None:
    search, rng = _search(), np.random.default_rng(0)
    pairs = AntitheticPairs(_context(rollouts_per_module=4), search, modules_per_direction=2)
    modules = [Module(name, "p", Path("/nowhere")) for name in "abc"]
    first, same, other = (list(pairs.policies(module, rng)) for module in modules)
    assert first == same and set(first).isdisjoint(other)
    assert len(pairs.directions) == 4
    middle = search.moved(0 * pairs.directions[0]).kernels[0]
    for policies, direction in ((first[:2], 0), (first[2:], 1), (other[:2], 2)):
        along, against = (cast(BinaryPolicy, policy).weights for policy in policies)
        np.testing.assert_array_equal(along.kernels[0], search.moved(pairs.directions[direction]).kernels[0])
        np.testing.assert_allclose(along.kernels[0] - middle, middle - against.kernels[0], atol=1e-6)
    groups = [
        _group("a", {0: 0.7, 1: 0.9, 2: 1.0, 3: 0.5}, first),
        # One rollout failed, and so its pair is left out.
        _group("b", {0: 1.0, 1: 1.0, 3: 0.5}, same),
        _group("c", {0: 0.9, 3: 0.2}, other),
    ]
    assert pairs.gains(groups) == {0: pytest.approx((0.2 + 0.0) / 2), 1: pytest.approx(-0.5)}
    assert pairs.gains([]) == {}


def test_what_it_cannot_do_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"rollouts_per_module: expected an even number, .*, found 3"):
        ALGORITHM.build(_context(rollouts_per_module=3), AlgorithmConfigs())
    with pytest.raises(ConfigError, match="backend: expected 'auto', 'plugin' or 'channel', found 'development'"):
        ALGORITHM.build(_context(rollouts_per_module=2, backend="development"), AlgorithmConfigs())
    with pytest.raises(ConfigError, match=r"rollouts_per_module: expected at least 4 .*, found 2"):
        ALGORITHM.build(_context(rollouts_per_module=2), AlgorithmConfigs([ESConfig(optimizer="trust_region")]))
