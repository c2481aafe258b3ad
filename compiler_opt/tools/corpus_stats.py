"""What a corpus consists of.

    python -m compiler_opt.tools.corpus_stats --data_path=$CORPUS --output_path=$STATISTICS

prints modules, functions, call sites, languages, optimisation levels, targets, copies and sizes; $STATISTICS gets all
of it as statistics.json and modules.csv, and two plots. With --decisions each module is compiled once, to count what
the compiler's default decides in it.
"""

import contextlib
from pathlib import Path

from absl import flags
from tqdm import tqdm

from compiler_opt.collect.baseline import count_decisions
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus import statistics
from compiler_opt.corpus.statistics import Statistics
from compiler_opt.evaluation.output import csv_text
from compiler_opt.files import check_folder_writable, exclusive_directory, write_atomically, write_json
from compiler_opt.llvm.toolchain import probe
from compiler_opt.problems import problem as problems
from compiler_opt.report import corpus_report
from compiler_opt.tools import corpus_flags, entry_point, printing

_DATA_PATH = flags.DEFINE_string("data_path", None, f"The corpus: {corpus_flags.DATA_PATH}.", required=True)
_OUTPUT_PATH = flags.DEFINE_string(
    "output_path", None, "A folder that gets statistics.json, modules.csv and the plots."
)
_CLANG_PATH = flags.DEFINE_string(
    "clang_path", None, "The compiler whose opt is used; by default the newest that is installed."
)
_MODULE_FILTER = flags.DEFINE_string("module_filter", None, corpus_flags.MODULE_FILTER)
_DECISIONS = flags.DEFINE_bool("decisions", False, "Count decisions too, which takes a compilation of each module.")
_COMPILE_TASK = flags.DEFINE_string("compile_task", "inlining", "What --decisions counts.")
_TRUST_CORPUS = flags.DEFINE_bool("trust_corpus", False, corpus_flags.TRUST_CORPUS)
_NUM_WORKERS = flags.DEFINE_integer("num_workers", None, "Processes at a time; by default one per CPU.", 1)


@entry_point.command
def entry() -> None:
    output = Path(_OUTPUT_PATH.value) if _OUTPUT_PATH.value else None
    if output is not None:
        check_folder_writable(output)
    problem = problems.load(_COMPILE_TASK.value) if _DECISIONS.value else None
    corpus = corpus_flags.load(_DATA_PATH.value, trusted=_TRUST_CORPUS.value, module_filter=_MODULE_FILTER.value)
    toolchain = probe(_CLANG_PATH.value)
    corpus.check_compiler(toolchain.version, toolchain.clang)
    with exclusive_directory(output, "--output_path") if output is not None else contextlib.nullcontext():
        num_workers = entry_point.num_workers(_NUM_WORKERS.value)
        found = statistics.gather(corpus.modules, toolchain.tool("opt"), toolchain.target, num_workers)
        facts = list(tqdm(found, "counting", len(corpus.modules), unit="module", disable=None))
        if problem is not None:
            with WorkerPool(toolchain, problem, num_workers) as pool:
                counted = count_decisions(corpus.modules, pool, problem)
            facts = [
                statistics.with_decisions(each, counted.counts.get(each.name), counted.failures.get(each.name))
                for each in facts
            ]
        result = Statistics(tuple(facts))
        printing.echo(corpus_report.table(result))
        if output is not None:
            _write(result, output)


def _write(result: Statistics, output: Path) -> None:
    content = result.to_json()
    write_json(output / "statistics.json", content)
    rows = csv_text(content["modules"])
    write_atomically(output / "modules.csv", rows.encode("utf-8", "backslashreplace"))
    for name, picture in corpus_report.plots(result).items():
        write_atomically(output / name, picture)


if __name__ == "__main__":
    entry()
