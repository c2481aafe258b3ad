"""A program to optimise: it can be built in other folders, with other compilers and options, and has targets.

    program.prepare(variant)                             # configures a copy of the build; finds the user's errors
    program.build(variant, on_progress)                  # may be interrupted and called again
    program.targets(variant), program.sources(variant)   # the results of the build

A *target* is a file that a linker or archiver makes from objects: a program, a shared library, a static library.
"""

import abc
import dataclasses
import enum
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

from compiler_opt.corpus.builds.database import CompileCommand
from compiler_opt.corpus.builds.objects import ObjectFile
from compiler_opt.llvm.processes import BUILD_TIMEOUT_S

OPTIMISATION = "-Oz"
"""The optimisation level for which policies for size are trained."""

EMBED_BITCODE = ("-Xclang", "-fembed-bitcode=all")

CXX_SUFFIXES = (".cc", ".cpp", ".cxx", ".c++", ".C", ".cp", ".CPP", ".c++m", ".ixx")

_TEST_FRAMEWORKS = frozenset(
    "benchmark catch2 cmocka cpputest doctest gmock googletest googletest-distribution gtest unity".split()
)
_UNWANTED = (
    "CFLAGS CXXFLAGS CPPFLAGS LDFLAGS CC CXX CCC_OVERRIDE_OPTIONS CMAKE_TOOLCHAIN_FILE MAKEFLAGS MFLAGS DESTDIR "
    "NINJA_STATUS"
).split()


class Kind(enum.Enum):
    """Kinds of targets."""

    EXECUTABLE = "program"
    SHARED = "shared library"
    STATIC = "static library"
    OBJECTS = "objects"
    """A CMake object library: it has no file of its own; its objects go into other targets."""


@dataclasses.dataclass(frozen=True)
class Target:
    """One target of a program.

    Attributes:
      artifact: its file, relative to the build folder; empty for `Kind.OBJECTS`.
      uses: names of the targets that it is linked from, directly or indirectly.
      installed: whether the project installs it.
      project: the subproject that it belongs to; empty for the program's own.
    """

    name: str
    kind: Kind
    artifact: str
    uses: tuple[str, ...] = ()
    installed: bool = False
    project: str = ""


@dataclasses.dataclass(frozen=True)
class Compilers:
    """The C and C++ compiler drivers of a build, and `llvm-ar`, which has `llvm-ranlib` beside it.

    GNU ar may load LLVM's plugin, and then mistakes objects with embedded bitcode for LTO objects.
    """

    c: Path
    cxx: Path
    ar: Path

    @property
    def ranlib(self) -> Path:
        return self.ar.with_name(self.ar.name.replace("llvm-ar", "llvm-ranlib"))


@dataclasses.dataclass(frozen=True)
class Variant:
    """One way of building the program, in a folder of its own.

    Attributes:
      options: appended to every command that compiles.
      link_options: added to every command that links a program or shared library.
    """

    folder: Path
    compilers: Compilers
    options: tuple[str, ...]
    link_options: tuple[str, ...] = ()

    def log(self, step: str) -> Path:
        """The log file of `configure`, `build` or `tests`, beside the build folder."""
        return self.folder.parent / "logs" / f"{self.folder.name}-{step}.log"


@dataclasses.dataclass(frozen=True)
class Source:
    """An object of the build, named relative to the build folder, and its source.

    Attributes:
      target: name of its target; empty if unknown.
      key: equal for objects of the same source with the same macros, such as those of a static and a shared library.
    """

    object: ObjectFile
    target: str
    key: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class TestRun:
    """A run of tests in one build.

    Attributes:
      passed: whether all of them passed.
      summary: a line of the output.
      log: the file of the output, relative to the folder of the optimisation.
      failed: names of the tests that failed, ran out of time or could not run.
    """

    __test__ = False  # pytest would collect it.

    passed: bool
    summary: str
    log: str
    failed: tuple[str, ...] = ()


class TestSuite(abc.ABC):
    """The tests of a program, which have names."""

    __test__ = False

    @abc.abstractmethod
    def run(
        self, variant: Variant, log: Path, names: Collection[str] = (), *, timeout_s: float = BUILD_TIMEOUT_S
    ) -> TestRun:
        """Runs the tests in a build; with `names` only these, one after the other.

        All output goes to `log`. At the time limit, in seconds for all tests together, tests are stopped, and fail.

        Raises:
          ConfigError: there is no test of one of the names.
        """


