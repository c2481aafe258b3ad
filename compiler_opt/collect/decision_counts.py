"""How many decisions there are in each module, as the compiler's own heuristic meets them."""

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from compiler_opt.collect import traces
from compiler_opt.collect.rollout import RolloutSettings
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.description import Module
from compiler_opt.files import write_atomically
from compiler_opt.problems.problem import Problem

_LOG = logging.getLogger(__name__)


def count_decisions(
    modules: Sequence[Module], pool: WorkerPool, problem: Problem, settings: RolloutSettings = RolloutSettings()
) -> dict[str, int]:
    """Compiles every module under the default, and counts; modules that fail are absent.

    Raises:
      CorpusError: most modules fail; the message gives the first reason.
      PolicyError: the compiler does not tell its own decisions for this problem.
    """
    counts = {}
    rollouts = traces.default_trace(modules, problem, pool, settings)
    for rollout in tqdm(rollouts, "decisions", len(modules), unit="module", disable=None):
        if rollout.failure is None:
            counts[rollout.module] = 0 if rollout.trajectory is None else len(rollout.trajectory)
    return counts


def cached_decision_counts(
    path: Path,
    key: Mapping[str, Any],
    modules: Sequence[Module],
    pool: WorkerPool,
    problem: Problem,
    settings: RolloutSettings = RolloutSettings(),
) -> dict[str, int]:
    """`count_decisions`, or what it gave last time for the same key (corpus and compiler)."""
    key = json.loads(json.dumps({**key, "modules": sorted(module.name for module in modules)}))
    if path.is_file():
        stored = json.loads(path.read_text())
        if stored.get("key") == key:
            return dict(stored["counts"])
    _LOG.info("counting the decisions of %d modules", len(modules))
    counts = count_decisions(modules, pool, problem, settings)
    write_atomically(path, json.dumps({"key": key, "counts": counts}).encode())
    return counts
