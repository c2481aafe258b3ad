"""The default trace: the decisions of the compiler's own heuristic over a corpus, which the warm start imitates."""

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compiler_opt.checked_values import Json
from compiler_opt.collect import traces
from compiler_opt.collect.baseline import Baseline, BaselineBuilder
from compiler_opt.collect.rollout import Rollout, RolloutSettings
from compiler_opt.collect.traces import TraceContext, TraceDescription, meta_path
from compiler_opt.collect.undecided import why_undecided
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.module import Module
from compiler_opt.errors import CorpusError
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.policy import Policy
from compiler_opt.problem import Problem
from compiler_opt.progress_bar import progress_bar
from compiler_opt.rl.training_run import origin
from compiler_opt.tensorflow_loading import load_tensorflow

if TYPE_CHECKING:
    from compiler_opt.rl.trace_files import TraceWriter

_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class DefaultTrace:
    """The result of `record_default_trace`.

    Attributes:
      baseline: the default's scores, and which modules failed.
      num_modules: modules with decisions.
      num_decisions: decisions in all of them.
    """

    baseline: Baseline
    num_modules: int
    num_decisions: int


def record_default_trace(
    corpus: Corpus,
    problem: Problem,
    toolchain: Toolchain,
    pool: WorkerPool,
    path: Path | str | None,
    *,
    modules: Sequence[Module] | None = None,
    policy: Policy | None = None,
    settings: RolloutSettings = RolloutSettings(),
    about: Mapping[str, Any] = {},
    on_context: Callable[[TraceContext], object] = lambda context: None,
) -> DefaultTrace:
    """Compiles modules under the default heuristic and records its decisions.

    Args:
      corpus: holds the modules.
      problem: what is decided.
      toolchain: the compiler, for the trace's description.
      pool: compiles the modules.
      path: the trace to write; None to write none.
      modules: those to compile; by default all of the corpus.
      policy: decides in place of the default heuristic; the scores are then its own.
      settings: of each compilation.
      about: more facts for the trace's description; JSON.
      on_context: called with the decisions of each module that has any.

    Raises:
      CorpusError: most modules fail, or none has decisions because of how it was built.
      OutputError, ProtocolError: the trace cannot be written; nothing of it is left.
    """
    modules = corpus.modules if modules is None else modules
    builder = BaselineBuilder(problem)
    num_modules, num_decisions = 0, 0
    with contextlib.nullcontext() if path is None else _trace_writer(Path(path)) as writer:
        recorded = policy or traces.default_policy(problem)
        rollouts = traces.rollouts(modules, recorded, pool, settings)
        for rollout in with_progress(rollouts, "default" if policy is None else policy.name, len(modules)):
            builder.add(rollout)
            for context in traces.contexts(rollout, problem.decision) if rollout.failure is None else ():
                num_modules += 1
                num_decisions += len(context.action)
                on_context(context)
                if writer is not None:
                    writer.add(context)
        baseline = builder.build()
        if writer is not None and not num_decisions and (reason := why_undecided(modules, toolchain.clang)):
            raise CorpusError(f"{corpus.root}: no module has any decisions; {reason}")
        if writer is not None:
            description = {
                **origin(corpus, modules, problem, toolchain),
                "num_modules": len(modules),
                "failed_modules": sorted(baseline.failures),
                **about,
            }
            writer.finish({key: baseline.scores[key[0]] for key in writer.keys}, description)
    return DefaultTrace(baseline, num_modules, num_decisions)


def describe_trace(*paths: Path) -> TraceDescription:
    """The description of a trace, in one file or several; made from the records of those that have none.

    Raises:
      ProtocolError: see `TraceDescription`.
    """

    def describe(path: Path) -> dict[str, Json]:
        load_tensorflow()
        from compiler_opt.rl import trace_files

        _LOG.warning("%s: has no %s: its contexts are numbered, and taken for one project", path, meta_path(path).name)
        return trace_files.describe(path)

    return TraceDescription(*paths, describe=describe)


def with_progress(rollouts: Iterator[Rollout], description: str, total: int) -> Iterator[Rollout]:
    """The same rollouts, with a progress bar that counts failures."""
    failed = 0
    with progress_bar(rollouts, description, total, unit="module") as progress:
        for rollout in progress:
            if rollout.failure is not None:
                failed += 1
                progress.set_postfix(failed=failed)
            yield rollout


def _trace_writer(path: Path) -> "TraceWriter":
    # Not imported at the top, because it takes seconds: worker processes import this file, and the user's mistakes
    # should show at once.
    load_tensorflow()
    from compiler_opt.rl.trace_files import TraceWriter

    return TraceWriter(path)
