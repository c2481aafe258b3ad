"""Searches for the inlining decisions that make each project of a corpus small, and writes them as decision files.

    compiler_opt search --data_path=CORPUS --output_dir=OUTPUT

A project's modules are taken to be linked together, in the corpus's order. `OUTPUT/PROJECT/decisions.json` is what
`deploy --decisions` takes; `OUTPUT/report.html` is the report, and `OUTPUT/history.jsonl` says what all projects have
won after how many compiles. After an interruption, the same command continues; with a larger budget, it searches on.
docs/search.md explains how it works.

    compiler_opt search --headroom --data_path=CORPUS --output_dir=OUTPUT --modules_per_project=8

measures instead what a search can win in each project, before any training: it searches a sample of the modules, prints
what is won in their linked text after so many compiles a module, as far as the budget goes, and writes the table as
`OUTPUT/headroom.csv`.
"""

import contextlib
import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from absl import flags

from compiler_opt import pretrained
from compiler_opt.collect.rollout import DefaultPolicy
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.module import Module
from compiler_opt.decisions.inlining import PROBLEM
from compiler_opt.errors import ConfigError, told_if_interrupted
from compiler_opt.evaluation.history import HISTORY_FILE
from compiler_opt.evaluation.report_parts import SUMMARY_FILE
from compiler_opt.files import exclusive_directory, write_text
from compiler_opt.llvm.inliner_plugin import inliner_plugin, with_plugin_features
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.policy import Policy
from compiler_opt.report.table import Table, csv_text
from compiler_opt.search import report
from compiler_opt.search.program_search import SearchResult, search
from compiler_opt.search.progress_bar import search_bar
from compiler_opt.search.search import SearchSettings
from compiler_opt.tools import entry_point, shared_flags
from compiler_opt.tools.entry_point import echo

_CORPUS = shared_flags.CorpusFlags(projects=True)
_POLICY_PATH = shared_flags.policy(
    "policy_path", "The policy to start from, and to decide elsewhere; by default LLVM's heuristic."
)
_OUTPUT_DIR = shared_flags.required_path("output_dir", "Folder for the results, with a folder for each project.")
_BUDGET = flags.DEFINE_float("budget", 100, "Compiles a module, on the average of a project's modules.", 3)
flags.register_validator("budget", math.isfinite, "expected a finite number")
_HEADROOM = flags.DEFINE_bool("headroom", False, "Measure what a search of a sample can win; write no decisions.")
_MODULES = flags.DEFINE_integer("modules_per_project", 8, "With --headroom: modules to search, drawn at random.", 1)
_BUDGETS = shared_flags.numbers(
    "budgets",
    (50, 100, 200, 500),
    int,
    "numbers of compiles a module after which --headroom says what is won; the last one is its budget",
)
flags.register_validator(
    "budgets",
    lambda numbers: min(numbers) >= 3 and numbers == sorted(numbers),
    "expected ascending numbers of 3 or more, such as 50,100",
)
_MINUTES = flags.DEFINE_float(
    "minutes", None, "Wall-clock limit of the searches of all projects together, in minutes.", 0.1
)
shared_flags.json()
_SEED = shared_flags.seed("the sample of --headroom, and the random moves")
_CLANG_PATH = shared_flags.clang_path()
_NUM_WORKERS = shared_flags.num_workers()


