"""Rebuilds Debian's source packages, with their tests, by plain clang and by `mlgo-clang`, and compares what they ship.

    python -m benchmarks.distribution --output_dir=$OUTPUT --packages=zlib,ninja-build --levels=Oz,O2

For root on a Debian system that may be thrown away: it installs what the packages need, and runs their build and their
tests. While one builds, `gcc`, `cc`, `g++` and `c++` are the compiler under test, with the level as its last option, so
nothing of a package is changed. `mlgo-clang` has the policy and the options that ship, or those of --policy_path and
--options.

A package whose build or tests fail with plain clang is counted and left out. Sizes are those of the programs and shared
libraries in the binary packages, stripped. --output_dir has a record and a log of each build, and the same command
continues. Exit status: 1 if a package builds and passes its tests with plain clang only.
"""

import dataclasses
import os
import re
import resource
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from absl import flags

from compiler_opt import pretrained
from compiler_opt.deploy.deployment import deploy
from compiler_opt.deploy.policies import PolicyRequest
from compiler_opt.errors import ConfigError, ProtocolError, ToolchainError
from compiler_opt.files import check_folder_writable, exclusive_directory
from compiler_opt.kept_results import RecordFile, check_conditions
from compiler_opt.llvm import processes
from compiler_opt.llvm.object_file import TextParts, read_parts
from compiler_opt.llvm.toolchain import probe
from compiler_opt.progress_bar import progress_bar
from compiler_opt.report.formatting import aligned, bytes_text, change_text
from compiler_opt.tools import entry_point, shared_flags
from compiler_opt.tools.entry_point import echo

_OUTPUT_DIR = shared_flags.required_path("output_dir", "Folder for sources, builds, logs and records.")
_PACKAGES = flags.DEFINE_list(
    "packages",
    "zlib,lz4,expat,libpng1.6,pcre2,jansson,ninja-build,libjsoncpp,snappy,re2".split(","),
    "Debian's source packages; by default five in C and five with C++.",
)
_LEVELS = flags.DEFINE_list("levels", "Oz", "Optimisation levels.")
_CLANG_PATH = shared_flags.clang_path()
_POLICY_PATH = shared_flags.policy("policy_path", "The policy; by default the one that ships; `none` for none.")
_OPTIONS = shared_flags.OptionsFlag("Options of LLVM's passes that are deployed, too: {forms}.")
_MIRROR = flags.DEFINE_string("mirror", "http://deb.debian.org/debian", "Where the source packages are.")
_NUM_WORKERS = shared_flags.num_workers()

PLAIN, DEPLOYED = "plain", "mlgo"
_BUILD_TIMEOUT_S = 7200.0
_TESTS = (  # of ctest, automake, Meson, googletest: how many passed
    r"tests passed, (?P<failed>\d+) tests? failed out of (?P<all>\d+)",
    r"^# PASS: +(?P<passed>\d+)",
    r"^Ok: +(?P<passed>\d+)",
    r"^\[  PASSED  \] (?P<passed>\d+) tests?",
)


@dataclasses.dataclass(frozen=True)
class Record:
    """One build of a package.

    Attributes:
      package: the source package.
      level: such as `Oz`.
      way: `PLAIN` or `DEPLOYED`.
      failure: why it failed; empty if it was built and its tests passed.
      tests: how many passed, where its log has them in a form that is known.
      cpu_s: user and system seconds of the build and the tests.
      files: by path in the binary packages, the text bytes of each program and shared library: code, constants, unwind
        tables, dynamic symbols.
    """

    package: str
    level: str
    way: str
    failure: str = ""
    tests: int = 0
    cpu_s: float = 0.0
    files: dict[str, list[int]] = dataclasses.field(default_factory=dict)


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


