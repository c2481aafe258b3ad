"""How many decisions there are in each module, as the compiler's own heuristic meets them."""

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from compiler_opt.collect import traces
from compiler_opt.collect.measured_once import measured_once
from compiler_opt.collect.rollout import RolloutSettings
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.module import Module
from compiler_opt.problems.problem import Problem

_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class DecisionCounts:
    """What was counted.

    Attributes:
      counts: decisions by module; modules that failed are absent.
      failures: by module, why it could not be compiled.
      is_lasting: whether none failed for want of memory or disk: another time it would come out the same.
    """

    counts: Mapping[str, int]
    failures: Mapping[str, str]
    is_lasting: bool = True


def count_decisions(
    modules: Sequence[Module], pool: WorkerPool, problem: Problem, settings: RolloutSettings = RolloutSettings()
) -> DecisionCounts:
    """Compiles every module under the default, and counts.

    Raises:
      CorpusError: most modules fail; the message gives the first reason.
      PolicyError: the compiler does not tell its own decisions for this problem.
    """
    counts, failures, is_lasting = {}, {}, True
    rollouts = traces.default_trace(modules, problem, pool, settings)
    for rollout in tqdm(rollouts, "decisions", len(modules), unit="module", disable=None):
        if rollout.failure is not None:
            failures[rollout.module] = rollout.failure
            is_lasting &= not rollout.is_transient
        else:
            # A module without decisions has no trajectory.
            counts[rollout.module] = 0 if rollout.trajectory is None else len(rollout.trajectory)
    return DecisionCounts(counts, failures, is_lasting)


def cached_decision_counts(
    path: Path,
    key: Mapping[str, Any],
    modules: Sequence[Module],
    pool: WorkerPool,
    problem: Problem,
    settings: RolloutSettings = RolloutSettings(),
) -> dict[str, int]:
    """The counts of `count_decisions`, or those of last time for the same key (corpus and compiler)."""

    def count() -> tuple[dict[str, int], bool]:
        _LOG.info("counting the decisions of %d modules", len(modules))
        counted = count_decisions(modules, pool, problem, settings)
        return dict(counted.counts), counted.is_lasting

    return dict(measured_once(path, "counts", key, modules, count))
