"""Collects the rollouts of one iteration: several of each module, for all algorithms.

Legend: G rollouts of a group.

    for each module: compile it once for each of collection_policy.policies(module)
    for each module: compile it once for each of collection_policy.follow_ups(those rollouts)
    a rollout without a finite score counts as a failure
"""

import abc
import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Generic

import numpy as np
from tqdm import tqdm

from compiler_opt.collect.baseline import Baseline
from compiler_opt.collect.rollout import Rollout, RolloutSettings
from compiler_opt.collect.trajectory import Trajectory
from compiler_opt.collect.workers import Job, WorkerPool
from compiler_opt.corpus.module import Module
from compiler_opt.objectives.objective import Context, Measurement
from compiler_opt.policies.policy import Policy
from compiler_opt.problem import Problem, reward
from compiler_opt.progress_bar import progress_bar


@dataclasses.dataclass(frozen=True)
class Tagged:
    """A policy to roll out, and a tag by which an algorithm knows its attempts again."""

    policy: Policy
    tag: Any


class CollectionPolicy(abc.ABC):
    """Decides which policies roll out a module."""

    settings: RolloutSettings
    """Settings of every rollout."""

    min_decided: int = 1
    """Rollouts with decisions that a module needs to become a group."""

    compares_failures: bool = False
    """Whether failed rollouts count among these."""

    @abc.abstractmethod
    def policies(self, module: Module, rng: np.random.Generator) -> Sequence[Policy | Tagged]:
        """The policy of each rollout of a module."""

    def follow_ups(self, rollouts: Sequence[Rollout[object]], rng: np.random.Generator) -> Sequence[Policy | Tagged]:
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
    """A rollout, the policy that decided it, and the tag of that policy, if any."""

    policy: Policy
    rollout: Rollout[Measurement]
    tag: Any = None


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
      compile_cpu_s: CPU seconds of the compilers.
      decide_cpu_s: CPU seconds of the workers, for decisions and logs.
      read_cpu_s: CPU seconds of the workers, for reading objects.
      cut: modules whose rollouts were not awaited.
    """

    groups: Sequence[Group[Measurement, Context]]
    undecided: Sequence[str]
    too_few: Sequence[str]
    failures: Sequence[str]
    failed_modules: Mapping[str, str]
    num_compiles: int
    compile_cpu_s: float
    decide_cpu_s: float
    read_cpu_s: float
    cut: Sequence[str] = ()

    @property
    def cpu_s(self) -> float:
        """CPU seconds of compilers and workers."""
        return self.compile_cpu_s + self.decide_cpu_s + self.read_cpu_s


class GroupCollection(Generic[Measurement, Context]):
    """The rollouts of one iteration, as they come in.

    collection = GroupCollection(modules, collection_policy, baseline, problem, seed=seed)
    while not collection.is_complete:
        for job, rollout in pool.rollouts(collection.next_jobs()):
            collection.add(job, rollout)
    batch = collection.batch()

    The result depends on neither the order of the jobs nor that of the rollouts.
    """

    def __init__(
        self,
        modules: Sequence[Module],
        collection_policy: CollectionPolicy,
        baseline: Baseline[Context],
        problem: Problem[Measurement, Context],
        *,
        seed: tuple[int, ...],
        indispensable: Collection[str] = (),
    ):
        """`seed` is that of all rollouts and of `collection_policy`; `indispensable` modules cannot be cut."""
        self._modules = sorted(modules, key=lambda module: -baseline.scores[module.name])
        self._policy = collection_policy
        self._baseline = baseline
        self._problem = problem
        self._seed = seed
        self._indispensable = frozenset(indispensable)
        self._rng = np.random.default_rng(seed)
        self._tags: dict[int, Any] = {}
        self._firsts = [
            self._jobs(index, collection_policy.policies(module, self._rng), 0)
            for index, module in enumerate(self._modules)
        ]
        self._later: list[list[Job]] | None = None
        self._rollouts: dict[int, Rollout[Measurement]] = {}
        self._missing = [len(jobs) for jobs in self._firsts]
        self._index = {id(job): index for index, jobs in enumerate(self._firsts) for job in jobs}
        self._cut: set[int] = set()
        self._next = [job for jobs in self._firsts for job in jobs]
        if not self._next:
            self._follow_up()

    def next_jobs(self, costs: "CompileCosts | None" = None) -> list[Job]:
        """Jobs that can be done now and were not returned before: the longest first, by `costs` or the baseline."""
        jobs, self._next = self._next, []
        return jobs if costs is None else sorted(jobs, key=lambda job: -costs.seconds(job.module.name))

    def add(self, job: Job, rollout: Rollout[Measurement]) -> None:
        """Adds the result of a job; nothing if its module was cut."""
        index = self._index[id(job)]
        if index in self._cut:
            return
        self._rollouts[id(job)] = _scored(rollout, self._problem, self._baseline)
        self._missing[index] -= 1
        if self._later is None and not any(self._missing):
            self._follow_up()

    @property
    def is_complete(self) -> bool:
        """Whether every rollout is there, of all modules but those that were cut."""
        return self._later is not None and not any(self._missing)

    def cut(self, max_modules: int) -> bool:
        """Gives up the modules whose rollouts are not there, unless they are more, or one of them is indispensable."""
        late = [index for index, count in enumerate(self._missing) if count]
        if len(late) > max_modules or any(self._modules[index].name in self._indispensable for index in late):
            return False
        for index in late:
            self._cut.add(index)
            self._missing[index] = 0
        if self._later is None:
            self._follow_up()
        return True

    def batch(self) -> RolloutBatch[Measurement, Context]:
        """What the rollouts of a complete iteration say."""
        groups: list[Group[Measurement, Context]] = []
        undecided, too_few, failed_modules = [], [], {}
        baseline, needed = self._baseline, self._policy.min_decided
        assert self._later is not None
        kept = [index for index in range(len(self._modules)) if index not in self._cut]
        firsts, laters = ([self._attempts(jobs[index]) for index in kept] for jobs in (self._firsts, self._later))
        for index, first, later in zip(kept, firsts, laters, strict=True):
            module = self._modules[index]
            good = [attempt for attempt in first if attempt.rollout.failure is None]
            decided = [attempt for attempt in good if attempt.rollout.trajectory is not None]
            # A policy that makes the compiler fail is to blame for it; a machine without memory is not.
            num_failures = sum(each.rollout.failure is not None and not each.rollout.is_transient for each in first)
            num_compared = len(decided) + (num_failures if self._policy.compares_failures else 0)
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
            len(self._rollouts),
            sum(rollout.cpu_s for rollout in self._rollouts.values()),
            sum(rollout.host_cpu_s - rollout.read_cpu_s for rollout in self._rollouts.values()),
            sum(rollout.read_cpu_s for rollout in self._rollouts.values()),
            [self._modules[index].name for index in sorted(self._cut)],
        )

    def _follow_up(self) -> None:
        """Makes the jobs that depend on the first rollouts of their module."""
        self._later = []
        for index, jobs in enumerate(self._firsts):
            policies: Sequence[Policy | Tagged] = ()
            if index not in self._cut:
                rollouts = [self._rollouts[id(job)] for job in jobs]
                policies = self._policy.follow_ups(rollouts, self._rng)
            later = self._jobs(index, policies, len(jobs))
            self._later.append(later)
            self._missing[index] = len(later)
            self._index |= {id(job): index for job in later}
            self._next += later

    def _jobs(self, index: int, policies: Sequence[Policy | Tagged], num_before: int) -> list[Job]:
        """A job for each policy; `num_before` are the module's earlier ones, for the seeds."""
        seeds = _seeds((*self._seed, index), num_before, len(policies))
        module, settings = self._modules[index], self._policy.settings
        jobs = []
        for each, seed in zip(policies, seeds, strict=True):
            tagged = each if isinstance(each, Tagged) else Tagged(each, None)
            jobs.append(Job(module, tagged.policy, seed, settings))
            self._tags[id(jobs[-1])] = tagged.tag
        return jobs

    def _attempts(self, jobs: Sequence[Job]) -> list[Attempt[Measurement]]:
        found = []
        for job in jobs:
            assert job.policy is not None
            found.append(Attempt(job.policy, self._rollouts[id(job)], self._tags[id(job)]))
        return found


