"""What the compiler's own heuristic makes of a corpus: the yardstick of every reward."""

import dataclasses
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from compiler_opt.collect.failures import check_failures
from compiler_opt.collect.measured_once import measured_once
from compiler_opt.collect.rollout import Rollout
from compiler_opt.collect.workers import Job, WorkerPool
from compiler_opt.corpus.module import Module
from compiler_opt.problems.problem import Problem

_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Baseline:
    """The default's scores.

    Attributes:
      scores: by module; modules that failed are absent.
      contexts: by project, what scoring needs to know of it.
      failures: by module, why it could not be compiled.
      cpu_s: what it took.
    """

    scores: Mapping[str, float]
    contexts: Mapping[str, Any]
    failures: Mapping[str, str]
    cpu_s: float

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Baseline":
        return cls(**{field.name: value[field.name] for field in dataclasses.fields(cls)})


class BaselineBuilder:
    """Collects rollouts of the default; scores them when all are known, since a score depends on the whole project."""

    def __init__(self, problem: Problem):
        self._problem = problem
        self._measurements: defaultdict[str, dict[str, Any]] = defaultdict(dict)
        self._others: defaultdict[str, list[Any]] = defaultdict(list)
        self._failures: dict[str, str] = {}
        self._cpu_s = 0.0
        self._num_transient = 0

    @property
    def is_lasting(self) -> bool:
        """Whether nothing failed for want of memory or disk: another time it would come out the same."""
        return not self._num_transient

    def add(self, rollout: Rollout) -> None:
        """Takes the rollout of one module."""
        self._cpu_s += rollout.cpu_s
        self._num_transient += rollout.is_transient
        if rollout.failure is not None:
            self._failures[rollout.module] = rollout.failure
        else:
            self._measurements[rollout.project][rollout.module] = rollout.measurement

    def add_other(self, rollout: Rollout) -> None:
        """Takes the rollout of a module under one of the problem's `context_policies`."""
        self._cpu_s += rollout.cpu_s
        self._num_transient += rollout.is_transient
        if rollout.failure is None:
            self._others[rollout.project].append(rollout.measurement)

    def build(self) -> Baseline:
        """The scores of all that was added.

        Raises:
          CorpusError: most modules have failed; the message gives the first reason.
        """
        check_failures(self._failures, len(self._failures) + sum(map(len, self._measurements.values())))
        contexts = {
            project: self._problem.project_context(found.values(), self._others[project])
            for project, found in self._measurements.items()
        }
        scores = {
            name: self._problem.score(measurement, contexts[project])
            for project, found in self._measurements.items()
            for name, measurement in found.items()
        }
        return Baseline(dict(sorted(scores.items())), contexts, dict(self._failures), self._cpu_s)


def measure_baseline(modules: Sequence[Module], pool: WorkerPool, problem: Problem) -> Baseline:
    """Compiles every module plainly, and under the problem's `context_policies`.

    Raises:
      CorpusError: most modules fail; the message gives the first reason.
    """
    return _measured(modules, pool, problem).build()


def _measured(modules: Sequence[Module], pool: WorkerPool, problem: Problem) -> BaselineBuilder:
    builder = BaselineBuilder(problem)
    jobs = [Job(module, policy) for module in modules for policy in (None, *problem.context_policies)]
    for job, result in tqdm(pool.rollouts(jobs), "default", len(jobs), unit="compile", disable=None):
        if job.policy is None:
            builder.add(result)
        else:
            builder.add_other(result)
    return builder


def cached_baseline(
    path: Path, key: Mapping[str, Any], modules: Sequence[Module], pool: WorkerPool, problem: Problem
) -> Baseline:
    """`measure_baseline`, or what it gave last time for the same key (corpus and compiler)."""

    def measure() -> tuple[dict[str, Any], bool]:
        _LOG.info("measuring what the default makes of %d modules", len(modules))
        builder = _measured(modules, pool, problem)
        return builder.build().to_json(), builder.is_lasting

    return Baseline.from_json(measured_once(path, "baseline", key, modules, measure))
