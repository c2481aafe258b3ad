"""What a program is here: something that can be built again elsewhere, with another compiler, and has targets.

    with a program:
        prepare(variant)                     # configures its own copy of the build; what is wrong shows here
        build(variant)                       # may be interrupted, and called again
        targets(variant), objects(variant)   # what came of it

A *target* is what a linker (or archiver) makes of objects: a program, a shared library, a static library.
"""

import abc
import dataclasses
import enum
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from compiler_opt.corpus.builds.objects import ObjectFile

OPTIMISATION = "-Oz"
"""What every variant is compiled with, whatever the project says: the level that policies are trained for."""

EMBED_BITCODE = ("-Xclang", "-fembed-bitcode=all")

C_SUFFIXES = (".c",)
CXX_SUFFIXES = (".cc", ".cpp", ".cxx", ".c++", ".C", ".cp", ".CPP", ".c++m", ".ixx")

_TEST_FRAMEWORKS = frozenset(
    "benchmark catch2 cmocka cpputest doctest gmock googletest googletest-distribution gtest unity".split()
)
_UNWANTED = "CFLAGS CXXFLAGS CPPFLAGS LDFLAGS CC CXX CCC_OVERRIDE_OPTIONS MAKEFLAGS MFLAGS DESTDIR NINJA_STATUS".split()


class Kind(enum.Enum):
    """What a target is made of objects by."""

    EXECUTABLE = "program"
    SHARED = "shared library"
    STATIC = "static library"
    OBJECTS = "objects"
    """A CMake object library: no file of its own, its objects go into other targets."""


@dataclasses.dataclass(frozen=True)
class Target:
    """One target of a program.

    Attributes:
      name: as the build calls it.
      kind: what it is.
      artifact: the file, relative to the build folder; empty for `Kind.OBJECTS`.
      uses: names of the targets that it is made of, directly or not.
      installed: the project installs it, so somebody wants it.
      project: the project or subproject that it belongs to; empty for the program's own.
    """

    name: str
    kind: Kind
    artifact: str
    uses: tuple[str, ...] = ()
    installed: bool = False
    project: str = ""


@dataclasses.dataclass(frozen=True)
class Compilers:
    """What compiles and what archives.

    Not the system's `ar`: GNU's may be set up to load LLVM's plugin, and then takes an object with bitcode in it for
    one of link-time optimisation, whose symbols it looks for in there.

    Attributes:
      c: the C driver.
      cxx: the C++ driver.
      ar: `llvm-ar`; the same with `ranlib` for `ar` in its name is beside it.
    """

    c: Path
    cxx: Path
    ar: Path

    @property
    def ranlib(self) -> Path:
        """`llvm-ranlib`."""
        return self.ar.with_name(self.ar.name.replace("llvm-ar", "llvm-ranlib"))


@dataclasses.dataclass(frozen=True)
class Variant:
    """One way of building the program, in a folder of its own.

    Attributes:
      folder: where.
      compilers: by whom.
      options: added to the end of every compiler command.
    """

    folder: Path
    compilers: Compilers
    options: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Built:
    """What a build took.

    Attributes:
      cpu_s: CPU seconds of all its processes.
      log: what they said.
    """

    cpu_s: float
    log: Path


@dataclasses.dataclass(frozen=True)
class Source:
    """An object of the build and where it comes from.

    Attributes:
      object: its file and name; the name is relative to the build folder.
      target: name of its target; empty when unknown.
      key: equal for objects of the same source with the same definitions, such as a library's static and shared form.
    """

    object: ObjectFile
    target: str
    key: tuple[str, ...]


class Program(abc.ABC):
    """Something that can be built."""

    name: str

    @abc.abstractmethod
    def identity(self) -> Mapping[str, str]:
        """What makes it this program built this way; a state for another is not continued."""

    @abc.abstractmethod
    def notes(self) -> Sequence[str]:
        """What is done differently from the user's own build: a sentence each."""

    @abc.abstractmethod
    def prepare(self, variant: Variant) -> None:
        """Configures the build in the variant's folder.

        Raises:
          ConfigError: the project cannot be configured, or does not use the compilers it is given.
        """

    @abc.abstractmethod
    def build(self, variant: Variant, on_progress: Callable[[int, int], object]) -> Built:
        """Builds what is not built yet.

        Args:
          variant: a prepared one.
          on_progress: called with how much is done, of how much.

        Raises:
          ConfigError: it does not build; the message names the first error and the log.
        """

    @abc.abstractmethod
    def targets(self, variant: Variant) -> tuple[Target, ...]:
        """The targets of a built variant whose files are there."""

    @abc.abstractmethod
    def sources(self, variant: Variant) -> tuple[Source, ...]:
        """The objects of a built variant that C and C++ sources were compiled to."""

    @abc.abstractmethod
    def test_programs(self, variant: Variant) -> frozenset[str]:
        """Names of the targets that the project's own tests run."""

    @abc.abstractmethod
    def test_command(self, variant: Variant) -> tuple[str, ...]:
        """What runs the project's own tests, in the variant's folder; empty when it has none."""


def targets_of_tests(targets: Sequence[Target], test_programs: Iterable[str]) -> frozenset[str]:
    """The targets that only testing needs: what tests run, and libraries that nothing else uses.

    A library that only tests use may still be what the project is there for. It counts as the tests' own when the
    project installs other things but not this, or when it comes from a subproject. Frameworks for testing are known by
    the names of their projects, as they like to be installed as well.
    """
    testing = set(test_programs)
    testing |= {target.name for target in targets if target.project.lower() in _TEST_FRAMEWORKS}
    something_installed = any(target.installed for target in targets)
    changed = True
    while changed:
        changed = False
        for target in targets:
            if target.name in testing or target.kind is Kind.EXECUTABLE or target.installed:
                continue
            users = {user.name for user in targets if target.name in user.uses}
            if users and users <= testing and (something_installed or target.project):
                testing.add(target.name)
                changed = True
    # Everything only there to be tested: then that is the program.
    return frozenset(testing) if testing < {target.name for target in targets} else frozenset()


def link_groups(targets: Sequence[Target]) -> dict[str, str]:
    """Which targets' objects end up in one file: target -> name of its group, that of its first and largest user.

    Of the COMDAT functions that several objects carry the linker keeps one per file that it makes, so copies are to be
    counted within such groups. A library that is linked into several programs brings them all into one group, which is
    the best that one number per function can do.
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
    """The objects to learn from, each source once, named `GROUP/OBJECT` by what they are linked with.

    Args:
      sources: everything that was compiled.
      targets: of the same build.
      left_out: targets that do not count.
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


def build_environment() -> dict[str, str]:
    """Our environment variables for a build, without those that would have a say in it."""
    return {name: value for name, value in os.environ.items() if name not in _UNWANTED and not name.startswith("MLGO_")}


def source_key(arguments: Sequence[str], file: str) -> tuple[str, ...]:
    """See `Source.key`."""
    definitions = []
    words = iter(arguments)
    for word in words:
        definition = word[2:] or next(words, "") if word.startswith("-D") else None
        # What CMake defines for the objects of a shared library.
        if definition is not None and not re.fullmatch(r"\w+_EXPORTS", definition):
            definitions.append(definition)
    return (file, *sorted(definitions))
