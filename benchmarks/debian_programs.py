"""Programs of Debian's source packages, configured for `compiler_opt optimize`, with two inputs each.

FOLDER/source/PACKAGE/        the package as apt has verified and unpacked it
FOLDER/PROGRAM/build/         a configured CMake build, or a compilation database
FOLDER/PROGRAM/inputs/        what the program reads
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import yaml

from benchmarks import program_inputs
from compiler_opt.checked_values import convert
from compiler_opt.errors import ConfigError
from compiler_opt.files import write_atomically, write_json
from compiler_opt.llvm import processes
from compiler_opt.llvm.toolchain import Toolchain

_INPUT = re.compile(r"\{([a-z-]+)/(\d+)(?:\.(\w+))?(?::(\w+))?\}")
"""Kind, size, compression, and the name of its file where that matters."""


class DebianProgram(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A program; for the attributes see the YAML file."""

    package: str
    language: str
    program: str
    training: Sequence[str]
    measuring: Sequence[str]
    root: str = "."
    cmake: Sequence[str] | None = None
    sources: Sequence[str] = ()
    flags: Sequence[str] = ()
    libraries: Sequence[str] = ()
    generated: Mapping[str, str] = {}

    @property
    def file(self) -> Path:
        """The program in a build of `optimize`."""
        return Path(self.program) if self.cmake is not None else Path("linked", self.program)

    def commands(self, lines: Sequence[str], folder: Path) -> list[str]:
        """Command lines that run in a build, whose inputs are written into the folder."""
        own = [line.replace("{program}", f"./{self.file}") for line in lines]
        return [_INPUT.sub(lambda match: shlex.quote(str(_write_input(match, folder))), line) for line in own]

    def configure(self, unpacked: Path, build: Path, toolchain: Toolchain) -> list[str]:
        """Configures a build of the package in a folder; returns the flags of `compiler_opt optimize` that name it.

        Raises:
          ConfigError: CMake fails.
        """
        [package] = (path.parent for path in unpacked.glob("*/debian") if path.is_dir())
        source = package / self.root
        compilers = [toolchain.clang, toolchain.tool("clang++")]
        if self.cmake is None:
            return self._write_database(source, build, compilers)
        settings = {
            "CMAKE_BUILD_TYPE": "Release",
            "CMAKE_C_COMPILER": compilers[0],
            "CMAKE_CXX_COMPILER": compilers[1],
            "BUILD_SHARED_LIBS": "OFF",
            **dict(each.split("=", 1) for each in self.cmake),
        }
        words = [f"-D{name}={value}" for name, value in settings.items()]
        command = ["cmake", "-G", "Ninja", "-S", str(source), "-B", str(build), *words]
        log = build.with_name("configure.log")
        if not processes.run_logged(command, log).ok:
            raise ConfigError(f"{self.package}: CMake fails; see {log}")
        return [f"--build_dir={build}"]

    def _write_database(self, source: Path, build: Path, compilers: Sequence[Path]) -> list[str]:
        build.mkdir(parents=True, exist_ok=True)
        for name, text in self.generated.items():
            write_atomically(build / name, text.encode())
        entries, objects = [], []
        for name in self.sources:
            objects.append(f"{name.replace('/', '-')}.o")
            compiler = compilers[not name.endswith(".c")]
            words = [compiler, *self.flags, f"-I{build}", "-c", name, "-o", build / objects[-1]]
            entries.append({"directory": str(source), "file": name, "arguments": [str(word) for word in words]})
        database = build / "compile_commands.json"
        write_json(database, entries)
        linker = str(compilers[self.language == "c++"])
        link = shlex.join([linker, *objects, "-o", self.program, *self.libraries])
        return [f"--compile_commands={database}", f"--link_command={link}"]


def load(path: Path) -> dict[str, DebianProgram]:
    """The programs of a YAML file; raises ValueError if it is wrong."""
    return convert(yaml.safe_load(path.read_text(encoding="utf-8"))["programs"], dict[str, DebianProgram])


def input_names(lines: Sequence[str]) -> list[tuple[str, int, str]]:
    """Kind, size and compression of each input that command lines name."""
    return [(kind, int(size), how) for line in lines for kind, size, how, _ in _INPUT.findall(line)]


def version(unpacked: Path) -> str:
    """The version of an unpacked source package."""
    [described] = unpacked.glob("*.dsc")
    return described.stem.partition("_")[2]


def _write_input(match: "re.Match[str]", folder: Path) -> Path:
    kind, size, how, name = (each or "" for each in match.groups())
    path = folder / f"{kind}-{size}{f'.{how}' if how else ''}" / (name or f"input{f'.{how}' if how else ''}")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, program_inputs.content(kind, int(size), how))
    return path
