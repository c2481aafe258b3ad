"""Advantages against arithmetic, and their state across an interruption."""

from typing import Any

import numpy as np
import pytest

from compiler_opt import problem as problems
from compiler_opt.collect.advantages import AdvantagesConfig
from compiler_opt.collect.groups import Attempt, Group
from compiler_opt.collect.rollout import Rollout
from compiler_opt.collect.trajectory import Trajectory
from compiler_opt.llvm.object_file import ObjectSizes
from compiler_opt.llvm.remarks import CallSites
from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.policy import ConstantPolicy
from compiler_opt.tensor_spec import TensorSpec

_HEADER = Header((TensorSpec("x", np.dtype("i8"), (1,)),), TensorSpec("y", np.dtype("i8"), (1,)))
_INLINING = problems.load("inlining")


def _rollout(functions: dict[str, int], decisions: int, seed: int) -> Rollout:
    sites = CallSites(
        ("f", "g"), np.zeros(decisions, np.int32), np.ones(decisions, np.int32), np.zeros(decisions, bool)
    )
    trajectory = Trajectory(_HEADER, bytes(8 * decisions), np.zeros(decisions, np.int64), None, sites)
    sizes = ObjectSizes(sum(functions.values()), {}, functions, {})
    return Rollout("m", "p", "policy", seed, trajectory, sizes, 0.0, 0.0, None)


def _group(*sizes: dict[str, int], baseline: float = 100.0) -> Group:
    return _group_of([_rollout(size, 2 + index, index) for index, size in enumerate(sizes)], baseline)


def _group_of(rollouts: list[Rollout], baseline: float = 100.0, num_failures: int = 0) -> Group:
    attempts = [Attempt(ConstantPolicy(0), rollout) for rollout in rollouts]
    return Group("m", attempts, baseline, {}, num_failures=num_failures)


def test_the_reward_is_the_share_saved() -> None:
    np.testing.assert_allclose(_group({"f": 90}, {"f": 110}).rewards(_INLINING), [0.1, -0.1])


def test_module_credit_is_the_standardised_reward() -> None:
    (advantages,) = AdvantagesConfig(credit="module").build()([_group({"f": 90}, {"f": 100}, {"f": 110})], _INLINING)
    # Rewards 0.1, 0, -0.1: deviation sqrt(2/3) / 10.
    for values, expected, decisions in zip(advantages, [1.5**0.5, 0, -(1.5**0.5)], [2, 3, 4], strict=True):
        np.testing.assert_allclose(values, [expected] * decisions, rtol=1e-6, atol=1e-9)


def test_function_credit_has_unit_scale_over_the_iteration() -> None:
    groups = [_group({"f": 90}, {"f": 110}), _group({"f": 7, "g": 3}, {"f": 9})]
    advantages = AdvantagesConfig(module_weight=0.0, squash="log").build()(groups, _INLINING)
    everything = np.concatenate([values for group in advantages for values in group])
    assert np.mean(everything**2) == pytest.approx(1, rel=1e-5)
    # f saves 10 against the mean in the first group's first rollout, log 11. In the second's it saves 1, and g costs
    # 1.5, which counts in full for each decision about g.
    assert advantages[0][0][0] / advantages[1][0][0] == pytest.approx(np.log(11) / -np.log(1.5), rel=1e-5)


def test_the_logarithm_reverses_a_preference_that_clipping_keeps() -> None:
    # Of ten rollouts of a module one saves 100 bytes and nine cost 10: together 10 bytes are saved.
    credits = np.array([100.0] + [-10.0] * 9)
    means = {
        squash: np.mean(AdvantagesConfig(squash=squash, clip_quantile=1.0).squashed(credits))
        for squash in ("none", "clip", "log")
    }
    assert means["none"] == means["clip"] == pytest.approx(1.0)
    assert means["log"] < 0
    assert means["log"] == pytest.approx((np.log(101) - 9 * np.log(11)) / 10)


def test_clipping_bounds_the_largest_credits_by_a_quantile_of_those_that_are_not_zero() -> None:
    # Sizes 1, 2, 4, 8 and 1000: four fifths of them are at most 8.
    credits = np.array([0, 1, -2, 0, 4, 8, -1000, 0], float)
    np.testing.assert_array_equal(AdvantagesConfig(clip_quantile=0.8).squashed(credits), [0, 1, -2, 0, 4, 8, -8, 0])
    np.testing.assert_array_equal(AdvantagesConfig().squashed(np.zeros(3)), np.zeros(3))


def test_a_failure_makes_the_others_look_better() -> None:
    rollouts = _group({"f": 90}, {"f": 110}).rollouts
    config = AdvantagesConfig(credit="module", failure_penalty=1.0)
    (advantages,) = config.build()([_group_of(rollouts, num_failures=1)], _INLINING)
    # Rewards 0.1, -0.1 and, of the failure, -1: mean -1/3, squared differences 0.188, 0.054 and 0.444.
    deviation = ((0.1 + 1 / 3) ** 2 / 3 + (-0.1 + 1 / 3) ** 2 / 3 + (2 / 3) ** 2 / 3) ** 0.5
    np.testing.assert_allclose(advantages[0], [(0.1 + 1 / 3) / deviation] * 2, rtol=1e-6)
    np.testing.assert_allclose(advantages[1], [(-0.1 + 1 / 3) / deviation] * 3, rtol=1e-6)


def test_the_only_one_that_did_not_fail_has_an_advantage() -> None:
    group = _group_of(_group({"f": 100}).rollouts, num_failures=3)
    (advantages,) = AdvantagesConfig(module_weight=0.5).build()([group], _INLINING)
    # Rewards 0 and three times -1: mean -3/4, deviation sqrt(3) / 4; alone, it has no credit by function.
    np.testing.assert_allclose(advantages[0], [0.5 * 3**0.5] * 2, rtol=1e-6)


def test_without_call_sites_credit_falls_back_to_the_module() -> None:
    group = _group({"f": 90}, {"f": 110})
    bare: list[Rollout] = [
        Rollout(**{**vars(rollout), "trajectory": Trajectory(_HEADER, bytes(16), np.zeros(2, np.int64), None, None)})
        for rollout in group.rollouts
    ]
    (advantages,) = AdvantagesConfig().build()([_group_of(bare)], _INLINING)
    np.testing.assert_allclose(advantages, [[1, 1], [-1, -1]], rtol=1e-6)


def test_all_alike_is_no_advantage() -> None:
    (advantages,) = AdvantagesConfig().build()([_group({"f": 90}, {"f": 90})], _INLINING)
    assert all((values == 0).all() for values in advantages)


def test_the_moving_average_moves_and_survives() -> None:
    first = AdvantagesConfig("moving_average", decay=0.5).build()
    (advantages,) = first([_group({"f": 80})], _INLINING)
    np.testing.assert_allclose(advantages[0], [0.2, 0.2], rtol=1e-6)  # 1 - 80 / 100
    state: dict[str, Any] = first.state()
    second = AdvantagesConfig("moving_average", decay=0.5).build()
    second.restore(state)
    (advantages,) = second([_group({"f": 81})], _INLINING)
    np.testing.assert_allclose(advantages[0], [0.1, 0.1], rtol=1e-5)  # the average is 90 by now
    second([_group_of(_group({"f": 85}).rollouts, num_failures=1)], _INLINING)
    # (90 + 81) / 2, half-way to 85, then half-way to the failure's 100 + 100.
    assert second.state()["average"]["m"] == pytest.approx(((85.5 + 85) / 2 + 200) / 2)