def build(package: str, level: str, way: str, compilers: Sequence[Path], folder: Path, jobs: int) -> Record:
    """Builds a package from a copy of its source, runs its tests, and reads what its binary packages have.

    Args:
      package: the source package, unpacked below `folder/source/PACKAGE`.
      level: the last option of every command.
      way: names the copy, which is removed again, and the log.
      compilers: for C and C++.
      folder: for all.
      jobs: compilers at a time.
    """
    source = next(path for path in (folder / "source" / package).iterdir() if (path / "debian").is_dir())
    place, log = folder / "build", folder / "logs" / f"{package}-{level}-{way}.log"
    shutil.rmtree(place, ignore_errors=True)
    # With the same path in both ways: some packages print it.
    shutil.copytree(source, place / "package", symlinks=True)
    for names, compiler in zip((("cc", "gcc"), ("c++", "g++")), compilers, strict=True):
        for name in (*names, f"x86_64-linux-gnu-{names[1]}"):
            script = place / "bin" / name
            script.parent.mkdir(exist_ok=True)
            script.write_text(f'#!/bin/sh\nexec {shlex.quote(str(compiler))} "$@" -{level}\n')
            script.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{place / 'bin'}:{os.environ['PATH']}",
        "DEB_BUILD_OPTIONS": f"parallel={jobs} noautodbgsym",
    }
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = ["dpkg-buildpackage", "--target=binary", "--no-sign"]
    done = processes.run_logged(
        command, log, timeout_s=_BUILD_TIMEOUT_S, cwd=place / "package", environment=environment
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    text = log.read_text(errors="replace")
    failure = "" if done.ok else f"{done.describe()[:200]}; see {log.name}"
    record = Record(package, level, way, failure, count_passed(text), cpu_s, _files(place / "package" / "debian"))
    shutil.rmtree(place)
    return record


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


@entry_point.command
def entry() -> int:
    for tool, package in {"dpkg-buildpackage": "dpkg-dev", "apt-get": "apt"}.items():
        if shutil.which(tool) is None:
            raise ConfigError(f"{tool}: not found on PATH; install the package {package}")
    if os.geteuid() != 0:
        raise ConfigError("expected to be root, since packages are installed; use a container or a virtual machine")
    folder = Path(_OUTPUT_DIR.value).absolute()
    check_folder_writable(folder)
    toolchain = probe(_CLANG_PATH.value)
    name = _POLICY_PATH.value
    with exclusive_directory(folder, "--output_dir"):
        requests = [] if name == shared_flags.NONE else [PolicyRequest(pretrained.folder(name) if name else None)]
        deployment = deploy(requests, folder / "prefix", [toolchain.clang], options=_OPTIONS.read())
        [compiler] = deployment.compilers
        policies = {policy.name: [policy.checksum, *policy.levels] for policy in deployment.policies}
        sets = {level: list(options) for level, options in compiler.options.sets.levels.items()}
        check_conditions(
            folder / "conditions.json",
            {"compiler": toolchain.version_text, "policies": policies, "options": sets},
        )
        file = RecordFile(folder / "records.jsonl", Record)
        known = {(record.package, record.level, record.way): record for record in file.records}
        compilers = {
            PLAIN: [toolchain.clang, toolchain.tool("clang++")],
            DEPLOYED: [deployment.driver(cpp=cpp) for cpp in (False, True)],
        }
        wanted = [(package, level, way) for package in _PACKAGES.value for level in _LEVELS.value for way in compilers]
        missing = [each for each in wanted if each not in known]
        if missing:
            apt = Apt(folder, _MIRROR.value)
            apt("update")
        for package, level, way in progress_bar(missing, total=len(missing), unit="build"):
            source = folder / "source" / package
            if not source.is_dir():
                apt("build-dep", package)
                source.mkdir(parents=True)
                apt("source", package, cwd=source)
            jobs = entry_point.num_workers(_NUM_WORKERS.value)
            file.append([build(package, level, way, compilers[way], folder, jobs)])
        known |= {(record.package, record.level, record.way): record for record in file.records}
    worse = [_report({each: known[each] for each in wanted}, level) for level in _LEVELS.value]
    return int(any(worse))


def _report(records: Mapping[tuple[str, str, str], Record], level: str) -> bool:
    """Prints the table of a level; returns whether a package builds with plain clang only."""
    rows = [["package", "files", "text", "with mlgo-clang", "change", "code", "tests", "with mlgo-clang", "CPU"]]
    changes: list[tuple[float, float]] = []
    worse = []
    for package in dict.fromkeys(package for package, _, _ in records):
        plain, deployed = (records[package, level, way] for way in (PLAIN, DEPLOYED))
        if plain.failure or not plain.files:
            echo(f"{package}: left out; with plain clang: {plain.failure or 'no program or shared library'}")
            continue
        if deployed.failure:
            worse.append(f"{package}: fails with mlgo-clang only: {deployed.failure}")
            continue
        before, after = sizes(plain), sizes(deployed)
        changes.append((after.total / before.total - 1, after.code / before.code - 1))
        texts = [bytes_text(before.total), bytes_text(after.total), *map(change_text, changes[-1])]
        tests = [str(each.tests or "?") for each in (plain, deployed)]
        rows.append([package, str(len(plain.files)), *texts, *tests, change_text(deployed.cpu_s / plain.cpu_s - 1, 0)])
    if changes:
        means = [change_text(sum(column) / len(changes)) for column in zip(*changes, strict=True)]
        rows.append(["mean", "", "", "", *means, "", "", ""])
    echo(f"-{level}, bytes of text and of the code in it:")
    for line in [*aligned(rows, 1, [1, len(rows) - 1]), *worse]:
        echo(line)
    return bool(worse)


if __name__ == "__main__":
    entry()
