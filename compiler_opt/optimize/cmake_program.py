"""A CMake project as a program: configured again in folders of our own, with the settings of the user's build.

The options that every file is to be compiled with are put at the end of CMake's rule for compiling
(`CMAKE_<LANG>_COMPILE_OBJECT`), where they win over whatever level the project itself asks for. Targets and their
files come from CMake's File API (https://cmake.org/cmake/help/latest/manual/cmake-file-api.7.html).
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from compiler_opt.corpus.builds.database import CompileCommand, commands_of_database
from compiler_opt.corpus.builds.objects import ObjectFile
from compiler_opt.errors import ConfigError, CorpusError, ToolchainError
from compiler_opt.files import write_atomically
from compiler_opt.llvm import processes
from compiler_opt.optimize.cmake_cache import CMakeCache, Entry, initial_cache
from compiler_opt.optimize.program import (
    C_SUFFIXES,
    CXX_SUFFIXES,
    Built,
    Kind,
    Program,
    Source,
    Target,
    Variant,
    build_environment,
    source_key,
)

_LANGUAGES = ("C", "CXX")
_KINDS = {
    "EXECUTABLE": Kind.EXECUTABLE,
    "SHARED_LIBRARY": Kind.SHARED,
    "MODULE_LIBRARY": Kind.SHARED,
    "STATIC_LIBRARY": Kind.STATIC,
    "OBJECT_LIBRARY": Kind.OBJECTS,
}
_GENERATORS = {"Ninja": "Ninja", "Ninja Multi-Config": "Ninja", "Unix Makefiles": "Unix Makefiles"}
_TOOLS = {"Ninja": ("ninja", "ninja-build"), "Unix Makefiles": ("make", "make")}
"""By generator: the program that builds, and its package."""

_QUERY = Path(".cmake/api/v1/query/codemodel-v2")
_REPLY = Path(".cmake/api/v1/reply")
_CONFIGURE_TIMEOUT_S = 3600.0
_PROGRESS = re.compile(rb"^\[\s*(\d+)(?:/(\d+)|%)\]", re.MULTILINE)
_TARGET_FOLDER = re.compile(r"(?:(?P<folder>.*)/)?CMakeFiles/(?P<target>[^/]+)\.dir/")
_MAX_REPLY_BYTES = 1 << 28


class CMakeProgram(Program):
    """See `Program`."""

    def __init__(self, build_dir: Path, jobs: int):
        """Looks at the user's build.

        Args:
          build_dir: the user's configured build folder; nothing is written there.
          jobs: compilers at a time.

        Raises:
          ConfigError: it is none that a copy can be made of.
          ToolchainError: CMake or the build tool is missing.
        """
        self._cache = CMakeCache.read(build_dir)
        source, folder = self._cache.source, self._cache.folder
        if not (source / "CMakeLists.txt").is_file():
            raise ConfigError(f"{folder}: was configured for {source}, which holds no CMakeLists.txt any more")
        if source.resolve() == folder.resolve():
            raise ConfigError(
                f"{folder}: is an in-source build, whose generated files would get into every copy of it; configure "
                f"one in a folder of its own: cmake -S {source} -B BUILD"
            )
        generator = self._cache.get("CMAKE_GENERATOR")
        if generator not in _GENERATORS:
            raise ConfigError(f"{folder}: expected a generator out of {', '.join(_GENERATORS)}, found {generator!r}")
        self._generator = _GENERATORS[generator]
        self._cmake = _installed(self._cache.get("CMAKE_COMMAND"), "cmake", "cmake")
        self._ctest = self._cache.get("CMAKE_CTEST_COMMAND") or str(self._cmake.with_name("ctest"))
        self._make = _installed(self._cache.get("CMAKE_MAKE_PROGRAM"), *_TOOLS[self._generator])
        self._jobs = jobs
        self.name = self._cache.get("CMAKE_PROJECT_NAME") or source.name

    def identity(self) -> Mapping[str, str]:
        settings = {name: entry.value for name, entry in self._cache.settings().items()}
        return {
            "source folder": str(self._cache.source),
            "CMake settings": json.dumps(settings | {"CMAKE_BUILD_TYPE": self._cache.build_type}),
        }

    def notes(self) -> Sequence[str]:
        build_type = self._cache.build_type
        levels = _levels(self._cache, build_type)
        notes = [
            f"Every file is compiled at -Oz, whatever level the project asks for (the build at hand, of type "
            f"{build_type or '(none)'}: {', '.join(levels) or '-O0'})."
        ]
        if self._cache.is_on("CMAKE_INTERPROCEDURAL_OPTIMIZATION") or "-flto" in _flags(self._cache, build_type):
            notes.append("Link-time optimisation, which the user's build has, is switched off.")
        if not build_type:
            notes.append(
                "The build has no type, so assertions are compiled in; -DCMAKE_BUILD_TYPE=Release leaves them out."
            )
        return notes

    def compilers(self) -> tuple[str, ...]:
        """The compilers of the user's build, C++ first."""
        names = (self._cache.get(f"CMAKE_{language}_COMPILER") for language in ("CXX", "C"))
        return tuple(name for name in names if name)

    def prepare(self, variant: Variant) -> None:
        folder = variant.folder
        settings = self._cache.settings()
        for language, compiler in (("C", variant.compilers.c), ("CXX", variant.compilers.cxx)):
            settings[f"CMAKE_{language}_COMPILER"] = Entry("FILEPATH", str(compiler))
            options = " ".join(variant.options)
            settings[f"CMAKE_{language}_COMPILE_OBJECT"] = Entry(
                "STRING",
                f"<CMAKE_{language}_COMPILER> <DEFINES> <INCLUDES> <FLAGS> {options} -o <OBJECT> -c <SOURCE>",
            )
        settings |= {
            "CMAKE_AR": Entry("FILEPATH", str(variant.compilers.ar)),
            "CMAKE_RANLIB": Entry("FILEPATH", str(variant.compilers.ranlib)),
            "CMAKE_BUILD_TYPE": Entry("STRING", self._cache.build_type),
            "CMAKE_MAKE_PROGRAM": Entry("FILEPATH", str(self._make)),
            "CMAKE_EXPORT_COMPILE_COMMANDS": Entry("BOOL", "ON"),
            "CMAKE_INTERPROCEDURAL_OPTIMIZATION": Entry("BOOL", "OFF"),
        }
        script = folder.with_name(f"{folder.name}.cmake")
        write_atomically(script, initial_cache(settings).encode("utf-8", "surrogateescape"))
        write_atomically(folder / _QUERY, b"")
        command = [str(self._cmake), "-G", self._generator, "-C", str(script)]
        command += ["-S", str(self._cache.source), "-B", str(folder)]
        log = self._log(variant, "configure")
        result = processes.run_logged(command, log, timeout_s=_CONFIGURE_TIMEOUT_S, environment=build_environment())
        if not result.ok:
            raise ConfigError(f"{folder}: CMake does not configure it: {first_error(log, result)}; see {log}")
        self._check_compilers(variant)

    def _check_compilers(self, variant: Variant) -> None:
        """A project or toolchain file may insist on a compiler of its own."""
        commands = list(self._commands(variant))
        if not commands:
            raise ConfigError(
                f"{self._cache.folder}: the project {self.name} has no C or C++ source; there is nothing to optimise"
            )
        expected = {str(variant.compilers.c), str(variant.compilers.cxx)}
        for command in commands:
            # A launcher that the project itself sets may come first.
            if not expected & set(command.arguments[:4]):
                raise ConfigError(
                    f"{self._cache.source}: the project compiles {command.file} with {command.arguments[0]}, whatever "
                    f"compiler CMake is told to use; expected {' or '.join(sorted(expected))}"
                )

    def build(self, variant: Variant, on_progress: Callable[[int, int], object]) -> Built:
        log = self._log(variant, "build")

        def report(output: bytes) -> None:
            for done, total in _PROGRESS.findall(output)[-1:]:
                on_progress(int(done), int(total or 100))

        # Not `cmake --build`, which would die of a signal and leave the build tool behind.
        command = [str(self._make), "-j", str(self._jobs)]
        result = processes.run_logged(
            command, log, cwd=variant.folder, environment=build_environment(), on_output=report
        )
        if not result.ok:
            raise ConfigError(f"{variant.folder}: it does not build: {first_error(log, result)}; see {log}")
        return Built(result.cpu_s, log)

    def targets(self, variant: Variant) -> tuple[Target, ...]:
        return tuple(
            target
            for target in self._configured_targets(variant)
            if target.kind is Kind.OBJECTS or (variant.folder / target.artifact).is_file()
        )

    def _configured_targets(self, variant: Variant) -> Iterator[Target]:
        codemodel = _reply(variant.folder)
        configuration = codemodel["configurations"][0]
        projects = configuration["projects"]
        entries = configuration["targets"]
        names = {entry["id"]: entry["name"] for entry in entries}
        for entry in entries:
            target = _json(variant.folder / _REPLY / entry["jsonFile"])
            if target["type"] not in _KINDS:
                continue
            kind = _KINDS[target["type"]]
            artifacts = [artifact["path"] for artifact in target.get("artifacts", [])]
            project = projects[entry["projectIndex"]]
            yield Target(
                name=entry["name"],
                kind=kind,
                artifact="" if kind is Kind.OBJECTS or not artifacts else artifacts[0],
                uses=tuple(names[used["id"]] for used in target.get("dependencies", []) if used["id"] in names),
                installed="install" in target,
                project=project["name"] if "parentIndex" in project else "",
            )

    def sources(self, variant: Variant) -> tuple[Source, ...]:
        sources = []
        known: set[str] = set()
        for command in self._commands(variant):
            name = Path(os.path.relpath(command.output, variant.folder)).as_posix()
            if name.startswith("../") or name in known or not name.endswith(".o"):
                continue  # Precompiled headers are compiled too.
            if not command.output.is_file():
                continue  # It is not built by default.
            known.add(name)
            match = _TARGET_FOLDER.match(name)
            sources.append(
                Source(
                    ObjectFile(command.output, name),
                    match["target"] if match else "",
                    source_key(command.arguments, command.file),
                )
            )
        return tuple(sources)

    def _commands(self, variant: Variant) -> Iterator[CompileCommand]:
        """The commands that compile C and C++."""
        path = variant.folder / "compile_commands.json"
        if path.is_file():
            for command in commands_of_database(path):
                if command.file.endswith((*C_SUFFIXES, *CXX_SUFFIXES)) and command.arguments:
                    yield command

    def test_programs(self, variant: Variant) -> frozenset[str]:
        files = {(variant.folder / target.artifact).resolve(): target for target in self.targets(variant)}
        words = {Path(word) for test in self._tests(variant) for word in test.get("command", [])}
        run = (files.get(word.resolve()) for word in words if word.is_absolute())
        return frozenset(target.name for target in run if target is not None and target.kind is Kind.EXECUTABLE)

    def test_command(self, variant: Variant) -> tuple[str, ...]:
        if not self._tests(variant):
            return ()
        return (self._ctest, "--output-on-failure", "--timeout", "600", "-j", str(self._jobs))

    def _tests(self, variant: Variant) -> list[dict[str, Any]]:
        """What `ctest` would run."""
        if not Path(self._ctest).is_file():
            return []
        result = processes.run([self._ctest, "--show-only=json-v1"], cwd=variant.folder)
        try:
            return list(json.loads(result.stdout)["tests"]) if result.ok else []
        except (ValueError, KeyError, TypeError):
            return []

    @staticmethod
    def _log(variant: Variant, step: str) -> Path:
        return variant.folder.parent / "logs" / f"{variant.folder.name}-{step}.log"


