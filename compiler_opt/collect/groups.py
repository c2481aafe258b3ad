"""Collects the rollouts of one iteration: several of each module, for all algorithms.

Legend: G rollouts of a group.

    for each module: compile it once for each of collection_policy.policies(module)
    for each module: compile it once for each of collection_policy.follow_ups(those rollouts)
    a rollout without a finite score counts as a failure
"""

import abc
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Generic

import numpy as np
from tqdm import tqdm

from compiler_opt.collect.baseline import Baseline
from compiler_opt.collect.rollout import Rollout, RolloutSettings, Trajectory
from compiler_opt.collect.workers import Job, WorkerPool
from compiler_opt.corpus.module import Module
from compiler_opt.policies.policy import Policy
from compiler_opt.problems.problem import Context, Measurement, Problem, reward


class CollectionPolicy(abc.ABC):
    """Decides which policies roll out a module."""

    settings: RolloutSettings
    """Settings of every rollout."""

    min_decided: int = 1
    """Rollouts with decisions that a module needs to become a group."""

    compares_failures: bool = False
    """Whether failed rollouts count among these."""

    @abc.abstractmethod
    def policies(self, module: Module, rng: np.random.Generator) -> Sequence[Policy]:
        """The policy of each rollout of a module."""

    def follow_ups(self, rollouts: Sequence[Rollout[object]], rng: np.random.Generator) -> Sequence[Policy]:
        """The policy of each further rollout of a module, given the first ones, including failures."""
        del rollouts, rng
        return ()


class RepeatedPolicy(CollectionPolicy):
    """The same sampling policy for all rollouts of a module, which are compared with each other."""

    compares_failures = True

    def __init__(self, policy: Policy, rollouts_per_module: int, settings: RolloutSettings, min_decided: int = 2):
        self.settings = settings
        self.min_decided = min_decided
        self._policies = (policy,) * rollouts_per_module

    def policies(self, module: Module, rng: np.random.Generator) -> Sequence[Policy]:
        del module, rng
        return self._policies


@dataclasses.dataclass(frozen=True)
class Attempt(Generic[Measurement]):
    """A rollout and the policy that decided it."""

    policy: Policy
    rollout: Rollout[Measurement]


@dataclasses.dataclass(frozen=True)
class Group(Generic[Measurement, Context]):
    """Rollouts of one module.

    Attributes:
      module: the module's name.
      attempts: G rollouts with decisions, none of which failed.
      baseline: the default's score of the module.
      context: of the module's project, for scoring.
      follow_ups: further rollouts that depended on these; some may have failed.
      num_failures: rollouts beside `attempts` that failed, and not for lack of memory or disk.
    """

    module: str
    attempts: Sequence[Attempt[Measurement]]
    baseline: float
    context: Context
    follow_ups: Sequence[Attempt[Measurement]] = ()
    num_failures: int = 0

    @property
    def project(self) -> str:
        """The name of the module's project."""
        return self.attempts[0].rollout.project

    @property
    def rollouts(self) -> list[Rollout[Measurement]]:
        return [attempt.rollout for attempt in self.attempts]

    @property
    def measurements(self) -> list[Measurement]:
        return [rollout.measurement for rollout in self.rollouts if rollout.measurement is not None]

    def rewards(self, problem: Problem[Measurement, Context]) -> np.ndarray:
        """`[G]` float64."""
        scores = [problem.score(measurement, self.context) for measurement in self.measurements]
        return np.array([reward(score, self.baseline) for score in scores])

    def trajectories(self) -> list[Trajectory]:
        return [rollout.trajectory for rollout in self.rollouts if rollout.trajectory is not None]


@dataclasses.dataclass(frozen=True)
class RolloutBatch(Generic[Measurement, Context]):
    """The rollouts of one iteration.

    Attributes:
      groups: one for each module to learn from.
      undecided: modules without decisions.
      too_few: one line for each module with decisions that is left out for lack of rollouts to compare them with.
      failures: one line for each rollout that failed.
      failed_modules: modules whose rollouts all failed, with the first reason.
      num_compiles: number of rollouts, including failures.
      cpu_s: CPU seconds of compilers and workers.
    """

    groups: Sequence[Group[Measurement, Context]]
    undecided: Sequence[str]
    too_few: Sequence[str]
    failures: Sequence[str]
    failed_modules: Mapping[str, str]
    num_compiles: int
    cpu_s: float


