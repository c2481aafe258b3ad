"""Batches of sampled decisions: which of an iteration they hold."""

import dataclasses
import types
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest

from compiler_opt.tensorflow_loading import load_tensorflow

load_tensorflow()
from compiler_opt import problem as problems  # noqa: E402
from compiler_opt.collect.advantages import Advantages  # noqa: E402
from compiler_opt.collect.groups import Attempt, Group  # noqa: E402
from compiler_opt.collect.rollout import Rollout  # noqa: E402
from compiler_opt.collect.trajectory import Trajectory  # noqa: E402
from compiler_opt.llvm.object_file import ObjectSizes  # noqa: E402
from compiler_opt.llvm.training_log import Header  # noqa: E402
from compiler_opt.policies.policy import ConstantPolicy  # noqa: E402
from compiler_opt.policies.weights import NetworkConfig  # noqa: E402
from compiler_opt.rl.sampled_decisions import Batch, DecisionSampler  # noqa: E402
from compiler_opt.rl.time_profile import Stopwatch  # noqa: E402
from compiler_opt.rl.training_run import TrainingRun  # noqa: E402
from compiler_opt.spaces.heads.categorical import BinaryHead  # noqa: E402
from compiler_opt.spaces.heads.networks import FIRST, RANKS  # noqa: E402
from compiler_opt.tensor_spec import TensorSpec  # noqa: E402

_HEADER = Header((TensorSpec("x", np.dtype("i8"), (1,)),), TensorSpec("y", np.dtype("i8"), (1,)))
_LENGTHS = (5, 1, 30, 4)
"""Decisions of each rollout; all of them are numbered from 0."""
_FEED_FORWARD, _RECURRENT = NetworkConfig(), NetworkConfig(lstm_units=2)


class _Numbers(Advantages):
    """The advantage of a decision is its number."""

    def __call__(self, groups: Sequence[Group[Any, Any]], problem: Any) -> list[list[np.ndarray]]:
        trajectories = ((trajectory.features()["x"].ravel() for trajectory in group.trajectories()) for group in groups)
        return [[numbers.astype(np.float32) for numbers in group] for group in trajectories]


def _groups() -> list[Group]:
    rollouts = []
    for numbers in np.split(np.arange(sum(_LENGTHS)), np.cumsum(_LENGTHS)[:-1]):
        trajectory = Trajectory(_HEADER, numbers.tobytes(), numbers % 2, -numbers.astype(np.float32), None)
        rollouts.append(Rollout("m", "p", "policy", 0, trajectory, ObjectSizes(9, {}, {"f": 9}, {}), 0.0, 0.0, None))
    attempts = [Attempt(ConstantPolicy(0), rollout) for rollout in rollouts]
    return [Group("m", attempts[:2], 10.0, {}), Group("m", attempts[2:], 10.0, {})]


def _batch(max_decisions: int | None, seed: int = 1, network: NetworkConfig = _FEED_FORWARD) -> Batch:
    head = BinaryHead({"x": np.arange(float(sum(_LENGTHS)))})
    run = types.SimpleNamespace(problem=problems.load("inlining"), head=head, stopwatch=Stopwatch(), network=network)
    sampler = DecisionSampler(cast(TrainingRun, run), _Numbers(), project_balance=0.0)
    return sampler.batch(_groups(), np.random.default_rng(seed), max_decisions)


@pytest.mark.parametrize("max_decisions", [None, 40, 1000])
def test_all_decisions(max_decisions: int | None) -> None:
    batch = _batch(max_decisions)
    np.testing.assert_array_equal(batch.advantages, np.arange(40))
    np.testing.assert_array_equal(np.flatnonzero(batch.is_last), np.cumsum(_LENGTHS) - 1)


def test_a_bounded_number_of_decisions_each_with_its_own_columns() -> None:
    everything, batch = _batch(None), _batch(12)
    numbers = batch.advantages.astype(int)
    assert len(batch) == 12 and (np.diff(numbers) > 0).all()
    expected = everything.take(numbers)
    for field in dataclasses.fields(Batch):
        if field.name not in ("observations", "is_last"):
            np.testing.assert_array_equal(getattr(batch, field.name), getattr(expected, field.name))
    np.testing.assert_allclose(batch.observations[RANKS][:, 0], (numbers + 1) / 40)
    # The last that was drawn of each rollout.
    rollouts = np.searchsorted(np.cumsum(_LENGTHS), numbers, side="right")
    np.testing.assert_array_equal(batch.is_last, np.append(np.diff(rollouts) > 0, True))


@pytest.mark.ci
def test_every_decision_is_as_likely() -> None:
    counts = np.zeros(40)
    for seed in range(400):
        counts[_batch(10, seed).advantages.astype(int)] += 1
    # 100 each in the mean, with a standard deviation of 9.
    assert counts.sum() == 4000 and counts.min() > 60 and counts.max() < 140


def test_a_recurrent_network_gets_rollouts_from_their_beginning() -> None:
    starts = np.cumsum((0, *_LENGTHS[:-1]))
    everything = _batch(None, network=_RECURRENT)
    np.testing.assert_array_equal(np.flatnonzero(everything.observations[FIRST]), starts)
    assert FIRST not in _batch(None).observations
    drawn = set()
    for seed in range(30):
        batch = _batch(12, seed, _RECURRENT)
        numbers = batch.advantages.astype(int)
        assert len(batch) == 12 and (np.diff(numbers) > 0).all()
        first = batch.observations[FIRST] > 0
        assert first[0] and set(numbers[first]) <= set(starts)
        # All decisions between two beginnings follow each other, and at most one rollout lacks its end.
        assert (np.diff(numbers)[~first[1:]] == 1).all()
        np.testing.assert_array_equal(batch.is_last, np.append(first[1:], True))
        assert sum(number + 1 not in starts and number != 39 for number in numbers[batch.is_last]) <= 1
        drawn |= set(numbers[first])
    assert drawn == set(starts)
    assert list(Batch.empty(BinaryHead({"x": np.arange(4.0)}), _RECURRENT).rows()) == list(everything.rows())
