"""Measures what there is to win by evictions in programs that run: rules that are learnt by heart, by callgrind.

For each program of `benchmarks/programs/`, rules of eviction are searched for with which the program itself costs less
(`search/measured_rules.py`): one rule for all of its hot functions, then one for each. Nothing generalises here; the
figures say what the family of rules can gain where it knows the program and its input. The program's own file is
always compiled plainly, and every program has to print the same.

    python -m benchmarks.eviction_by_heart --data_path=$CORPUS --output_dir=$RESULT

An interrupted measurement continues with the same command; with more `--measurements`, what was measured is kept.
`$RESULT/PROGRAM/rules.json` has the rules. Requires valgrind (`apt-get install valgrind`).
"""

from pathlib import Path

from absl import flags

from benchmarks.corpus_programs import PROGRAM_FLAG, programs_of
from benchmarks.eviction_search import METRICS, PROBLEM, describe, search_program, summary
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.files import check_folder_writable, exclusive_directory
from compiler_opt.llvm.toolchain import probe
from compiler_opt.measure.callgrind import valgrind
from compiler_opt.problems import problem as problems
from compiler_opt.search.measured_rules import (
    MIN_MEASUREMENTS,
    RuleSearch,
    RuleSearchSettings,
)
from compiler_opt.tools import entry_point, shared_flags

_DATA_PATH = flags.DEFINE_string("data_path", None, "Corpus at -O2, such as fetch_corpus makes.", required=True)
_OUTPUT_DIR = shared_flags.required_path("output_dir", "Folder for measurements and rules, one for each program.")
_PROGRAM = flags.DEFINE_multi_string("program", [], PROGRAM_FLAG)
_METRIC = flags.DEFINE_enum("metric", "accesses", list(METRICS), "What rules should make less.")
_MEASUREMENTS = flags.DEFINE_integer("measurements", 40, "Runs of each program under callgrind.", MIN_MEASUREMENTS)
_SEED = shared_flags.seed("the sampled rules")
_CLANG_PATH = shared_flags.clang_path()
_NUM_WORKERS = shared_flags.num_workers()


@entry_point.command
def entry() -> None:
    toolchain, problem = probe(_CLANG_PATH.value), problems.load(PROBLEM)
    toolchain.require(PROBLEM)
    corpus = Corpus.load(_DATA_PATH.value)
    corpus.check_compiler(toolchain.version, toolchain.clang)
    valgrind()
    programs = programs_of(corpus, _PROGRAM.value)
    output: Path = _OUTPUT_DIR.value
    check_folder_writable(output)
    settings = RuleSearchSettings(_MEASUREMENTS.value, _SEED.value)
    found: dict[str, RuleSearch] = {}
    with (
        exclusive_directory(output, "--output_dir"),
        WorkerPool(toolchain, problem, entry_point.num_workers(_NUM_WORKERS.value)) as pool,
    ):
        for program in programs:
            found[program.name] = search_program(
                program, corpus, pool, toolchain, settings, METRICS[_METRIC.value], output / program.name
            )
            entry_point.echo("\n".join([program.name, *describe(found[program.name])]))
    entry_point.echo("\n".join(["all programs, own functions", *summary(found).lines()]))
    entry_point.echo(
        f"{toolchain.version_text}; --metric={_METRIC.value} --measurements={settings.measurements} "
        f"--seed={settings.seed}"
    )


if __name__ == "__main__":
    entry()
