"""Builds the programs of a corpus's projects for `cost_model profile`, and prints the arguments that profile them.

    python -m benchmarks.build_programs --data_path=$CORPORA/train --output_dir=$PROGRAMS

Modules are compiled as their corpus says, with an address map of their blocks; a program's own file has none, so only
code of the corpus is profiled. Objects that are there already are kept.
"""

from pathlib import Path

from benchmarks.corpus_programs import compile_objects, programs_of
from compiler_opt.corpus.description import Corpus
from compiler_opt.cost_models.throughput.address_map import FLAGS
from compiler_opt.files import check_folder_writable, exclusive_directory
from compiler_opt.llvm.toolchain import probe
from compiler_opt.progress_bar import progress_bar
from compiler_opt.tools import entry_point, shared_flags

_DATA_PATH = shared_flags.required_path("data_path", "The corpus.")
_OUTPUT_DIR = shared_flags.required_path("output_dir", "Folder for the programs: PROJECT/NAME.")
_CLANG_PATH = shared_flags.clang_path()

_PLACE = "place"


@entry_point.command
def entry() -> None:
    toolchain = probe(_CLANG_PATH.value)
    corpus = Corpus.load(str(_DATA_PATH.value))
    corpus.check_compiler(toolchain.version, toolchain.clang)
    output: Path = _OUTPUT_DIR.value
    check_folder_writable(output)
    programs = programs_of(corpus)
    modules = {
        project: [module for module in corpus.modules if module.project == project]
        for project in {program.project for program in programs}
    }
    with exclusive_directory(output, "--output_dir"):
        (output / _PLACE).mkdir(exist_ok=True)
        with progress_bar(total=sum(map(len, modules.values())), description="compiling", unit="module") as bar:
            objects = {
                project: compile_objects(each, toolchain, output / "objects" / project, FLAGS, bar.update)
                for project, each in modules.items()
            }
        for program in progress_bar(programs, "linking", unit="program"):
            path = output / program.project / program.name
            path.parent.mkdir(exist_ok=True)
            program.link(objects[program.project], toolchain, path, ["-Wl,--build-id"])
    for program in programs:
        entry_point.echo(f"--benchmark={program.project}/{program.name} {_PLACE}")


if __name__ == "__main__":
    entry()
