"""An iteration's rollouts by a pool that compiles nothing: policies, seeds and groups."""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from compiler_opt.collect.baseline import Baseline
from compiler_opt.collect.groups import (
    CollectionPolicy,
    CompileCosts,
    GroupCollection,
    RepeatedPolicy,
    RolloutBatch,
    Tagged,
    collect,
)
from compiler_opt.collect.rollout import FailureWatch, Rollout, RolloutSettings, check_failures
from compiler_opt.collect.trajectory import Trajectory
from compiler_opt.collect.workers import Job, WorkerPool
from compiler_opt.corpus.module import Module
from compiler_opt.errors import CorpusError
from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.policy import ConstantPolicy, Policy
from compiler_opt.tensor_spec import TensorSpec
from tests.own_scores import OWN_SCORES

_SPEC = TensorSpec("x", np.dtype("i8"), (1,))
_TRAJECTORY = Trajectory(Header((_SPEC,), _SPEC), bytes(8), np.zeros(1, np.int64), None, None)
_MODULES = [Module(name, "p", Path("/nowhere")) for name in ("small", "empty", "large", "broken", "fragile")]
_BASELINE = Baseline({"small": 1.0, "empty": 2.0, "large": 9.0, "broken": 4.0, "fragile": 3.0}, {"p": None}, {}, 0.0)


class _Pool:
    """`empty` has no decisions, `broken` always fails, and `fragile` under the policy `bad`.

    A measurement is 1, or what `scores` has for module and policy.
    """

    def __init__(self, scores: Mapping[tuple[str, str], float]) -> None:
        self.jobs: list[Job] = []
        self._scores = scores

    def rollouts(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Rollout]]:
        jobs = list(jobs)
        self.jobs += jobs
        # Results come in no particular order.
        for job in random.Random(0).sample(jobs, len(jobs)):
            name, policy = job.module.name, str(job.policy.name if job.policy is not None else None)
            failure = f"{name}: no luck" if name == "broken" or (name, policy) == ("fragile", "bad") else None
            trajectory = None if name == "empty" or failure else _TRAJECTORY
            measurement = None if failure else self._scores.get((name, policy), 1.0)
            yield job, Rollout(name, "p", policy, job.seed, trajectory, measurement, 1.0, 0.5, failure)


class _WithFollowUps(CollectionPolicy):
    """Two rollouts, and a random number of follow-ups."""

    settings = RolloutSettings()
    min_decided = 2

    def policies(self, module: Module, rng: np.random.Generator) -> Sequence[Policy]:
        return [ConstantPolicy(0, "good"), ConstantPolicy(0, "bad")]

    def follow_ups(self, rollouts: Sequence[Rollout], rng: np.random.Generator) -> Sequence[Tagged]:
        assert [rollout.policy for rollout in rollouts] == ["good", "bad"]
        return [Tagged(ConstantPolicy(0, str(number)), tag=number) for number in range(rng.integers(1, 4))]


def _collect(
    policy: CollectionPolicy, seed: int = 1, scores: Mapping[tuple[str, str], float] | None = None
) -> tuple[RolloutBatch, list[Job]]:
    pool = _Pool(scores or {})
    collection = GroupCollection(_MODULES, policy, _BASELINE, OWN_SCORES, seed=(seed, 0))
    collect(collection, cast(WorkerPool, pool), CompileCosts(_BASELINE.scores))
    return collection.batch(), pool.jobs


def test_a_group_has_the_rollouts_with_decisions_in_the_order_of_seeds() -> None:
    batch, jobs = _collect(RepeatedPolicy(ConstantPolicy(0, "good"), 3, RolloutSettings()))
    # The modules with the largest scores come first.
    assert [group.module for group in batch.groups] == ["large", "fragile", "small"]
    assert [job.module.name for job in jobs[::3]] == ["large", "broken", "fragile", "empty", "small"]
    for group in batch.groups:
        seeds = [rollout.seed for rollout in group.rollouts]
        assert len(set(seeds)) == 3 and seeds == sorted(seeds)
    assert len({job.seed for job in jobs}) == 15
    assert (batch.undecided, batch.failed_modules) == (["empty"], {"broken": "broken: no luck"})
    assert (batch.failures, batch.num_compiles, batch.cpu_s) == (["broken: no luck"] * 3, 15, 22.5)