class Program(abc.ABC):
    """A program to optimise."""

    name: str

    @abc.abstractmethod
    def identity(self) -> Mapping[str, str]:
        """The properties that must be the same for an optimisation to continue."""

    @abc.abstractmethod
    def notes(self, level: str) -> Sequence[str]:
        """Sentences about differences from the user's own build; `level` says at which one its variants are compiled.

        How many there are does not depend on `level`.
        """

    @abc.abstractmethod
    def prepare(self, variant: Variant) -> None:
        """Configures the build in the variant's folder.

        Raises:
          ConfigError: the project cannot be configured, or uses other compilers.
        """

    @abc.abstractmethod
    def build(self, variant: Variant, on_progress: Callable[[int, int], object]) -> None:
        """Builds a prepared variant, with all output in its log `build`; continues an interrupted build.

        `on_progress` is called with the number of steps done and of all steps.

        Raises:
          ConfigError: the build fails; the message names the first error and the log.
        """

    @abc.abstractmethod
    def targets(self, variant: Variant) -> tuple[Target, ...]:
        """The targets of a built variant whose files exist."""

    @abc.abstractmethod
    def sources(self, variant: Variant) -> tuple[Source, ...]:
        """The objects of a built variant that are compiled from C and C++ sources."""

    def test_programs(self, variant: Variant) -> frozenset[str]:
        """Names of the targets that the project's tests run."""
        return frozenset()

    def test_suite(self, variant: Variant) -> TestSuite | None:
        """The project's own tests; None if there are none."""
        return None


def targets_of_tests(targets: Sequence[Target], test_programs: Iterable[str]) -> frozenset[str]:
    """The targets that only tests need: the programs that tests run, and libraries that nothing else uses.

    A program that is installed is for users, and may be run by tests, too. A library that only tests use may still be
    the purpose of the project. It counts as needed only by tests if the project installs other targets but not this
    one, or if it comes from a subproject. Test frameworks are recognised by the names of their projects, since they are
    often installed.
    """
    installed = {target.name for target in targets if target.installed}
    testing = set(test_programs) - installed
    testing |= {target.name for target in targets if target.project.lower() in _TEST_FRAMEWORKS}
    changed = True
    while changed:
        changed = False
        for target in targets:
            if target.name in testing or target.kind is Kind.EXECUTABLE or target.installed:
                continue
            users = {user.name for user in targets if target.name in user.uses}
            if users and users <= testing and (installed or target.project):
                testing.add(target.name)
                changed = True
    # If only tests use the targets, the targets are the program.
    return frozenset(testing) if testing < {target.name for target in targets} else frozenset()


def link_groups(targets: Sequence[Target]) -> dict[str, str]:
    """Groups targets whose objects are linked together: target -> name of its group, which is one of its users.

    The linker keeps one copy of a COMDAT function per output file, so copies have to be counted within such groups. A
    library that several programs link puts all of them into one group: an approximation, since each function has only
    one number of copies.
    """
    group = {target.name: target.name for target in targets}

    def root(name: str) -> str:
        while group[name] != name:
            name = group[name]
        return name

    kinds = {target.name: target.kind for target in targets}
    for target in targets:
        for used in target.uses:
            if kinds.get(used) in (Kind.STATIC, Kind.OBJECTS):
                group[root(used)] = root(target.name)
    return {name: root(name) for name in group}


def training_objects(
    sources: Sequence[Source], targets: Sequence[Target], left_out: frozenset[str]
) -> list[ObjectFile]:
    """The objects to train on, each source once, named `GROUP/OBJECT` by the group that they are linked into.

    Objects of the targets named in `left_out` are left out.
    """
    groups = link_groups([target for target in targets if target.name not in left_out])
    seen: set[tuple[str, ...]] = set()
    objects = []
    for source in sources:
        if source.target and source.target not in groups:
            continue
        group = groups.get(source.target, "program")
        if source.key not in seen:
            seen.add(source.key)
            objects.append(ObjectFile(source.object.path, f"{group}/{source.object.name}"))
    return objects


def c_commands(commands: Iterable[CompileCommand]) -> list[CompileCommand]:
    """The commands that compile C and C++ sources."""
    return [each for each in commands if each.words and each.file.endswith((".c", *CXX_SUFFIXES))]


def build_environment() -> dict[str, str]:
    """This process's environment without the variables that influence builds."""
    return {name: value for name, value in os.environ.items() if name not in _UNWANTED and not name.startswith("MLGO_")}


def source_key(arguments: Sequence[str], file: str) -> tuple[str, ...]:
    """The `Source.key` of an object that a command with these arguments compiles from a file."""
    definitions = []
    words = iter(arguments)
    for word in words:
        definition = word[2:] or next(words, "") if word.startswith("-D") else None
        # CMake defines NAME_EXPORTS for the objects of a shared library.
        if definition is not None and not re.fullmatch(r"\w+_EXPORTS", definition):
            definitions.append(definition)
    return (file, *sorted(definitions))
