"""Makes programs faster by fitted decisions, beside thresholds of the inliner and clang's own PGO; prints tables.

    python -m studies.fitted_speed --data_path=$CORPUS_O2/held_out --output_dir=$OUT --minutes=60

For each program of `benchmarks/programs/` whose project the corpus has, the project's modules are built plainly, with
other thresholds of the inliner (`inline-500`, or any other number) or other options of LLVM's
(`-inline-threshold=300 -hot-callsite-rel-freq=12`), with the profile of the same run (`pgo`), and with decisions that a
search has found on top of the profile (`pgo+search`); with --policy_path also under a policy (`policy`, `pgo+policy`).
The program's own file and the libraries are the same in all builds. Each build must print what the plain one prints.

Counts are callgrind's; *own* are those of the program's functions, without libraries. Text is the program's. Wall
time is the median ratio to the plain build in the same round, with its 95% interval. Make the corpus with
fetch_corpus --optimization_level=O2. What is complete is kept in $OUT, and searches continue, by the same command.
"""

import dataclasses
from pathlib import Path

from absl import flags

from benchmarks.corpus_programs import PROGRAM_FLAG, programs_of
from benchmarks.program_builds import PGO, SHIPPED, ProgramBuilds, llvm_options
from compiler_opt import pretrained
from compiler_opt.checked_values import convert
from compiler_opt.corpus.description import Corpus
from compiler_opt.errors import ConfigError
from compiler_opt.files import check_folder_writable, exclusive_directory, read_checked_json, write_checked_json
from compiler_opt.llvm.toolchain import probe
from compiler_opt.measure.callgrind import valgrind
from compiler_opt.tools import entry_point, shared_flags
from studies.speed_run import PGO_POLICY, PGO_SEARCH, POLICY, Results, SpeedRun, print_means, print_table

_DATA_PATH = shared_flags.required_path("data_path", "The corpus.")
_OUTPUT_DIR = shared_flags.required_path("output_dir", "Folder for builds, searches and results.")
_PROGRAM = flags.DEFINE_multi_string("program", [], PROGRAM_FLAG)
_VARIANT = flags.DEFINE_multi_string("variant", [], "A build beside the plain one; may be repeated; by default all.")
_POLICY_PATH = shared_flags.policy("policy_path", "A policy for inlining, for the variants policy and pgo+policy.")
_TEXT_PERCENT = flags.DEFINE_float(
    "text_percent", 5.0, "For searches: percent of the text that one percent of the instructions is worth.", 0.0
)
_MINUTES = flags.DEFINE_float("minutes", 60.0, "Minutes of each search.", 0.0)
_ROUNDS = flags.DEFINE_integer("rounds", 20, "Rounds of wall time; 0 for none.", 0)
_SEED = shared_flags.seed("the searches' random moves")
_CLANG_PATH = shared_flags.clang_path()
_NUM_WORKERS = shared_flags.num_workers()

_THRESHOLDS = ("inline-50", "inline-500", "inline-1000", "inline-3000")


@entry_point.command
def entry() -> None:
    known = [*([POLICY, PGO_POLICY] if _POLICY_PATH.value else []), PGO, PGO_SEARCH]
    variants = _VARIANT.value or [*_THRESHOLDS, *known]
    for variant in variants:
        is_known = variant in known or SHIPPED.fullmatch(variant) or llvm_options(variant) is not None
        if not is_known or variants.count(variant) > 1:
            choices = ", ".join(["inline-N", "LLVM's options -NAME=VALUE", "shipped", "shipped-trials-N", *known])
            raise ConfigError(f"--variant={variant}: expected different ones of {choices}")
    toolchain = probe(_CLANG_PATH.value)
    corpus = Corpus.load(str(_DATA_PATH.value))
    corpus.check_compiler(toolchain.version, toolchain.clang)
    valgrind()
    output: Path = _OUTPUT_DIR.value
    check_folder_writable(output)
    programs = programs_of(corpus, _PROGRAM.value)
    run = SpeedRun(
        toolchain,
        _MINUTES.value,
        _TEXT_PERCENT.value,
        _ROUNDS.value,
        _SEED.value,
        _NUM_WORKERS.value,
        pretrained.folder(_POLICY_PATH.value) if _POLICY_PATH.value else None,
    )
    found = []
    with exclusive_directory(output, "--output_dir"):
        for program in programs:
            path = output / program.name / "results.json"
            results = _kept(path)
            if results is None or results.settings != run.settings(variants):
                modules = [module for module in corpus.modules if module.project == program.project]
                results = run.measure(ProgramBuilds(program, modules, toolchain, path.parent), variants)
                write_checked_json(path, dataclasses.asdict(results))
            print_table(program.name, results)
            found.append(results)
    if len(found) > 1:
        print_means(found)


def _kept(path: Path) -> Results | None:
    """Results of an earlier run; None if there are none, or they are damaged."""
    try:
        return convert(read_checked_json(path), Results)
    except (OSError, ValueError):
        return None


if __name__ == "__main__":
    entry()