class CompileCosts:
    """Seconds that a compilation of each module takes, learned from rollouts; before, in proportion to its score."""

    def __init__(self, scores: Mapping[str, float]):
        """`scores`: the default's, by module."""
        self._scores = scores
        self._seconds: dict[str, float] = {}
        self._total_s = self._total_score = 0.0

    def add(self, rollout: Rollout[object]) -> None:
        """Learns from a rollout: the latest ones count most."""
        seconds = rollout.cpu_s + rollout.host_cpu_s
        before = self._seconds.get(rollout.module, seconds)
        self._seconds[rollout.module] = (before + seconds) / 2
        self._total_s += seconds
        self._total_score += self._scores.get(rollout.module, 0.0)

    def seconds(self, module: str) -> float:
        """What the next compilation of a module may take."""
        if module in self._seconds:
            return self._seconds[module]
        return self._scores.get(module, 0.0) * (self._total_s / self._total_score if self._total_score else 1.0)


def collect(
    collection: GroupCollection[Measurement, Context],
    pool: WorkerPool[Measurement],
    costs: CompileCosts,
    description: str = "",
) -> None:
    """Does all jobs of a collection, the longest first, and shows a progress bar."""
    with progress_bar(total=0, description=description, unit="compile", leave=False) as progress:
        while not collection.is_complete:
            jobs = collection.next_jobs(costs)
            progress.total = (progress.total or 0) + len(jobs)
            for job, rollout in pool.rollouts(jobs):
                collection.add(job, rollout)
                costs.add(rollout)
                progress.update()


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