def collect_groups(
    modules: Sequence[Module],
    collection_policy: CollectionPolicy,
    baseline: Baseline[Context],
    pool: WorkerPool[Measurement],
    *,
    seed: tuple[int, ...],
    description: str = "",
) -> RolloutBatch[Measurement, Context]:
    """Rolls out every module several times, under the policies of `collection_policy`.

    The largest modules, by the baseline, are compiled first, so that no worker idles at the end. All rollouts and
    `collection_policy` are seeded by `seed`; `description` is the label of the progress bar.
    """
    rng = np.random.default_rng(seed)
    settings = collection_policy.settings
    by_size = sorted(modules, key=lambda module: -baseline.scores[module.name])
    with tqdm(total=0, desc=description, unit="compile", leave=False, disable=None) as progress:

        def roll_out(
            policies: Sequence[Sequence[Policy]], num_before: Sequence[int]
        ) -> list[list[Attempt[Measurement]]]:
            """Rolls out each module under its policies; `num_before` are its earlier rollouts, for the seeds."""
            jobs = []
            for index, (module, own) in enumerate(zip(by_size, policies, strict=True)):
                seeds = _seeds((*seed, index), num_before[index], len(own))
                jobs += [Job(module, policy, each, settings) for policy, each in zip(own, seeds, strict=True)]
            progress.total = (progress.total or 0) + len(jobs)
            done = rollouts_in_order(jobs, pool, progress)
            rollouts = iter([_scored(rollout, pool.problem, baseline) for rollout in done])
            return [[Attempt(policy, next(rollouts)) for policy in own] for own in policies]

        firsts = roll_out([collection_policy.policies(module, rng) for module in by_size], [0] * len(by_size))
        laters = roll_out(
            [collection_policy.follow_ups([attempt.rollout for attempt in first], rng) for first in firsts],
            [len(first) for first in firsts],
        )
    groups: list[Group[Measurement, Context]] = []
    undecided, too_few, failed_modules = [], [], {}
    needed = collection_policy.min_decided
    for module, first, later in zip(by_size, firsts, laters, strict=True):
        good = [attempt for attempt in first if attempt.rollout.failure is None]
        decided = [attempt for attempt in good if attempt.rollout.trajectory is not None]
        # A policy that makes the compiler fail is to blame for it; a machine without memory is not.
        num_failures = sum(each.rollout.failure is not None and not each.rollout.is_transient for each in first)
        num_compared = len(decided) + (num_failures if collection_policy.compares_failures else 0)
        if decided and num_compared >= needed:
            context, score = baseline.contexts[module.project], baseline.scores[module.name]
            groups.append(Group(module.name, decided, score, context, later, num_failures))
        elif decided:
            too_few.append(f"{module.name}: {len(decided)} of {len(first)} rollouts are left, of at least {needed}")
        elif good:
            undecided.append(module.name)
        else:
            failed_modules[module.name] = str(first[0].rollout.failure)
    everything = [attempt.rollout for attempts in (*firsts, *laters) for attempt in attempts]
    return RolloutBatch(
        groups,
        undecided,
        too_few,
        [rollout.failure for rollout in everything if rollout.failure is not None],
        failed_modules,
        len(everything),
        sum(rollout.cpu_s + rollout.host_cpu_s for rollout in everything),
    )


def rollouts_in_order(jobs: Sequence[Job], pool: WorkerPool[Measurement], progress: tqdm) -> list[Rollout[Measurement]]:
    """Rollouts in the order of the jobs: learning must not depend on the order in which they are done."""
    done = {}
    for job, rollout in pool.rollouts(jobs):
        done[id(job)] = rollout
        progress.update()
    return [done[id(job)] for job in jobs]


def _scored(
    rollout: Rollout[Measurement], problem: Problem[Measurement, Context], baseline: Baseline[Context]
) -> Rollout[Measurement]:
    """The rollout; a failure if its score is not a finite number, from which nothing could be learned."""
    if rollout.measurement is None:
        return rollout
    score = problem.score(rollout.measurement, baseline.contexts[rollout.project])
    if math.isfinite(score):
        return rollout
    failure = f"{rollout.module}: expected a finite score, found {score}"
    return dataclasses.replace(rollout, trajectory=None, measurement=None, failure=failure)


def _seeds(entropy: tuple[int, ...], start: int, count: int) -> list[int]:
    """The seeds of a module's rollouts, ascending."""
    sequences = [np.random.SeedSequence((*entropy, number)) for number in range(start, start + count)]
    return sorted(int(sequence.generate_state(1, np.uint64)[0]) for sequence in sequences)
