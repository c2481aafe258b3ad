"""Advantages against arithmetic, and their state across an interruption."""

from typing import Any

import numpy as np
import pytest

from compiler_opt.collect.advantages import AdvantagesConfig
from compiler_opt.collect.groups import Attempt, Group
from compiler_opt.collect.rollout import Rollout, Trajectory
from compiler_opt.llvm.object_file import ObjectSizes
from compiler_opt.llvm.remarks import CallSites
from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.policy import ConstantPolicy
from compiler_opt.problems import problem as problems
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


def _group_of(rollouts: list[Rollout], baseline: float = 100.0) -> Group:
    return Group("m", [Attempt(ConstantPolicy(0), rollout) for rollout in rollouts], baseline, {})


def test_the_reward_is_the_share_saved() -> None:
    np.testing.assert_allclose(_group({"f": 90}, {"f": 110}).rewards(_INLINING), [0.1, -0.1])


def test_module_credit_is_the_standardised_reward() -> None:
    (advantages,) = AdvantagesConfig(credit="module").build()([_group({"f": 90}, {"f": 100}, {"f": 110})], _INLINING)
    # Rewards 0.1, 0, -0.1: deviation sqrt(2/3) / 10.
    for values, expected, decisions in zip(advantages, [1.5**0.5, 0, -(1.5**0.5)], [2, 3, 4], strict=True):
        np.testing.assert_allclose(values, [expected] * decisions, rtol=1e-6, atol=1e-9)


def test_function_credit_has_unit_scale_over_the_iteration() -> None:
    groups = [_group({"f": 90}, {"f": 110}), _group({"f": 7, "g": 3}, {"f": 9})]
    advantages = AdvantagesConfig(module_weight=0.0).build()(groups, _INLINING)
    everything = np.concatenate([values for group in advantages for values in group])
    assert np.mean(everything**2) == pytest.approx(1, rel=1e-5)
    # f saves 10 against the mean in the first group's first rollout, log 11. In the second's it saves 1, and g costs
    # 1.5, which counts in full for each decision about g.
    assert advantages[0][0][0] / advantages[1][0][0] == pytest.approx(np.log(11) / -np.log(1.5), rel=1e-5)


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
