"""Searches one program of a corpus: compiles in workers, saves its state, confirms by linking."""

import dataclasses
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from compiler_opt.collect.rollout import DefaultPolicy, RolloutSettings
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.module import Module
from compiler_opt.errors import ConfigError, PolicyError
from compiler_opt.evaluation.statistics import relative_change
from compiler_opt.llvm.object_file import ObjectSizes
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.decisions import Base, Decisions, provenance
from compiler_opt.policies.policy import Policy
from compiler_opt.problem import AnyProblem
from compiler_opt.report.formatting import change_text, count_text
from compiler_opt.report.table import data_frame
from compiler_opt.search.builds import Compiler
from compiler_opt.search.compiling import PlainProgram, PoolCompiler
from compiler_opt.search.confirmation import Confirmed, confirm, needed_decisions
from compiler_opt.search.moves import Hotness
from compiler_opt.search.saved_state import SavedState
from compiler_opt.search.search import Search, SearchSettings
from compiler_opt.search.search_outcome import Progress, SearchOutcome
from compiler_opt.spaces.learned_policy import LearnedPolicy

STATE_FILE = "search_state.json"
_SAVE_SHARE = 20
"""Saving takes at most one part in this of the time."""
_MIN_SAVE_S = 5.0


@dataclasses.dataclass(frozen=True)
class SearchResult:
    """What a search of one program has found.

    Attributes:
      name: the program's.
      modules: names, in link order.
      decisions: of the program; none if no search made it smaller.
      outcome: of the search, before linking.
      confirmed: its result after linking.
      num_decisions: under the base policy.
      wall_s: seconds that this call took.
    """

    name: str
    modules: Sequence[str]
    decisions: Decisions
    outcome: SearchOutcome
    confirmed: Confirmed
    num_decisions: int
    wall_s: float

    @property
    def compiles(self) -> int:
        """All compiles of modules, with those that confirmed the result."""
        return sum(self.outcome.compiles.values()) + self.confirmed.compiles

    @property
    def cpu_s(self) -> float:
        """CPU seconds of the compiler."""
        return self.outcome.cpu_s + self.confirmed.cpu_s

    @property
    def plain_bytes(self) -> int:
        """Linked text of all targets by plain clang, with which all changes compare."""
        return sum(self.confirmed.plain_linked_bytes.values())

    @property
    def base_bytes(self) -> int:
        """Linked text of all targets under the base policy, with options of LLVM's passes if the modules have any."""
        return sum(self.confirmed.base_linked_bytes.values())

    @property
    def linked_bytes(self) -> int:
        """Linked text of all targets with the decisions."""
        return sum(self.confirmed.linked_bytes.values())

    @property
    def change(self) -> float:
        """The relative change of linked text against plain clang."""
        return relative_change(self.plain_bytes, self.linked_bytes)

    def to_dataframe(self) -> Any:
        """A `pandas.DataFrame` with a row for each module: text of its object before and after, and compiles.

        Raises:
          MissingPackageError: pandas is not installed.
        """
        before, after = self.confirmed.base_object_bytes, self.confirmed.object_bytes
        return data_frame(
            {
                "program": self.name,
                "module": name,
                "base_object_bytes": before.get(number),
                "object_bytes": after.get(number),
                "compiles": self.outcome.compiles.get(number, 0),
                "failure": self.outcome.failures.get(number),
            }
            for number, name in enumerate(self.modules)
        )

    def __str__(self) -> str:
        """The table that `search` prints."""
        from compiler_opt.search import report

        return "\n".join([*report.terminal_table([self]).lines(), *report.remarks(self)])

    def __repr__(self) -> str:
        counts = f"{count_text(len(self.modules), 'module')}, {count_text(self.compiles, 'compile')}"
        return f"SearchResult({self.name!r}, {counts}, linked text {change_text(self.change)})"

    def after(self, compiles: int) -> float:
        """The relative change against plain clang that was confirmed after so many compiles, before linking."""
        reached = [each for each in self.outcome.curve if each.compiles <= compiles]
        saved = reached[-1].change if reached else 0.0
        return relative_change(self.plain_bytes, self.base_bytes * (1 + saved))


