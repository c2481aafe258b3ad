"""Builds the programs of a corpus's projects in several variants, for `rank_cost_models`, and prints its arguments.

    python -m studies.build_variants --data_path=$CORPORA/train --output_dir=$BUILDS
    python -m studies.rank_cost_models --builds_dir=$BUILDS --benchmark=... --output_dir=$OUT

Writes BUILDS/VARIANT/PROJECT/NAME. Variants differ in how the modules of the corpus are compiled: in how much is
inlined (`inline-*`), or in how registers are allocated: by options of a stock clang (`regalloc-*`), and by the baseline
policies of the problem regalloc_eviction (`evict-*`). A program's own file and the libraries are the same in all.
Modules are compiled as their corpus says, with an address map of their blocks; fetch_corpus --optimization_level=O2
makes a corpus for speed. Objects that are there already are kept. A variant in which a module cannot be compiled lacks
the programs of its project.
"""

from pathlib import Path

from absl import flags

from benchmarks.corpus_programs import PROGRAM_FLAG, programs_of
from compiler_opt.corpus.description import Corpus
from compiler_opt.errors import CompileError, ConfigError
from compiler_opt.files import check_folder_writable, exclusive_directory
from compiler_opt.llvm.toolchain import probe
from compiler_opt.progress_bar import progress_bar
from compiler_opt.tools import entry_point, shared_flags
from studies.ranking.variants import BASE, OBJECTS, OPTIONS, PLACE, POLICIES, objects_of

_DATA_PATH = shared_flags.required_path("data_path", "The corpus.")
_OUTPUT_DIR = shared_flags.required_path("output_dir", "Folder for the builds: VARIANT/PROJECT/NAME.")
_PROGRAM = flags.DEFINE_multi_string("program", [], PROGRAM_FLAG)
_VARIANT = flags.DEFINE_multi_string("variant", [], "A variant to build beside default; by default all.")
_CLANG_PATH = shared_flags.clang_path()
_NUM_WORKERS = shared_flags.num_workers()


@entry_point.command
def entry() -> None:
    known = [*OPTIONS, *(f"evict-{name}" for name in POLICIES)]
    variants = [BASE, *(_VARIANT.value or known[1:])]
    for variant in variants:
        if variant not in known or variants.count(variant) > 1:
            raise ConfigError(f"--variant={variant}: expected different ones of {', '.join(known[1:])}")
    toolchain = probe(_CLANG_PATH.value)
    corpus = Corpus.load(str(_DATA_PATH.value))
    corpus.check_compiler(toolchain.version, toolchain.clang)
    output: Path = _OUTPUT_DIR.value
    check_folder_writable(output)
    programs = programs_of(corpus, _PROGRAM.value)
    projects = list(dict.fromkeys(program.project for program in programs))
    modules = {name: [module for module in corpus.modules if module.project == name] for name in projects}
    failures: list[str] = []
    with exclusive_directory(output, "--output_dir"):
        total = len(variants) * sum(map(len, modules.values()))
        with progress_bar(total=total, description="compiling", unit="module") as bar:
            for variant in variants:
                (output / variant / PLACE).mkdir(parents=True, exist_ok=True)
                for project in projects:
                    folder = output / OBJECTS / variant / project
                    try:
                        objects = objects_of(variant, modules[project], toolchain, folder, bar.update)
                        for program in programs:
                            if program.project == project:
                                path = output / variant / project / program.name
                                path.parent.mkdir(exist_ok=True)
                                program.link(objects, toolchain, path, ["-Wl,--build-id"])
                    except CompileError as error:
                        failures.append(f"left out {project} of {variant}: {error}")
    for line in failures:
        entry_point.warn(line)
    for program in programs:
        entry_point.echo(f"--benchmark={program.project}/{program.name} {PLACE}")


if __name__ == "__main__":
    entry()
