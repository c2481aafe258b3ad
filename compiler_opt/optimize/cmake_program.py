"""A CMake project as a program, configured in other folders with the settings of the user's build.

The options of a variant are put at the end of CMake's rule for compiling (`CMAKE_<LANG>_COMPILE_OBJECT`), where they
override the optimisation level that the project asks for.
"""

import json
import os
import re
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from compiler_opt.corpus.builds.database import CompileCommand, read_database
from compiler_opt.corpus.builds.objects import ObjectFile
from compiler_opt.errors import ConfigError, ToolchainError
from compiler_opt.files import write_atomically
from compiler_opt.llvm import processes
from compiler_opt.optimize.cmake_files import (
    API_QUERY,
    CMakeCache,
    Entry,
    configured_targets,
    initial_cache,
    toolchain_file,
)
from compiler_opt.optimize.program import (
    Kind,
    Program,
    Source,
    Target,
    TestSuite,
    Variant,
    build_environment,
    c_commands,
    source_key,
)
from compiler_opt.optimize.suites import CTest, CTestSuite, registered_tests

_LANGUAGES = ("C", "CXX")
_GENERATORS = {"Ninja": "Ninja", "Ninja Multi-Config": "Ninja", "Unix Makefiles": "Unix Makefiles"}
"""Generator of the user's build -> generator of its copies."""

_TOOLS = {"Ninja": ("ninja", "ninja-build"), "Unix Makefiles": ("make", "make")}
"""Generator -> build tool and its package."""

_CONFIGURE_TIMEOUT_S = 3600.0
_PROGRESS = re.compile(rb"^\[\s*(\d+)(?:/(\d+)|%)\]", re.MULTILINE)
_TARGET_FOLDER = re.compile(r"(?:(?P<folder>.*)/)?CMakeFiles/(?P<target>[^/]+)\.dir/")


