"""Programs made of a corpus's modules: each file of `benchmarks/programs/`, linked with the objects of its project.

A file is called `PROJECT_NAME.c`, or `.cpp`. It is compiled plainly, and is the only part of a program that is no code
of the corpus. It declares by hand what it needs of the library, since a corpus has no headers. Programs take a folder
that is empty as their argument, which most ignore. What a program executes is kept by its name, so one that changes
gets another name.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.module import Module
from compiler_opt.cost_models.compiling import compile_object
from compiler_opt.errors import CompileError, ConfigError
from compiler_opt.llvm import processes
from compiler_opt.llvm.toolchain import Toolchain

_FOLDER = Path(__file__).parent / "programs"
_TIMEOUT_S = 900.0


@dataclasses.dataclass(frozen=True)
class ProgramSource:
    """The file of a program.

    Attributes:
      path: the file.
    """

    path: Path

    @property
    def name(self) -> str:
        """E.g. `h3_cells`."""
        return self.path.stem

    @property
    def project(self) -> str:
        """The project in a corpus whose modules it needs, e.g. `h3`."""
        return self.name.split("_")[0]

    def link(self, objects: Sequence[Path], toolchain: Toolchain, output: Path, added: Sequence[str] = ()) -> None:
        """Compiles the file, and links it with the project's objects.

        Args:
          objects: of all modules of the project.
          toolchain: the compiler; its lld links.
          output: the program.
          added: further options of clang's driver.

        Raises:
          CompileError: it cannot be compiled or linked.
          ToolchainError: there is no lld.
        """
        command = [
            str(toolchain.clang),
            f"--ld-path={toolchain.tool('ld.lld')}",
            "-O2",
            str(self.path),
            *map(str, objects),
            # Functions missing from the corpus are never called; the first of several mains is ours.
            *("-Wl,--unresolved-symbols=ignore-all", "-Wl,-z,muldefs"),
            *("-lstdc++", "-lm", "-lpthread", *added, "-o", str(output)),
        ]
        result = processes.run(command, timeout_s=_TIMEOUT_S)
        if not result.ok:
            raise CompileError(f"{self.path.name}: {result.describe()}")


PROGRAM_FLAG = "A program, such as h3_cells; may be repeated; by default all of the corpus's projects."
"""Help of --program, whose values `programs_of` takes."""


def programs_of(corpus: Corpus, names: Sequence[str] = ()) -> list[ProgramSource]:
    """The programs of the corpus's projects; with names, only those; raises ConfigError if there are none."""
    programs = [ProgramSource(path) for path in sorted(_FOLDER.glob("*.c*"))]
    found = {program.name: program for program in programs if program.project in corpus.projects()}
    if not found:
        raise ConfigError(f"{corpus.root}: holds none of the projects of {_FOLDER}")
    for name in names:
        if name not in found or names.count(name) > 1:
            raise ConfigError(f"--program={name}: expected different ones of {', '.join(found)}")
    return [found[name] for name in names or found]


def compile_objects(
    modules: Sequence[Module],
    toolchain: Toolchain,
    folder: Path,
    added: Sequence[str] = (),
    progress: Callable[[int], object] = lambda _: None,
) -> list[Path]:
    """Compiles modules as their corpus says, with `added` options of cc1; objects of an earlier call are kept.

    Raises:
      CompileError, CorpusError: one cannot be compiled.
    """
    folder.mkdir(parents=True, exist_ok=True)
    objects = []
    for module in modules:
        key = hashlib.sha256(module.content_digest())
        key.update(repr((toolchain.identity(), module.options(), tuple(added))).encode())
        path = folder / f"{key.hexdigest()[:32]}.o"
        if not path.exists():
            unfinished = folder / "unfinished.o"
            compile_object(module, toolchain, unfinished, added)
            unfinished.replace(path)
        objects.append(path)
        progress(1)
    return objects