@entry_point.command
def entry() -> None:
    if _HEADROOM.value and _BUDGET.present:
        raise ConfigError("--budget: not with --headroom, whose budget is the last of --budgets; leave it out")
    for flag in (_BUDGETS, _MODULES):
        if flag.present and not _HEADROOM.value:
            raise ConfigError(f"--{flag.name}: has a meaning with --headroom only; give that, too")
    corpus, toolchain = _CORPUS.read(_CLANG_PATH.value)
    policy: Policy = DefaultPolicy(PROBLEM)
    if _POLICY_PATH.value is not None:
        policy = learned = PROBLEM.decision.load_policy(pretrained.folder(_POLICY_PATH.value))
        learned.check(toolchain.require(PROBLEM.decision.advisor.problem).feature_names)
        toolchain = with_plugin_features(toolchain, learned.plugin_features)
    inliner_plugin(toolchain)
    num_workers = entry_point.num_workers(_NUM_WORKERS.value)
    if _HEADROOM.value:
        corpus = corpus.sample(_MODULES.value, _SEED.value)
    budget = _BUDGETS.value[-1] if _HEADROOM.value else _BUDGET.value

    results: list[SearchResult] = []
    deadline_s = None if _MINUTES.value is None else time.monotonic() + 60 * _MINUTES.value

    def how_far() -> str:
        return f"{len(results)} of {len(corpus.projects())} programs; the same command resumes"

    with contextlib.ExitStack() as stack:
        stack.enter_context(exclusive_directory(_OUTPUT_DIR.value, "--output_dir"))
        stack.enter_context(told_if_interrupted(how_far))
        bar = stack.enter_context(search_bar(round(budget * len(corpus.modules)), _MINUTES.value))
        pool = stack.enter_context(WorkerPool(toolchain, PROBLEM, num_workers))
        num_left = len(corpus.modules)
        for name, modules in corpus.projects().items():
            bar.begin(name)
            minutes = None
            if deadline_s is not None:
                minutes = max(0.0, (deadline_s - time.monotonic()) / 60) * len(modules) / num_left
            num_left -= len(modules)
            folder = _OUTPUT_DIR.value / name
            result = search(
                modules,
                policy,
                pool,
                PROBLEM,
                toolchain,
                SearchSettings(budget, minutes, _SEED.value, min_modules=num_workers),
                name=name,
                folder=folder,
                on_progress=bar.show,
            )
            results.append(result)
            if _HEADROOM.value:
                table = _headroom(results, corpus.projects())
            else:
                report.write(result, folder)
        if not _HEADROOM.value:
            table = report.terminal_table(results)
            entries = report.history(results)
            write_text(_OUTPUT_DIR.value / HISTORY_FILE, "".join(json.dumps(entry) + "\n" for entry in entries))
            page = report.write_page(
                results, _OUTPUT_DIR.value, _provenance(corpus, toolchain), _deploy(results, toolchain.clang)
            )
    if not any(each.num_decisions for each in results):
        shared_flags.warn_undecided(corpus, toolchain)
    for line in [*table.lines(), *(line for each in results for line in report.remarks(each))]:
        echo(line)
    if _HEADROOM.value:
        entry_point.print_json({"projects": table.records()})
    else:
        for result in results:
            echo(f"{result.name}: {_OUTPUT_DIR.value / result.name / report.DECISIONS_FILE}")
        print(f"report: {page}")
        entry_point.print_json(_OUTPUT_DIR.value / SUMMARY_FILE)


def _provenance(corpus: Corpus, toolchain: Toolchain) -> dict[str, str]:
    """The conditions, for the page."""
    return {
        "Compiler": f"{toolchain.version_text} ({toolchain.target})",
        "Corpus": f"{corpus.root.resolve().name}: {', '.join(corpus.projects())}",
        "Start": str(_POLICY_PATH.value or "the compiler's own decisions"),
        "Budget": f"{_BUDGET.value:g} compilations a module",
        "Seed": str(_SEED.value),
    }


def _deploy(results: Sequence[SearchResult], clang: Path) -> list[str]:
    """Flags that deploy the decisions."""
    files = [(_OUTPUT_DIR.value / result.name / report.DECISIONS_FILE).absolute() for result in results]
    policy = [] if _POLICY_PATH.value is None else [f"--policy_path={_POLICY_PATH.value}"]
    return [*policy, *(f"--decisions={file}" for file in files), f"--clang_path={clang}", "--output_dir=PREFIX"]


def _headroom(results: Sequence[SearchResult], projects: Mapping[str, Sequence[Module]]) -> Table:
    """The table, which is written, too."""
    languages = [", ".join(sorted({module.language() for module in projects[each.name]})) for each in results]
    table = report.headroom_table(zip(results, languages, strict=True), _BUDGETS.value)
    path: Path = _OUTPUT_DIR.value / "headroom.csv"
    write_text(path, csv_text(table.records()))
    return table


if __name__ == "__main__":
    entry()
