"""Prints statistics of a corpus.

    compiler_opt corpus_stats --data_path=$CORPUS --output_dir=$STATISTICS

prints modules, functions, call sites, languages, optimisation levels, targets, copies and sizes, and writes them to
$STATISTICS as statistics.json, modules.csv and two plots. With --decisions, each module is compiled once to count the
default's decisions.
"""

import contextlib

from absl import flags

from compiler_opt.collect.baseline import count_decisions
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus import statistics
from compiler_opt.corpus.statistics import Statistics
from compiler_opt.files import exclusive_directory, write_json, write_text
from compiler_opt.progress_bar import progress_bar
from compiler_opt.report import corpus_report
from compiler_opt.report.table import csv_text
from compiler_opt.tools import entry_point, shared_flags

_CORPUS = shared_flags.CorpusFlags()
_OUTPUT_DIR = shared_flags.path("output_dir", "Folder for statistics.json, modules.csv and the plots.")
_CLANG_PATH = shared_flags.clang_path("The clang whose opt to use; by default the newest one installed.")
_DECISIONS = flags.DEFINE_bool("decisions", False, "Count the default's decisions, too, by compiling each module.")
_COMPILE_TASK = shared_flags.TaskFlag("inlining")
shared_flags.json()
_NUM_WORKERS = shared_flags.num_workers("Processes")


@entry_point.command
def entry() -> None:
    output = _OUTPUT_DIR.value
    problem = _COMPILE_TASK.load() if _DECISIONS.value else None
    corpus, toolchain = _CORPUS.read(_CLANG_PATH.value)
    with exclusive_directory(output, "--output_dir") if output is not None else contextlib.nullcontext():
        num_workers = entry_point.num_workers(_NUM_WORKERS.value)
        found = statistics.gather(corpus.modules, toolchain.tool("opt"), toolchain.target, num_workers)
        facts = list(progress_bar(found, "counting", len(corpus.modules), unit="module"))
        if problem is not None:
            with WorkerPool(toolchain, problem, num_workers) as pool:
                counted = count_decisions(corpus.modules, pool, problem)
            facts = [
                statistics.with_decisions(each, counted.counts.get(each.name), counted.failures.get(each.name))
                for each in facts
            ]
        result = Statistics(tuple(facts))
        entry_point.echo(corpus_report.table(result))
        content = result.to_json()
        entry_point.print_json(content)
        if output is not None:
            write_json(output / "statistics.json", content)
            write_text(output / "modules.csv", csv_text(content["modules"]))
            for name, picture in corpus_report.plots(result).items():
                write_text(output / name, picture)


if __name__ == "__main__":
    entry()
