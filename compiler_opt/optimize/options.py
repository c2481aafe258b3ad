"""The step that chooses options of LLVM's passes for single functions of a program."""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.decisions.inlining import PROBLEM
from compiler_opt.errors import ToolchainError
from compiler_opt.files import write_text
from compiler_opt.llvm.inliner_plugin import with_plugin_features
from compiler_opt.llvm.options_plugin import MAX_INSTRUCTIONS, FunctionOptions, options_plugin
from compiler_opt.optimize.optimization import FUNCTION_OPTIONS, FUNCTIONS_TABLE, Optimization
from compiler_opt.optimize.results import ChosenSet
from compiler_opt.optimize.state import Record, checksum
from compiler_opt.policies.decisions import Decisions, OverridingPolicy
from compiler_opt.progress_bar import progress_bar
from compiler_opt.report.formatting import count_text
from compiler_opt.report.table import csv_text
from compiler_opt.search import function_options

_MAX_FAILURES_SHOWN = 5


@dataclasses.dataclass(frozen=True)
class ChosenOptions:
    """Options of single functions: the file, if any, and sums by set."""

    path: Path | None = None
    sets: tuple[ChosenSet, ...] = ()


@dataclasses.dataclass(frozen=True)
class _Found:
    """Bytes of all functions without and with options of single ones, and sums by set."""

    before: int
    after: int
    sets: tuple[ChosenSet, ...]


def _menu(run: Optimization, corpus: Corpus) -> Sequence[tuple[str, ...]]:
    """The sets that functions may have; () if there are none, or if the modules have another set than the first one."""
    menu = run.settings.pass_options.menu(run.settings.level.removeprefix("-"), run.toolchain.target.partition("-")[0])
    if not menu or any(module.pass_options != menu[0] for module in corpus.modules):
        return ()
    try:
        options_plugin(run.toolchain)
    except ToolchainError as error:
        run.notes.append(f"All functions have the same options of LLVM's passes: {error}")
        return ()
    return menu


def _is_for(options: FunctionOptions, menu: Sequence[tuple[str, ...]], level: str) -> bool:
    return (options.menu, options.level) == (menu, level)


def choose(
    run: Optimization, corpus: Corpus, policy_dir: Path, decisions: Path | None, known: Path | None
) -> ChosenOptions:
    """Chooses options for single functions, with which policy and decisions are deployed.

    A file that is known is taken as it is if it is of the same menu and level.
    """
    menu = _menu(run, corpus)
    if not menu:
        return ChosenOptions()
    level = run.settings.level.removeprefix("-")
    if known is not None and _is_for(function_options.load(known), menu, level):
        run.echo(f"options of LLVM's passes for single functions: {known} is reused")
        return ChosenOptions(known)
    path = run.folder / FUNCTION_OPTIONS
    base = PROBLEM.decision.load_policy(policy_dir)

    def work(record: Record) -> _Found:
        policy = base if decisions is None else OverridingPolicy(base, Decisions.load(decisions))
        toolchain = with_plugin_features(run.toolchain, base.plugin_features)
        record.compiles = len(corpus.modules)
        with (
            progress_bar(total=record.compiles, description="options of functions", unit="module") as bar,
            WorkerPool(toolchain, function_options.task(len(menu)), run.settings.jobs) as pool,
        ):
            measured = function_options.measure(corpus.modules, policy, pool, menu, bar.update)
        limit = MAX_INSTRUCTIONS[level]
        chosen = measured.choose(menu, level, limit)
        function_options.save(chosen, path)
        rows = measured.rows(menu, limit)
        write_text(run.folder / FUNCTIONS_TABLE, csv_text(rows))
        for module, failure in itertools.islice(measured.failures.items(), _MAX_FAILURES_SHOWN):
            run.echo(f"{module}: its functions keep the same options: {failure}")
        return _Found(measured.before, measured.after(limit), _by_set(rows))

    found = run.state.do(
        "options",
        _Found,
        work,
        inputs=[base.weights.checksum(), checksum(decisions), menu],
        after=["corpus"],
        outputs=[path, run.folder / FUNCTIONS_TABLE],
    )
    functions = count_text(sum(each.functions for each in found.sets), "function")
    change = f"{found.after / found.before - 1:+.2%}" if found.before else "nothing"
    run.echo(f"options of LLVM's passes for {functions}, of {len(menu)} sets: {change} of all functions' bytes")
    return ChosenOptions(path, found.sets)


def _by_set(rows: Sequence[Mapping[str, Any]]) -> tuple[ChosenSet, ...]:
    """Sums of `BytesBySet.rows`, of the set first that saves most."""
    functions = Counter(row["options"] for row in rows)
    saved: Counter[str] = Counter()
    for row in rows:
        saved[row["options"]] += row["first_bytes"] - row["bytes"]
    return tuple(ChosenSet(options, functions[options], count) for options, count in saved.most_common())
