"""The default's scores and numbers of decisions over a corpus, measured once: kept in a file of the run, and shared.

The shared files are in the user's cache, each named by all that its content depends on (`shared_file`), so that another
run over the same modules, wherever they are, compiles nothing.
"""

import contextlib
import dataclasses
import json
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Generic

from compiler_opt.checked_values import Json
from compiler_opt.collect import traces
from compiler_opt.collect.rollout import Rollout, RolloutSettings, check_failures
from compiler_opt.collect.shared_parts import SharedParts, find_shared_parts
from compiler_opt.collect.workers import Job, WorkerPool
from compiler_opt.corpus.module import Module
from compiler_opt.errors import CorpusError, OutputError
from compiler_opt.files import default_cache_dir, read_checked_json, remove_oldest, write_checked_json
from compiler_opt.kept_results import find_kept, key_of
from compiler_opt.llvm.build_cache import digest_of
from compiler_opt.objectives.objective import Context, Measurement
from compiler_opt.problem import AnyProblem, Problem
from compiler_opt.progress_bar import progress_bar

_LOG = logging.getLogger(__name__)

_MAX_SHARED = 200
"""Shared files that are kept."""
MEASUREMENTS_FORMAT = 3
"""Of stored measurements; others are measured again."""

FindShared = Callable[[], Path | None]


def _not_shared() -> None:
    return None


@dataclasses.dataclass(frozen=True)
class Baseline(Generic[Context]):
    """The default's scores.

    Attributes:
      scores: by module; modules that failed are absent.
      contexts: by project, what scoring needs to know of it.
      failures: by module, the reason why it could not be compiled.
      cpu_s: CPU seconds of the compiler.
      scores_as_emitted: as `scores`, but with contexts of the copies that the default itself emits, not of those that
        may be emitted (`Objective.with_copies`).
      shared_parts: by project, what its modules emit of the parts that a linker keeps one copy of.
      undecided: modules in which a policy has nothing to decide, as far as `Problem.context_policies` show.
    """

    scores: Mapping[str, float]
    contexts: Mapping[str, Context]
    failures: Mapping[str, str]
    cpu_s: float
    scores_as_emitted: Mapping[str, float] = dataclasses.field(default_factory=dict)
    shared_parts: Mapping[str, SharedParts] = dataclasses.field(default_factory=dict)
    undecided: Sequence[str] = ()


class BaselineBuilder(Generic[Measurement, Context]):
    """Collects rollouts of the default; scores them at the end, since a score depends on the whole project.

    Attributes:
      is_lasting: whether measuring again would give the same: no rollout failed for lack of memory or disk.
    """

    def __init__(self, problem: Problem[Measurement, Context]):
        self.is_lasting = True
        self._problem = problem
        self._measurements: defaultdict[str, dict[str, Measurement]] = defaultdict(dict)
        self._others: defaultdict[str, dict[str, list[Measurement]]] = defaultdict(lambda: defaultdict(list))
        self._failures: dict[str, str] = {}
        self._undecided: set[str] = set()
        self._cpu_s = 0.0

    def add(self, rollout: Rollout[Measurement], *, is_default: bool = True) -> None:
        """Adds a rollout of the default or of one of the problem's `context_policies`."""
        self._cpu_s += rollout.cpu_s
        self.is_lasting &= not rollout.is_transient
        if rollout.measurement is None:
            if is_default:
                self._failures[rollout.module] = str(rollout.failure)
        elif is_default:
            self._measurements[rollout.project][rollout.module] = rollout.measurement
        else:
            self._others[rollout.project][rollout.module].append(rollout.measurement)
            if rollout.trajectory is None:
                self._undecided.add(rollout.module)

    def build(self) -> Baseline[Context]:
        """Scores all modules; raises CorpusError, with the first reason, if most have failed."""
        check_failures(self._failures, len(self._failures) + sum(map(len, self._measurements.values())))
        contexts = {
            project: self._problem.objective.project_context(
                found.values(), [other for others in self._others[project].values() for other in others]
            )
            for project, found in self._measurements.items()
        }
        parts = {project: self._shared_parts(project) for project in self._measurements}
        emitted = {
            project: self._problem.objective.with_copies(context, parts[project].copies())
            for project, context in contexts.items()
        }
        scores, scores_as_emitted = self._scores(contexts), self._scores(emitted)
        return Baseline(
            scores,
            contexts,
            dict(self._failures),
            self._cpu_s,
            scores_as_emitted,
            parts,
            sorted(self._undecided),
        )

    def _scores(self, contexts: Mapping[str, Context]) -> dict[str, float]:
        """The default's scores by module, in order of their names."""
        scores = {
            name: self._problem.score(measurement, contexts[project])
            for project, found in self._measurements.items()
            for name, measurement in found.items()
        }
        return dict(sorted(scores.items()))

    def _shared_parts(self, project: str) -> SharedParts:
        """What the default emits of the parts that several modules of a project emit under some policy."""
        found, others = self._measurements[project], self._others[project]
        parts = self._problem.objective.shared_parts
        emitted = {module: set(parts(measurement)) for module, measurement in found.items()}
        possible = {
            module: own.union(*(parts(other) for other in others.get(module, ()))) for module, own in emitted.items()
        }
        shared = find_shared_parts(possible)
        return SharedParts(
            shared.names,
            {
                module: [index for index in indices if shared.names[index] in emitted[module]]
                for module, indices in shared.emitted.items()
            },
        )