class CMakeProgram(Program):
    """A program that CMake builds."""

    def __init__(self, build_dir: Path, jobs: int):
        """Reads the user's configured build folder, where nothing is written; `jobs` compilers run at a time.

        Raises:
          ConfigError: the build cannot be copied.
          ToolchainError: CMake or the build tool is missing.
        """
        self._cache = CMakeCache.read(build_dir)
        source, folder = self._cache.source, self._cache.folder
        if not (source / "CMakeLists.txt").is_file():
            raise ConfigError(f"{folder}: was configured for {source}, which no longer has a CMakeLists.txt")
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

    def notes(self, level: str) -> Sequence[str]:
        build_type = self._cache.build_type
        flags = self._flags()
        levels = ", ".join(dict.fromkeys(re.findall(r"(?<!\S)-O\w*", flags))) or "-O0"
        notes = [
            f"Every file is compiled at {level}, whatever level the project asks for (the given build, of type "
            f"{build_type or '(none)'}: {levels})."
        ]
        if self._cache.is_on("CMAKE_INTERPROCEDURAL_OPTIMIZATION") or "-flto" in flags:
            notes.append("Link-time optimisation, which the given build uses, is switched off.")
        if not build_type:
            notes.append("The build has no type, so assertions are enabled; -DCMAKE_BUILD_TYPE=Release disables them.")
        return notes

    def _flags(self) -> str:
        suffixes = ("", f"_{self._cache.build_type.upper()}")
        return " ".join(self._cache.get(f"CMAKE_{lang}_FLAGS{suffix}") for lang in _LANGUAGES for suffix in suffixes)

    def compilers(self) -> tuple[str, ...]:
        """The compilers of the user's build, C++ first."""
        names = (self._cache.compiler(language) for language in ("CXX", "C"))
        return tuple(name for name in names if name)

    def prepare(self, variant: Variant) -> None:
        folder = variant.folder
        settings = self._cache.settings()
        tools: dict[str, Entry] = {}
        options = shlex.join(variant.options)
        for language, compiler in (("C", variant.compilers.c), ("CXX", variant.compilers.cxx)):
            rule = f"<CMAKE_{language}_COMPILER> <DEFINES> <INCLUDES> <FLAGS> {options} -o <OBJECT> -c <SOURCE>"
            tools[f"CMAKE_{language}_COMPILER"] = Entry("FILEPATH", str(compiler))
            settings[f"CMAKE_{language}_COMPILE_OBJECT"] = Entry("STRING", rule)
        for kind in ("EXE", "SHARED", "MODULE") if variant.link_options else ():
            name = f"CMAKE_{kind}_LINKER_FLAGS"
            given = settings[name].value if name in settings else ""
            settings[name] = Entry("STRING", f"{given} {shlex.join(variant.link_options)}".strip())
        tools["CMAKE_AR"] = Entry("FILEPATH", str(variant.compilers.ar))
        tools["CMAKE_RANLIB"] = Entry("FILEPATH", str(variant.compilers.ranlib))
        if (file := self._cache.toolchain_file) is not None:
            # It may set tools, which then hide those of the cache.
            path = folder.with_name(f"{folder.name}-toolchain.cmake")
            write_atomically(path, toolchain_file(file, tools).encode("utf-8", "surrogateescape"))
            settings["CMAKE_TOOLCHAIN_FILE"] = Entry("FILEPATH", str(path))
        settings |= tools
        settings |= {
            "CMAKE_BUILD_TYPE": Entry("STRING", self._cache.build_type),
            "CMAKE_MAKE_PROGRAM": Entry("FILEPATH", str(self._make)),
            "CMAKE_EXPORT_COMPILE_COMMANDS": Entry("BOOL", "ON"),
            "CMAKE_INTERPROCEDURAL_OPTIMIZATION": Entry("BOOL", "OFF"),
            # Otherwise, names of folders, which differ in length, would be part of the programs.
            "CMAKE_BUILD_RPATH_USE_ORIGIN": Entry("BOOL", "ON"),
        }
        script = folder.with_name(f"{folder.name}.cmake")
        write_atomically(script, initial_cache(settings).encode("utf-8", "surrogateescape"))
        write_atomically(folder / API_QUERY, b"")
        command = [str(self._cmake), "-G", self._generator, "-C", str(script)]
        command += ["-S", str(self._cache.source), "-B", str(folder)]
        log = variant.log("configure")
        result = processes.run_logged(command, log, timeout_s=_CONFIGURE_TIMEOUT_S, environment=build_environment())
        if not result.ok:
            raise ConfigError(f"{folder}: CMake cannot configure it: {_first_error(log, result)}; see {log}")
        self._check_compilers(variant)

    def _check_compilers(self, variant: Variant) -> None:
        """Checks that the project has not set another compiler."""
        commands = _commands(variant)
        if not commands:
            raise ConfigError(
                f"{self._cache.folder}: the project {self.name} has no C or C++ source; there is nothing to optimise"
            )
        expected = {str(variant.compilers.c), str(variant.compilers.cxx)}
        for command in commands:
            if command.words[0] not in expected:
                raise ConfigError(
                    f"{self._cache.source}: the project compiles {command.file} with {command.words[0]}, even "
                    f"if CMake is given another compiler; expected {' or '.join(sorted(expected))}"
                )

    def build(self, variant: Variant, on_progress: Callable[[int, int], object]) -> None:
        log = variant.log("build")

        def report(output: bytes) -> None:
            for done, total in _PROGRESS.findall(output)[-1:]:
                on_progress(int(done), int(total or 100))

        # Not `cmake --build`, which dies of a signal and leaves the build tool running.
        command = [str(self._make), "-j", str(self._jobs)]
        result = processes.run_logged(
            command, log, cwd=variant.folder, environment=build_environment(), on_output=report
        )
        if not result.ok:
            raise ConfigError(f"{variant.folder}: the build failed: {_first_error(log, result)}; see {log}")

    def targets(self, variant: Variant) -> tuple[Target, ...]:
        return tuple(
            target
            for target in configured_targets(variant.folder)
            if target.kind is Kind.OBJECTS or (variant.folder / target.artifact).is_file()
        )

    def sources(self, variant: Variant) -> tuple[Source, ...]:
        sources: dict[str, Source] = {}
        for command in _commands(variant):
            name = Path(os.path.relpath(command.output, variant.folder)).as_posix()
            # Precompiled headers have other names; targets may be excluded from the default build.
            if name.startswith("../") or not name.endswith(".o") or not command.output.is_file():
                continue
            match = _TARGET_FOLDER.match(name)
            key = source_key(command.words, str(command.source))
            source = Source(ObjectFile(command.output, name), match["target"] if match else "", key)
            sources.setdefault(name, source)
        return tuple(sources.values())

    def test_programs(self, variant: Variant) -> frozenset[str]:
        files = {(variant.folder / target.artifact).resolve(): target for target in self.targets(variant)}
        words = {Path(word) for test in self._tests(variant) for word in test.command}
        run = (files.get(word.resolve()) for word in words if word.is_absolute())
        return frozenset(target.name for target in run if target is not None and target.kind is Kind.EXECUTABLE)

    def test_suite(self, variant: Variant) -> TestSuite | None:
        tests = self._tests(variant)
        return CTestSuite(self._ctest, tests, self._jobs) if tests else None

    def _tests(self, variant: Variant) -> Sequence[CTest]:
        """The tests that are registered with CTest."""
        return registered_tests(self._ctest, variant.folder) if Path(self._ctest).is_file() else ()


def _commands(variant: Variant) -> list[CompileCommand]:
    """The commands that compile C and C++; CMake writes no database if there are none."""
    path = variant.folder / "compile_commands.json"
    return c_commands(read_database(path).commands) if path.is_file() else []


def _first_error(log: Path, result: processes.ProcessResult) -> str:
    """The first error in a log; if there is none, how the process ended."""
    if result.timed_out:
        return "it ran out of time"
    with log.open(errors="replace") as file:
        for line in file:
            if re.search(r"\berror\b:|CMake Error|\*\*\* ", line):
                following = next(file, "").strip() if line.startswith("CMake Error") else ""
                return f"{line.strip()} {following}".strip()[:300]
    return result.describe()


def _installed(recorded: str, name: str, package: str) -> Path:
    """The program that the build was configured with or, if it is gone, one of that name on PATH."""
    for path in (recorded, shutil.which(name)):
        if path and os.access(path, os.X_OK) and Path(path).is_file():
            return Path(path)
    gone = f" ({recorded} is gone)" if recorded else ""
    raise ToolchainError(f"{name}: no such program{gone}; install the package {package}")
