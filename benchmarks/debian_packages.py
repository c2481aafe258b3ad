"""Builds of Debian's source packages by a compiler at a level, with their tests, and what they ship."""

import collections
import dataclasses
import os
import re
import resource
import shlex
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

from compiler_opt.errors import ProtocolError, ToolchainError
from compiler_opt.llvm import processes
from compiler_opt.llvm.object_file import TextParts, read_parts
from compiler_opt.llvm.toolchain import Toolchain

COMPILERS = ("cc", "gcc", "c++", "g++")
PLAIN, DEPLOYED, NEVER_WORSE = "plain", "mlgo", "never-worse"
_INSTALLED_KB = range(200, 2001)
"""Installed kB of what `most_needed` takes, which is built and tested in minutes."""

_BUILD_TIMEOUT_S = 1800.0
_TESTS = (  # of ctest, automake, Meson, googletest: how many passed
    r"tests passed, (?P<failed>\d+) tests? failed out of (?P<all>\d+)",
    r"^# PASS: +(?P<passed>\d+)",
    r"^Ok: +(?P<passed>\d+)",
    r"^\[  PASSED  \] (?P<passed>\d+) tests?",
)
_MAX_AVAILABLE_BYTES = 1 << 28
_FIELD = re.compile(r"^([A-Z][A-Za-z-]*): *(.*(?:\n .*)*)", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Record:
    """One build of a package.

    Attributes:
      package: the source package.
      level: such as `Oz`; `Oz-flto=thin` with link-time optimisation.
      way: `PLAIN`, `DEPLOYED` or `NEVER_WORSE`.
      failure: why it failed; empty if it was built by the compiler, and its tests passed.
      tests: how many passed, where its log has them in a form that is known.
      cpu_s: user and system seconds of the build and the tests.
      files: by path in the binary packages, the text bytes of each program and shared library: code, constants, unwind
        tables, dynamic symbols.
      warnings: of the compiler, by the log; None if they were not counted.
      language: `c`, `c++`, or empty if it is not known or both.
    """

    package: str
    level: str
    way: str
    failure: str = ""
    tests: int = 0
    cpu_s: float = 0.0
    files: dict[str, list[int]] = dataclasses.field(default_factory=dict)
    warnings: int | None = None
    language: str = ""


@dataclasses.dataclass(frozen=True)
class Source:
    """A source package.

    Attributes:
      languages: in which its binary packages are said to be implemented (debtags), such as `c++`.
      installed_kb: of its binary packages together, without those for all architectures.
      needed_by: how many other source packages have a binary package that depends on one of its own.
    """

    languages: frozenset[str]
    installed_kb: int
    needed_by: int


class Apt:
    """Debian's package manager, which also knows the source packages of a mirror; its lists are in a folder."""

    def __init__(self, folder: Path, mirror: str):
        release = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().split("\n") if "=" in line)
        sources, own = Path("/etc/apt/sources.list"), folder / "sources.list"
        (folder / "lists" / "partial").mkdir(parents=True, exist_ok=True)
        known = sources.read_text() if sources.is_file() else ""
        own.write_text(f"{known}\ndeb-src {mirror} {release['VERSION_CODENAME']} main\n")
        self._options = ["-q", "-y", "-o", f"Dir::Etc::sourcelist={own}", "-o", f"Dir::State::lists={folder / 'lists'}"]
        self._log = folder / "apt.log"

    def __call__(self, *words: str, cwd: Path | None = None) -> None:
        """Runs `apt-get`; raises ToolchainError if it fails."""
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        done = processes.run_logged(["apt-get", *self._options, *words], self._log, cwd=cwd, environment=environment)
        if not done.ok:
            raise ToolchainError(f"apt-get {' '.join(words)}: failed; see {self._log}: {done.stderr_tail[-300:]}")

    def sources(self) -> dict[str, Source]:
        """All source packages; raises ToolchainError if there are no lists."""
        command = ["apt-cache", *self._options[2:], "dumpavail"]
        done = processes.run(command, timeout_s=60, max_stdout_bytes=_MAX_AVAILABLE_BYTES)
        if not done.ok:
            raise ToolchainError(f"apt-cache dumpavail: {done.describe()}: {done.stderr_tail[-300:]}")
        return read_sources(done.stdout.decode(errors="replace"))

    def unpack(self, package: str, folder: Path) -> None:
        """Unpacks a package's source below a folder, which appears when all is there; raises as for a call."""
        unfinished = folder.with_name(f"{folder.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        self("source", package, cwd=unfinished)
        unfinished.rename(folder)


def build(
    package: str, level: str, way: str, tools: Mapping[str, Path], folder: Path, jobs: int, language: str = ""
) -> Record:
    """Builds a package from a copy of its source, runs its tests, and reads what its binary packages have.

    Args:
      package: the source package, unpacked below `folder/source/PACKAGE`.
      level: the last option of every command; with `-flto=...` behind it, also link-time optimisation by lld.
      way: names the copy, which is removed again, and the log.
      tools: `COMPILERS` and others by their names on PATH.
      folder: for all.
      jobs: compilers at a time.
      language: of the package.
    """
    source = next(path for path in (folder / "source" / package).iterdir() if (path / "debian").is_dir())
    place, log = folder / "build", folder / "logs" / f"{package}-{level}-{way}.log"
    shutil.rmtree(place, ignore_errors=True)
    # With the same path in both ways: some packages print it.
    shutil.copytree(source, place / "package", symlinks=True)
    added = f"-{level}".replace("-flto", " -fuse-ld=lld -flto")
    ran = place / "a compiler ran"
    commands = {name: f'exec {shlex.quote(str(path))} "$@"' for name, path in tools.items()}
    # With one argument, such as -dumpmachine, it is only asked for something.
    noted = f"[ $# -eq 1 ] || : > {shlex.quote(str(ran))}"
    commands |= {name: f"{noted}\n{commands[name]} {added}" for name in COMPILERS}
    for name, command in commands.items():
        for prefix in ("", "x86_64-linux-gnu-"):
            script = place / "bin" / f"{prefix}{name}"
            script.parent.mkdir(exist_ok=True)
            script.write_text(f"#!/bin/sh\n{command}\n")
            script.chmod(0o755)
    package_build = ["dpkg-buildpackage", "--target=binary", "--no-sign"]
    environment = {
        **os.environ,
        "PATH": f"{place / 'bin'}:{os.environ['PATH']}",
        # Debian 12's dwz, which comes with stripping, cannot read clang's debug information.
        "DEB_BUILD_OPTIONS": f"parallel={jobs} nostrip",
    }
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = processes.run_logged(
        package_build, log, timeout_s=_BUILD_TIMEOUT_S, cwd=place / "package", environment=environment
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    text = log.read_text(errors="replace")
    failure = "" if done.ok else f"{done.describe()[:200]}; see {log.name}"
    if not (failure or ran.exists()):
        failure = f"its build runs no compiler that it finds on PATH; see {log.name}"
    files = _files(place / "package" / "debian")
    warnings = len(re.findall(r"^[^ :]+:\d+:\d+: warning: ", text, re.MULTILINE))
    record = Record(package, level, way, failure, count_passed(text), cpu_s, files, warnings, language)
    shutil.rmtree(place)
    return record


def read_sources(available: str) -> dict[str, Source]:
    """Source packages by name, from Debian's file `Packages`."""
    stanzas = [dict(_FIELD.findall(stanza)) for stanza in available.split("\n\n") if stanza.strip()]
    source_of = {each["Package"]: each.get("Source", each["Package"]).split()[0] for each in stanzas}
    languages: dict[str, set[str]] = {}
    installed_kb: collections.Counter[str] = collections.Counter()
    needs: set[tuple[str, str]] = set()
    for each in stanzas:
        source = source_of[each["Package"]]
        languages.setdefault(source, set()).update(re.findall(r"implemented-in::([^\s,]+)", each.get("Tag", "")))
        installed_kb[source] += int(each.get("Installed-Size", 0)) if each["Architecture"] != "all" else 0
        for dependency in re.findall(r"(?:^|[,|])\s*([^\s,|(:]+)", each.get("Depends", "")):
            needs.add((source, source_of.get(dependency, source)))
    needed_by = collections.Counter(other for source, other in needs if source != other)
    return {name: Source(frozenset(found), installed_kb[name], needed_by[name]) for name, found in languages.items()}


def most_needed(sources: Mapping[str, Source], count: int, excluded: Collection[str] = ()) -> list[str]:
    """The packages in C, then those in C++, that most others need, `count` of each, as large as `_INSTALLED_KB`.

    Equally needed ones are in alphabetical order. One that is not in C or in C++ alone is neither's.
    """
    by_need = sorted(sources, key=lambda name: (-sources[name].needed_by, name))
    fitting = [name for name in by_need if sources[name].installed_kb in _INSTALLED_KB and name not in excluded]
    return [
        name for language in ("c", "c++") for name in [n for n in fitting if sources[n].languages == {language}][:count]
    ]


def llvm_tools(toolchain: Toolchain) -> dict[str, Path]:
    """Tools for archives of bitcode, by the names that they have on PATH; raises ToolchainError without LLVM's."""
    archiver = toolchain.tool("llvm-ar").resolve()
    return {name: archiver.with_name(f"llvm-{name}") for name in ("ar", "nm", "ranlib")}


def count_passed(log: str) -> int:
    """How many tests the log of a build says passed, over all of its test programs."""
    total = 0
    for pattern in _TESTS:
        for found in re.finditer(pattern, log, re.MULTILINE):
            counts = {name: int(number) for name, number in found.groupdict().items()}
            total += counts["passed"] if "passed" in counts else counts["all"] - counts["failed"]
    return total


def _files(debian: Path) -> dict[str, list[int]]:
    """What is below the folders of binary packages."""
    found = {}
    for control in sorted(debian.glob("*/DEBIAN/control")):
        for path in sorted(control.parents[1].rglob("*")):
            if path.is_file() and not path.is_symlink() and (os.access(path, os.X_OK) or ".so" in path.name):
                try:
                    parts = read_parts(path)
                except ProtocolError:
                    continue  # a script
                found[str(path.relative_to(debian))] = list(dataclasses.astuple(parts))
    return found


def sizes(record: Record) -> TextParts:
    """The text of all files of a build together."""
    return TextParts(*(sum(column) for column in zip(*record.files.values(), strict=True)))