def measure_baseline(
    modules: Sequence[Module], pool: WorkerPool[Measurement], problem: Problem[Measurement, Context]
) -> Baseline[Context]:
    """Compiles every module plainly, and under the problem's `context_policies`.

    Raises:
      CorpusError: most modules fail.
    """
    return _measured(modules, pool, problem).build()


def cached_baseline(
    path: Path,
    key: Mapping[str, Json],
    modules: Sequence[Module],
    pool: WorkerPool[Measurement],
    problem: Problem[Measurement, Context],
    find_shared: FindShared = _not_shared,
) -> Baseline[Context]:
    """`measure_baseline`, or its last result for the same key (corpus and compiler); see `measured_once`."""

    def measure() -> tuple[dict[str, Json], bool]:
        _LOG.info(
            "measuring the default's scores: %d compilations of all %d modules, whichever come first, since those of a "
            "project share parts; kept in %s%s",
            len(modules) * (1 + len(problem.context_policies)),
            len(modules),
            path,
            "" if find_shared is _not_shared else ", and in the user's cache for other runs over these modules",
        )
        builder = _measured(modules, pool, problem)
        return dataclasses.asdict(builder.build()), builder.is_lasting

    stored = measured_once(path, "baseline", {**key, "format": MEASUREMENTS_FORMAT}, modules, measure, find_shared)
    parts = {project: SharedParts(**shared) for project, shared in stored["shared_parts"].items()}
    fields = {field.name: stored[field.name] for field in dataclasses.fields(Baseline)}
    return Baseline(**{**fields, "shared_parts": parts})


def _measured(
    modules: Sequence[Module], pool: WorkerPool[Measurement], problem: Problem[Measurement, Context]
) -> BaselineBuilder[Measurement, Context]:
    builder = BaselineBuilder(problem)
    jobs = [Job(module, policy) for module in modules for policy in (None, *problem.context_policies)]
    failed = []
    for job, result in progress_bar(pool.rollouts(jobs), "default", len(jobs), unit="compile"):
        if result.failure is None:
            builder.add(result, is_default=job.policy is None)
        else:
            failed.append((job, result))
    # The result is kept for the whole run and the next ones, so it should not depend on whatever else ends a compiler:
    # what failed is repeated, unless so much has failed that the corpus is to blame.
    repeats = failed if 2 * len(failed) > len(jobs) else pool.rollouts([job for job, _ in failed])
    for job, result in repeats:
        builder.add(result, is_default=job.policy is None)
    return builder


@dataclasses.dataclass(frozen=True)
class DecisionCounts:
    """How many decisions the default takes.

    Attributes:
      counts: by module; modules that failed are absent.
      failures: by module, the reason why it could not be compiled.
      is_lasting: see `BaselineBuilder`.
    """

    counts: Mapping[str, int]
    failures: Mapping[str, str]
    is_lasting: bool = True