def search(
    modules: Sequence[Module],
    base: Policy,
    pool: WorkerPool[ObjectSizes],
    problem: AnyProblem,
    toolchain: Toolchain,
    settings: SearchSettings,
    *,
    name: str = "program",
    targets: Mapping[str, Sequence[str]] | None = None,
    folder: Path | None = None,
    rollout_settings: RolloutSettings = RolloutSettings(),
    on_progress: Callable[[Progress], None] | None = None,
) -> SearchResult:
    """Searches for decisions that make a program small, confirms them by linking, and keeps those that do.

    Args:
      modules: of the program, in link order.
      base: decides elsewhere: the default, or a learned policy that runs in the plugin.
      pool: workers for this toolchain and problem.
      problem: inlining for size.
      toolchain: the compiler; it must be able to load the plugin.
      settings: how to search.
      name: the program's.
      targets: names of modules that are linked together, by target; none of them gets larger than by LLVM's
        default. By default one target of all modules.
      folder: where the state is kept, from which a search that was interrupted continues.
      rollout_settings: limits of a compilation.
      on_progress: called after each round, with plain clang's text as `base_bytes`, which takes another compile of each
        module if the search starts from a policy or has options of LLVM's passes.

    Raises:
      ConfigError: the folder has the state of another search.
      CorpusError: no module compiles.
      PolicyError: the base cannot decide in the plugin.
      ToolchainError: the compiler or lld is missing, or cannot load the plugin.
    """
    started_s = time.monotonic()
    lld = toolchain.tool("ld.lld")
    weights = base.weights if isinstance(base, LearnedPolicy) else None
    if weights is None and not base.is_default:
        raise PolicyError(f"policy {base.name!r}: a search starts from the default or a learned policy")
    about = provenance(problem.name, toolchain.version, Base(weights))
    others = [] if base.is_default else [PoolCompiler(pool, modules, DefaultPolicy(problem), rollout_settings)]
    compiler = PoolCompiler(pool, modules, base, rollout_settings)
    identity = identity_of(modules, settings, about)
    plain = None
    if not base.is_default or any(each.pass_options or each.function_options is not None for each in modules):
        without = [dataclasses.replace(each, pass_options=(), function_options=None) for each in modules]
        plain = PoolCompiler(pool, without, DefaultPolicy(problem), rollout_settings)
    reference = None if plain is None or on_progress is None else PlainProgram(plain, len(modules))

    def report(progress: Progress) -> None:
        if on_progress is not None:
            text = progress.base_bytes if reference is None else reference.linked_bytes
            on_progress(dataclasses.replace(progress, base_bytes=text))

    found = resumable_search(
        compiler, len(modules), settings, folder, identity, other_starts=others, on_progress=report
    )
    numbers = {module.name: number for number, module in enumerate(modules)}
    if targets is None:
        targets = {name: [module.name for module in modules]}
    if unknown := sorted({module for members in targets.values() for module in members} - numbers.keys()):
        raise ConfigError(f"targets: expected modules of {name}, found {unknown[0]!r}")
    with scratch_directory() as scratch:
        confirmed = confirm(
            compiler,
            found,
            needed_decisions(found, base_is_default=base.is_default),
            {target: [numbers[module] for module in members] for target, members in targets.items()},
            lld,
            scratch,
            plain,
        )
    if reference is not None:
        confirmed = dataclasses.replace(
            confirmed, compiles=confirmed.compiles + reference.compiles, cpu_s=confirmed.cpu_s + reference.cpu_s
        )
    about |= {"program": name, "search": {"compiles": sum(found.compiles.values()), "seed": settings.seed}}
    return SearchResult(
        name=name,
        modules=[module.name for module in modules],
        decisions=Decisions(confirmed.decisions, about),
        outcome=found,
        confirmed=confirmed,
        num_decisions=sum(len(calls) for build in found.base.builds.values() for calls in build.calls.values()),
        wall_s=time.monotonic() - started_s,
    )


def resumable_search(
    compiler: Compiler,
    num_modules: int,
    settings: SearchSettings,
    folder: Path | None,
    identity: Mapping[str, str],
    *,
    other_starts: Sequence[Compiler] = (),
    hotness: Callable[[], Hotness] | None = None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> SearchOutcome:
    """Runs a `Search` whose state is kept in a folder, from which it continues after an interruption.

    Raises:
      ConfigError: the folder has the state of a search with another identity.
      CorpusError: no module compiles.
    """
    path = None if folder is None else folder / STATE_FILE
    saver = _Saver(path, identity)

    def report(progress: Progress) -> None:
        saver.save(run)
        on_progress(progress)

    run = Search(
        compiler,
        num_modules,
        settings,
        other_starts=other_starts,
        hotness=hotness,
        on_progress=report,
        resume=None if path is None else SavedState.load(path, identity),
    )
    try:
        return run.run()
    finally:
        saver.save(run, at_once=True)


def identity_of(modules: Sequence[Module], settings: SearchSettings, about: Mapping[str, object]) -> dict[str, str]:
    """What must be the same for a search to continue; `about` is the `provenance` of its decisions."""
    digest = hashlib.sha256()
    for module in modules:
        digest.update(f"{module.name}\0".encode("utf-8", "surrogateescape"))
        digest.update(module.bitcode_path.read_bytes())
        digest.update("\0".join(module.options()).encode("utf-8", "surrogateescape"))
    lasting = dataclasses.replace(settings, budget=0, max_minutes=None, min_modules=1)
    program = {"program": digest.hexdigest()[:16], "setting": repr(lasting)}
    return {"compiler": str(about["llvm"]), "policy": str(about["policy"]), **program}


class _Saver:
    """Saves a search now and then."""

    def __init__(self, path: Path | None, identity: Mapping[str, str]):
        self._path, self._identity = path, identity
        self._due_s = time.monotonic() + _MIN_SAVE_S

    def save(self, run: Search, *, at_once: bool = False) -> None:
        now_s = time.monotonic()
        if self._path is None or not run.has_started or not (at_once or now_s >= self._due_s):
            return
        run.state().save(self._path, self._identity)
        self._due_s = time.monotonic() + max(_MIN_SAVE_S, _SAVE_SHARE * (time.monotonic() - now_s))