def test_the_same_seed_collects_the_same() -> None:
    (one, _), (same, _), (other, _) = (_collect(_WithFollowUps(), seed) for seed in (1, 1, 2))
    assert [len(group.follow_ups) for group in one.groups] == [len(group.follow_ups) for group in same.groups]
    seeds = [[rollout.seed for group in batch.groups for rollout in group.rollouts] for batch in (one, same, other)]
    assert seeds[0] == seeds[1] != seeds[2]


def test_follow_ups_depend_on_the_first_rollouts_and_stay_apart() -> None:
    batch, jobs = _collect(_WithFollowUps())
    # Only one of two rollouts of `fragile` succeeds, which is too few.
    assert [group.module for group in batch.groups] == ["large", "small"]
    for group in batch.groups:
        assert [attempt.policy.name for attempt in group.attempts] == ["good", "bad"]
        assert [attempt.policy.name for attempt in group.follow_ups] == ["0", "1", "2"][: len(group.follow_ups)]
        assert [attempt.tag for attempt in group.attempts] == [None, None]
        assert [attempt.tag for attempt in group.follow_ups] == list(range(len(group.follow_ups)))
        assert all(attempt.rollout.policy == attempt.policy.name for attempt in (*group.attempts, *group.follow_ups))
    assert list(batch.failed_modules) == ["broken"]
    assert batch.num_compiles == len(jobs) == len({job.seed for job in jobs}) > 15


class _TwoOfWhichOneFails(_WithFollowUps):
    compares_failures = True

    def follow_ups(self, rollouts: Sequence[Rollout], rng: np.random.Generator) -> Sequence[Tagged]:
        return []


def test_the_only_success_is_compared_with_failures_or_named() -> None:
    batch, _ = _collect(_TwoOfWhichOneFails())
    assert [(g.module, len(g.attempts), g.num_failures) for g in batch.groups] == [
        ("large", 2, 0),
        ("fragile", 1, 1),
        ("small", 2, 0),
    ]
    assert batch.too_few == []
    batch, _ = _collect(_WithFollowUps())
    assert batch.too_few == ["fragile: 1 of 2 rollouts are left, of at least 2"]


def test_a_score_that_is_not_finite_is_a_failure() -> None:
    scores = {("large", "bad"): float("nan"), ("small", "good"): float("inf"), ("small", "bad"): float("nan")}
    batch, _ = _collect(_TwoOfWhichOneFails(), scores=scores)
    assert [(g.module, g.num_failures) for g in batch.groups] == [("large", 1), ("fragile", 1)]
    assert [attempt.policy.name for attempt in batch.groups[0].attempts] == ["good"]
    assert batch.failed_modules["small"] == "small: expected a finite score, found inf"
    assert "large: expected a finite score, found nan" in batch.failures
    check_failures(batch.failed_modules, 4)


def test_a_run_stops_when_most_modules_fail() -> None:
    batch, _ = _collect(_WithFollowUps())
    check_failures(batch.failed_modules, 2)
    with pytest.raises(CorpusError, match="1 of 1 modules failed to compile; the first: broken: no luck"):
        check_failures(batch.failed_modules, 1)


def test_with_few_modules_a_run_stops_early_only_if_all_fail() -> None:
    watch = FailureWatch(3)
    watch.add("a", "a: no luck")
    watch.add("b", "b: no luck")
    with pytest.raises(CorpusError, match="3 of 3 modules failed to compile; the first: a: no luck"):
        watch.add("c", "c: no luck")