def first_error(log: Path, result: processes.ProcessResult) -> str:
    """The first line of a log that tells of an error, else how the process ended."""
    if result.timed_out:
        return "it ran out of time"
    with log.open(errors="replace") as file:
        for line in file:
            if re.search(r"\berror\b:|CMake Error|\*\*\* ", line):
                following = next(file, "").strip() if line.startswith("CMake Error") else ""
                return f"{line.strip()} {following}".strip()[:300]
    return result.describe()


def _installed(recorded: str, name: str, package: str) -> Path:
    """A program that the build was configured with, or whichever there is of that name."""
    for path in (recorded, shutil.which(name)):
        if path and os.access(path, os.X_OK) and Path(path).is_file():
            return Path(path)
    gone = f" ({recorded} is gone)" if recorded else ""
    raise ToolchainError(f"{name}: no such program{gone}; install the package {package}")


def _flags(cache: CMakeCache, build_type: str) -> str:
    names = (f"CMAKE_{language}_FLAGS{suffix}" for language in _LANGUAGES for suffix in ("", f"_{build_type.upper()}"))
    return " ".join(cache.get(name) for name in names)


def _levels(cache: CMakeCache, build_type: str) -> list[str]:
    return list(dict.fromkeys(re.findall(r"(?<!\S)-O\w*", _flags(cache, build_type))))


def _reply(folder: Path) -> dict[str, Any]:
    """The code model that CMake has written for us."""
    indexes = sorted((folder / _REPLY).glob("index-*.json"))
    try:
        objects = _json(indexes[-1])["objects"]
        [found] = [item for item in objects if item["kind"] == "codemodel"]
        return _json(folder / _REPLY / found["jsonFile"])
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise ToolchainError(f"{folder}: CMake does not tell its targets; expected CMake >= 3.14") from error


def _json(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            value = json.loads(file.read(_MAX_REPLY_BYTES))
    except (OSError, ValueError) as error:
        raise CorpusError(f"{path}: cannot be read ({error}); remove the folder it is in, and run this again") from None
    if not isinstance(value, dict):
        raise CorpusError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value
