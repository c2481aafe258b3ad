"""What the compiler's own heuristic makes of a corpus: the yardstick of every reward."""

import dataclasses
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from compiler_opt.collect.workers import Job, WorkerPool
from compiler_opt.corpus.description import Module
from compiler_opt.errors import CorpusError
from compiler_opt.files import write_atomically
from compiler_opt.problems.problem import Problem


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


def measure_baseline(modules: Sequence[Module], pool: WorkerPool, problem: Problem) -> Baseline:
    """Compiles every module plainly.

    Raises:
      CorpusError: most modules fail; the message gives the first reason.
    """
    measurements: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    failures: dict[str, str] = {}
    cpu_s = 0.0
    jobs = [Job(module, None) for module in modules]
    for job, result in tqdm(pool.rollouts(jobs), "default", len(jobs), unit="module", disable=None):
        cpu_s += result.cpu_s
        if result.failure is not None:
            failures[job.module.name] = result.failure
        else:
            measurements[job.module.project][job.module.name] = result.measurement
    check_failures(failures, len(jobs))
    contexts = {project: problem.project_context(found.values()) for project, found in measurements.items()}
    scores = {
        name: problem.score(measurement, contexts[project])
        for project, found in measurements.items()
        for name, measurement in found.items()
    }
    return Baseline(dict(sorted(scores.items())), contexts, failures, cpu_s)


def cached_baseline(
    path: Path, key: Mapping[str, Any], modules: Sequence[Module], pool: WorkerPool, problem: Problem
) -> Baseline:
    """`measure_baseline`, or what it gave last time for the same key (corpus and compiler)."""
    key = json.loads(json.dumps({**key, "modules": sorted(module.name for module in modules)}))
    if path.is_file():
        stored = json.loads(path.read_text())
        if stored.get("key") == key:
            return Baseline.from_json(stored["baseline"])
    baseline = measure_baseline(modules, pool, problem)
    write_atomically(path, json.dumps({"key": key, "baseline": baseline.to_json()}).encode())
    return baseline


def check_failures(failures: Mapping[str, str], attempts: int) -> None:
    """Stops a run in which most modules fail.

    Raises:
      CorpusError: more than half did; the message gives the first reason.
    """
    if failures and 2 * len(failures) > attempts:
        raise CorpusError(
            f"{len(failures)} of {attempts} modules failed to compile; the first: {next(iter(failures.values()))}"
        )