def count_decisions(
    modules: Sequence[Module],
    pool: WorkerPool[Measurement],
    problem: AnyProblem,
    settings: RolloutSettings = RolloutSettings(),
) -> DecisionCounts:
    """Compiles every module under the default, and counts the decisions.

    Raises:
      CorpusError: most modules fail.
      PolicyError: the compiler does not send its own decisions for this problem.
    """
    counts: dict[str, int] = {}
    failed: dict[str, Rollout] = {}

    def add(rollout: Rollout) -> None:
        failed.pop(rollout.module, None)
        if rollout.failure is not None:
            failed[rollout.module] = rollout
        else:
            # A module without decisions has no trajectory.
            counts[rollout.module] = 0 if rollout.trajectory is None else len(rollout.trajectory)

    rollouts = traces.default_trace(modules, problem, pool, settings)
    for rollout in progress_bar(rollouts, "decisions", len(modules), unit="module"):
        add(rollout)
    # As for the scores, what has failed is repeated.
    again = [module for module in modules if module.name in failed]
    for _, rollout in pool.rollouts([Job(module, traces.default_policy(problem), 0, settings) for module in again]):
        add(rollout)
    failures = {name: str(rollout.failure) for name, rollout in failed.items()}
    return DecisionCounts(counts, failures, not any(rollout.is_transient for rollout in failed.values()))


def cached_decision_counts(
    path: Path,
    key: Mapping[str, Json],
    modules: Sequence[Module],
    pool: WorkerPool[Measurement],
    problem: AnyProblem,
    settings: RolloutSettings = RolloutSettings(),
    find_shared: FindShared = _not_shared,
) -> dict[str, int]:
    """The counts of `count_decisions`, or the last ones for the same key; see `measured_once`."""

    def count() -> tuple[dict[str, int], bool]:
        _LOG.info("counting the decisions: a compilation of each of %d modules; kept in %s", len(modules), path)
        counted = count_decisions(modules, pool, problem, settings)
        return dict(counted.counts), counted.is_lasting

    return dict(measured_once(path, "counts", key, modules, count, find_shared))


def measured_once(
    path: Path,
    name: str,
    key: Mapping[str, Json],
    modules: Sequence[Module],
    measure: Callable[[], tuple[Json, bool]],
    find_shared: FindShared = _not_shared,
) -> Json:
    """The result of `measure`, or the last one in the file `path` for the same modules and key (corpus and compiler).

    A damaged file is set aside.

    Args:
      path: the file.
      name: the key of the result in the file.
      key: what the result depends on, besides the modules.
      modules: those that are measured.
      measure: returns the result, and whether to keep it: not if the machine lacks memory or disk today.
      find_shared: returns a file of other runs, from `shared_file`: taken if it is there, and else written, if it can
        be. Called only if `path` does not have the result, since it reads all modules.

    Raises:
      OutputError: the file cannot be written.
    """
    # As the file will have it: JSON turns tuples into lists.
    key = json.loads(json.dumps({**key, "modules": sorted(module.name for module in modules)}))
    stored = find_kept(path, read_checked_json)
    if stored is not None and stored.get("key") == key and name in stored:
        return stored[name]
    shared = find_shared()
    found = None if shared is None else find_kept(shared, read_checked_json)
    if found is not None and name in found:
        _LOG.info("%s of %d modules: measured before, found in %s", name, len(modules), shared)
        write_checked_json(path, {"key": key, name: found[name]})
        return found[name]
    value, is_lasting = measure()
    if is_lasting:
        write_checked_json(path, {"key": key, name: value})
        if shared is not None:
            # Only other runs lack it.
            with contextlib.suppress(OSError, OutputError):
                write_checked_json(shared, {name: value})
                remove_oldest(shared.parent.glob("*.json*"), _MAX_SHARED, shared)
    return value


def shared_file(
    modules: Sequence[Module], clang: Path, about: Mapping[str, Json], folder: Path | None = None
) -> Path | None:
    """The file that runs share of measurements of these modules: by content, wherever they are.

    Args:
      modules: those that are measured.
      clang: the compiler; another build of the same version is another one.
      about: what else the measurements depend on, such as their name and the problem's.
      folder: of shared files; by default in the user's cache.

    Returns:
      None if a module cannot be read, or is on a remote file system.
    """
    if any(module.remote is not None for module in modules):
        return None
    try:
        contents = (module.content_digest() for module in sorted(modules, key=lambda module: module.name))
        key = key_of(json.dumps(about, sort_keys=True), digest_of((), (), [clang]), *contents)
    except (OSError, CorpusError):
        return None
    return (folder or default_cache_dir() / "measurements") / f"{key}.json"
