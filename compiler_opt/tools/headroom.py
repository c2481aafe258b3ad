"""Measures what a search can win in each project of a corpus, before any training: its headroom.

    python -m compiler_opt.tools.headroom --data_path=CORPUS --output_dir=OUTPUT --modules_per_project=8

searches a sample of the modules of each project, from LLVM's heuristic, and prints what is won in their linked text
after 50, 100, 200 and 500 compiles a module, as far as the budget goes. `OUTPUT/headroom.csv` has the same table. After
an interruption, the same command continues.
"""

import contextlib

from absl import flags

from compiler_opt.collect.rollout import DefaultPolicy
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.files import check_folder_writable, exclusive_directory, write_text
from compiler_opt.llvm.inliner_plugin import inliner_plugin
from compiler_opt.llvm.toolchain import probe
from compiler_opt.problems.inlining import PROBLEM
from compiler_opt.report.table import csv_text
from compiler_opt.search import report
from compiler_opt.search.program_search import search
from compiler_opt.search.progress_bar import search_bar
from compiler_opt.search.search import SearchSettings
from compiler_opt.tools import entry_point, shared_flags
from compiler_opt.tools.entry_point import echo

_CORPUS = shared_flags.CorpusFlags()
_OUTPUT_DIR = shared_flags.required_path("output_dir", "Folder for the results, with a folder for each project.")
_PROJECTS = flags.DEFINE_list("projects", [], "Comma-separated projects of the corpus to measure; by default all.")
_MODULES = flags.DEFINE_integer("modules_per_project", 8, "Modules to search in each project, drawn at random.", 1)
_BUDGETS = flags.DEFINE_list(
    "budgets", ["50", "100", "200", "500"], "Compiles a module to show; the last one is the budget of the search."
)
_SEED = shared_flags.seed("the sample and the search's random moves")
_CLANG_PATH = shared_flags.clang_path()
_NUM_WORKERS = shared_flags.num_workers()

_OUTPUT_NAME = "headroom.csv"


def _check_budgets(values: list[str]) -> bool:
    numbers = [int(value) if value.isdecimal() else 0 for value in values]
    return bool(numbers) and min(numbers) >= 3 and numbers == sorted(numbers)


flags.register_validator("budgets", _check_budgets, "expected ascending numbers of 3 or more, such as 50,100")


@entry_point.command
def entry() -> None:
    corpus = _CORPUS.filtered(_CORPUS.load())
    if _PROJECTS.value:
        corpus = corpus.select(projects=_PROJECTS.value)
    toolchain = probe(_CLANG_PATH.value)
    corpus.check_compiler(toolchain.version, toolchain.clang)
    check_folder_writable(_OUTPUT_DIR.value)
    inliner_plugin(toolchain)
    num_workers = entry_point.num_workers(_NUM_WORKERS.value)
    budgets = [int(value) for value in _BUDGETS.value]
    samples = corpus.sample(_MODULES.value, _SEED.value).projects()

    results = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(exclusive_directory(_OUTPUT_DIR.value, "--output_dir"))
        bar = stack.enter_context(search_bar(budgets[-1] * sum(map(len, samples.values()))))
        pool = stack.enter_context(WorkerPool(toolchain, PROBLEM, num_workers))
        for name, sample in samples.items():
            bar.begin(name)
            result = search(
                sample,
                DefaultPolicy(PROBLEM),
                pool,
                PROBLEM,
                toolchain,
                SearchSettings(budgets[-1], seed=_SEED.value, min_modules=num_workers),
                name=name,
                folder=_OUTPUT_DIR.value / name,
                on_progress=bar.show,
            )
            languages = {module.language() for module in sample}
            results.append((result, ", ".join(sorted(languages))))
            table = report.headroom_table(results, budgets)
            rows = [dict(zip(table.head, map(str, row), strict=True)) for row in table.rows]
            write_text(_OUTPUT_DIR.value / _OUTPUT_NAME, csv_text(rows))
    if not any(each.num_decisions for each, _ in results):
        shared_flags.warn_undecided(corpus, toolchain)
    for line in [*table.lines(), *(line for each, _ in results for line in report.remarks(each))]:
        echo(line)


if __name__ == "__main__":
    entry()
