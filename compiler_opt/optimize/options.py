"""The step that chooses options of LLVM's passes for single functions of a program."""

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path

from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.decisions.inlining import PROBLEM
from compiler_opt.errors import ToolchainError
from compiler_opt.llvm.inliner_plugin import with_plugin_features
from compiler_opt.llvm.options_plugin import options_plugin
from compiler_opt.optimize.optimization import FUNCTION_OPTIONS, Optimization
from compiler_opt.optimize.state import Record, checksum
from compiler_opt.policies.decisions import Decisions, OverridingPolicy
from compiler_opt.progress_bar import progress_bar
from compiler_opt.search import function_options

_MAX_FAILURES_SHOWN = 5


@dataclasses.dataclass(frozen=True)
class ChosenOptions:
    """Options of single functions: of how many, and bytes of all functions without and with them."""

    functions: int
    before: int
    after: int


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


def choose(
    run: Optimization, corpus: Corpus, policy_dir: Path, decisions: Path | None, known: Path | None
) -> Path | None:
    """Chooses options for single functions, with which policy and decisions are deployed; returns the file, if any.

    A file that is known is taken as it is if it is of the same menu.
    """
    menu = _menu(run, corpus)
    if not menu:
        return None
    if known is not None and function_options.load(known).menu == menu:
        run.echo(f"options of LLVM's passes for single functions: {known} is reused")
        return known
    path = run.folder / FUNCTION_OPTIONS
    base = PROBLEM.decision.load_policy(policy_dir)

    def work(record: Record) -> ChosenOptions:
        policy = base if decisions is None else OverridingPolicy(base, Decisions.load(decisions))
        toolchain = with_plugin_features(run.toolchain, base.plugin_features)
        record.compiles = len(corpus.modules)
        with (
            progress_bar(total=record.compiles, description="options of functions", unit="module") as bar,
            WorkerPool(toolchain, function_options.task(len(menu)), run.settings.jobs) as pool,
        ):
            measured = function_options.measure(corpus.modules, policy, pool, menu, bar.update)
        chosen = measured.choose(menu, run.settings.level.removeprefix("-"))
        function_options.save(chosen, path)
        for module, failure in itertools.islice(measured.failures.items(), _MAX_FAILURES_SHOWN):
            run.echo(f"{module}: its functions keep the same options: {failure}")
        return ChosenOptions(len(chosen.choices), measured.before, measured.after())

    found = run.state.do(
        "options",
        ChosenOptions,
        work,
        inputs=[base.weights.checksum(), checksum(decisions), menu],
        after=["corpus"],
        outputs=[path],
    )
    change = f"{found.after / found.before - 1:+.2%}" if found.before else "nothing"
    run.echo(f"options of LLVM's passes for {found.functions} functions, of {len(menu)} sets: {change} of functions")
    return path
