"""Builds of LLVM's own programs, one for each way to compile, whose front end runs once, and what they measure.

FOLDER/bitcode/               by object, the bitcode that all builds compile
FOLDER/build/WAY/             a CMake build each, which ninja continues
FOLDER/modules/               bitcode for `opt` to optimise
FOLDER/logs/
"""

import dataclasses
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.bitcode_launcher import CPU_SUFFIX
from compiler_opt.errors import CompileError
from compiler_opt.files import parse_json
from compiler_opt.llvm import processes
from compiler_opt.llvm.object_file import read_parts
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.measure.benchmark import Benchmark
from compiler_opt.progress_bar import progress_bar
from compiler_opt.report.formatting import bytes_text, change_text
from compiler_opt.report.table import Table

PLAIN, OPT = "plain", "opt"

MODULES = ("lib/Support/regcomp.c", "lib/Support/StringRef.cpp", "lib/Demangle/ItaniumDemangle.cpp")
"""Sources of LLVM that its own `opt` optimises, to measure its speed."""

_LAUNCHER = Path(__file__).with_name("bitcode_launcher.py")
_TIMEOUT_S = 600.0
_DATABASE = "compile_commands.json"
_STEP = re.compile(rb"^\[(\d+)/(\d+)\] ", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Record:
    """One program in one way.

    Attributes:
      program: its name.
      way: `PLAIN`, or what the compiler was deployed with.
      num_objects: that the program and its libraries consist of, without assembly.
      code: bytes of machine code.
      text: bytes of text, as `llvm-size` counts it.
      file: bytes of the file.
      front_end_s: CPU seconds that their bitcode took, once for all ways.
      compile_s: CPU seconds that it took to compile it.
      instructions: that `opt` executes to optimise `MODULES`; 0 for other programs.
    """

    program: str
    way: str
    num_objects: int
    code: int
    text: int
    file: int
    front_end_s: float
    compile_s: float
    instructions: int = 0


@dataclasses.dataclass(frozen=True)
class LlvmBuild:
    """A build in one way.

    Attributes:
      way: its name.
      compiler: makes objects of bitcode.
      toolchain: plain clang, which makes the bitcode, and links.
      folder: of all builds.
    """

    way: str
    compiler: Path
    toolchain: Toolchain
    folder: Path

    @property
    def build(self) -> Path:
        """The folder of this build."""
        return self.folder / "build" / self.way

    @property
    def bitcode(self) -> Path:
        """The folder of the bitcode."""
        return self.folder / "bitcode"

    @property
    def compilers(self) -> dict[str, Path]:
        """Plain clang by language, as CMake knows it."""
        return {"C": self.toolchain.clang, "CXX": self.toolchain.tool("clang++")}

    def configure(self, source: Path, settings: Sequence[str]) -> None:
        """Configures the build by options of CMake, unless that is done; raises CompileError if it fails."""
        if (self.build / "build.ninja").exists():
            return
        launcher = ";".join([sys.executable, "-IS", str(_LAUNCHER), str(self.bitcode), str(self.compiler)])
        words = [*settings, "-DCMAKE_BUILD_TYPE=MinSizeRel", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"]
        words.append(f"-DCMAKE_EXE_LINKER_FLAGS=--ld-path={self.toolchain.tool('ld.lld')}")
        for language, compiler in self.compilers.items():
            words += [f"-DCMAKE_{language}_COMPILER={compiler}", f"-DCMAKE_{language}_FLAGS_MINSIZEREL=-Oz -DNDEBUG"]
            words.append(f"-DCMAKE_{language}_COMPILER_LAUNCHER={launcher}")
        self._run(["cmake", "-G", "Ninja", "-S", str(source), "-B", str(self.build), *words], "configure")

    def objects(self, program: str) -> list[Path]:
        """The objects that a program and its libraries consist of, built or not, without those of assembly.

        Raises:
          CompileError: the build has no such program.
        """
        done = processes.run(["ninja", "-C", str(self.build), "-t", "inputs", program], timeout_s=_TIMEOUT_S)
        if not done.ok:
            raise CompileError(f"{program}: not a target of the build: {done.describe()}")
        lines = done.stdout.decode().splitlines()
        return [self.build / line for line in lines if line.endswith(".o") and not line.endswith((".S.o", ".s.o"))]

    def make(self, program: str, jobs: int) -> None:
        """Builds a program, going on where an earlier call was interrupted; raises CompileError if it fails."""
        with progress_bar(description=f"{program}, {self.way}", unit="step") as bar:

            def show(output: bytes) -> None:
                for done, total in _STEP.findall(output)[-1:]:
                    bar.total = int(total)
                    bar.update(int(done) - bar.n)

            self._run(["ninja", "-C", str(self.build), f"-j{jobs}", program], program, show)

    def measure(self, program: str) -> Record:
        """What a program that is built has become, and has cost."""
        path = (self.build / "bin" / program).resolve()
        objects, parts = self.objects(program), read_parts(path)
        bitcode = [self.bitcode / f"{each.relative_to(self.build)}.bc" for each in objects]
        front_end_s, compile_s = (_cpu_s(files) for files in (bitcode, objects))
        size = path.stat().st_size
        return Record(program, self.way, len(objects), parts.code, parts.total, size, front_end_s, compile_s)

    def _run(self, command: Sequence[str], name: str, on_output: Callable[[bytes], object] = lambda _: None) -> None:
        log = self.folder / "logs" / f"{name}-{self.way}.log"
        done = processes.run_logged(command, log, on_output=on_output)
        if not done.ok:
            raise CompileError(f"{name}, {self.way}: {done.describe()[:300]}; see {log}")


def make_modules(plain: LlvmBuild, sources: Sequence[str], clang: Path) -> list[Path]:
    """Bitcode of some sources of a build by a compiler that is as old as the program that reads it, for -O2.

    Raises:
      CompileError: one cannot be compiled.
    """
    commands = {entry["file"]: entry["command"] for entry in parse_json((plain.build / _DATABASE).read_bytes())}
    modules = []
    for source in sources:
        path = plain.folder / "modules" / f"{Path(source).name}.bc"
        modules.append(path)
        if path.exists():
            continue
        path.parent.mkdir(exist_ok=True)
        words = shlex.split(next(command for file, command in commands.items() if file.endswith(source)))
        # Some versions of CMake put the launcher before the compiler.
        words = words[next(n for n, word in enumerate(words, 1) if Path(word) in plain.compilers.values()) :]
        unfinished = path.with_suffix(".unfinished")
        added = ["-O2", "-Xclang", "-disable-llvm-passes", "-emit-llvm", "-o", str(unfinished)]
        done = processes.run([str(clang), *words, *added], timeout_s=_TIMEOUT_S, cwd=plain.build)
        if not done.ok:
            raise CompileError(done.describe())
        unfinished.replace(path)
    return modules


def count_instructions(build: LlvmBuild, plain: LlvmBuild, modules: Sequence[Path]) -> int:
    """What `opt` executes to optimise modules, under callgrind.

    Raises:
      BenchmarkError: it prints something else than the plain build.
    """
    benchmark = Benchmark.of([f"bin/{OPT} -O2 -S {module} -o -" for module in modules], _TIMEOUT_S)
    reference = benchmark.reference(plain.build)
    return benchmark.measure(build.build, reference, simulate=False).total.instructions


def report(records: Sequence[Record]) -> Table:
    """A table, in which the changes are to the plain record, the first one of each program."""
    rows = []
    for record in records:
        if record.way == PLAIN:
            plain = record
        after, before = (
            (each.text, each.code, each.file, each.front_end_s + each.compile_s, each.instructions)
            for each in (record, plain)
        )
        pairs = zip(after, before, strict=True)
        changes = [change_text(new / old - 1) if old and record is not plain else "" for new, old in pairs]
        numbers = [str(record.num_objects), bytes_text(record.text), changes[0], bytes_text(record.code), *changes[1:]]
        rows.append([record.program if record is plain else "", record.way, *numbers])
    head = ["program", "way", "objects", "text", "change", "code", "change", "file", "CPU", "instructions"]
    return Table(head, rows, num_text_columns=2)


def is_larger(record: Record | None, plain: Record) -> bool:
    """Whether a program, if there is one, has more text or more code than plain."""
    return record is not None and (record.text > plain.text or record.code > plain.code)


def _cpu_s(files: Sequence[Path]) -> float:
    return sum(float(Path(f"{file}{CPU_SUFFIX}").read_text()) for file in files)
