"""Rebuilds Debian's source packages, with their tests, by plain clang and by `mlgo-clang`, and compares what they ship.

    python -m benchmarks.distribution --output_dir=$OUTPUT --packages=zlib,ninja-build --levels=Oz,O2
    python -m benchmarks.distribution --output_dir=$OUTPUT --most_needed=30 --ways=mlgo,never-worse

For root on a Debian system that may be thrown away: it installs what the packages need, and runs their build and their
tests. While one builds, `gcc`, `cc`, `g++` and `c++` are the compiler under test, with the level as its last option, so
nothing of a package is changed. `mlgo-clang` has the policy and the options that ship, or those of --policy_path and
--options; as `never-worse`, it also compiles plainly and keeps the smaller object.

A package whose build or tests fail with plain clang is counted and left out. Sizes are those of the text of programs
and shared libraries in the binary packages. --output_dir has a record and a log of each build, and the same command
continues. Exit status: 1 if a package builds and passes its tests with plain clang only, or is larger as `never-worse`.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from absl import flags

from benchmarks.debian_packages import (
    COMPILERS,
    DEPLOYED,
    NEVER_WORSE,
    PLAIN,
    Apt,
    Record,
    build,
    llvm_tools,
    most_needed,
)
from benchmarks.deployments import policy_requests
from benchmarks.distribution_report import compare, counts, means_table, package_table
from compiler_opt.corpus.ready_made import manifest
from compiler_opt.deploy.deployment import Deployment, deploy
from compiler_opt.errors import ConfigError, ToolchainError
from compiler_opt.files import exclusive_directory
from compiler_opt.kept_results import RecordFile, check_conditions
from compiler_opt.llvm.toolchain import Toolchain, probe
from compiler_opt.pass_options.sets import LEVELS
from compiler_opt.progress_bar import progress_bar
from compiler_opt.report.formatting import count_text, duration_text
from compiler_opt.tools import entry_point, shared_flags
from compiler_opt.tools.entry_point import echo, say
from compiler_opt.tools.options_flag import OptionsFlag

_BUILD_S, _PACKAGE_GB = 60.0, 0.1
"""In the mean of 82 builds on two processors: seconds of a build, what it needs included, and the disk of a package."""

_NO_LTO = "none"
_LTO_OPTIONS = {"thin": "-flto=thin", "full": "-flto"}
_OUTPUT_DIR = shared_flags.required_path("output_dir", "Folder for sources, builds, logs and records.")
_PACKAGES = flags.DEFINE_list(
    "packages",
    "zlib,lz4,expat,libpng1.6,pcre2,jansson,ninja-build,libjsoncpp,snappy,re2".split(","),
    "Debian's source packages; by default five in C and five with C++.",
)
_MOST_NEEDED = flags.DEFINE_integer(
    "most_needed",
    0,
    "Instead, this many packages in C and as many in C++, those that most other packages need, of 0.2 to 2 MB "
    "installed, without ready-made projects, which policies and options were chosen by.",
    0,
)
_WAYS = flags.DEFINE_list("ways", DEPLOYED, f"What plain clang is compared with: {DEPLOYED}, {NEVER_WORSE}.")
_LEVELS = flags.DEFINE_list("levels", "Oz", "Optimisation levels.")
_LTO = flags.DEFINE_list(
    "lto", _NO_LTO, f"Link-time optimisation by lld, added to every command: {', '.join([_NO_LTO, *_LTO_OPTIONS])}."
)
_CLANG_PATH = shared_flags.clang_path()
_POLICY_PATH = shared_flags.policy("policy_path", "The policy; by default the one that ships; `none` for none.")
_OPTIONS = OptionsFlag("Options of LLVM's passes that are deployed, too: {forms}.", has_trials=True)
_MIRROR = flags.DEFINE_string("mirror", "http://deb.debian.org/debian", "Where the source packages are.")
_NUM_WORKERS = shared_flags.num_workers()


@entry_point.command
def entry() -> int:
    for tool, package in {"dpkg-buildpackage": "dpkg-dev", "apt-get": "apt"}.items():
        if shutil.which(tool) is None:
            raise ConfigError(f"{tool}: not found on PATH; install the package {package}")
    if os.geteuid() != 0:
        raise ConfigError("expected to be root, since packages are installed; use a container or a virtual machine")
    for name, values, known in (
        ("levels", _LEVELS.value, list(LEVELS)),
        ("ways", _WAYS.value, [DEPLOYED, NEVER_WORSE]),
        ("lto", _LTO.value, [_NO_LTO, *_LTO_OPTIONS]),
    ):
        if wrong := set(values) - set(known):
            raise ConfigError(f"--{name}: expected some of {', '.join(known)}, found {min(wrong)}")
    folder = Path(_OUTPUT_DIR.value).absolute()
    toolchain = probe(_CLANG_PATH.value)
    with exclusive_directory(folder, "--output_dir"):
        deployments = {way: _deploy(toolchain, folder / f"prefix-{way}", way) for way in _WAYS.value}
        deployment = next(iter(deployments.values()))
        policies = {policy.name: [policy.checksum, *policy.levels] for policy in deployment.policies}
        sets = {level: list(options) for level, options in deployment.compilers[0].options.sets.levels.items()}
        check_conditions(
            folder / "conditions.json",
            {"compiler": toolchain.version_text, "policies": policies, "options": sets},
        )
        compilers = {PLAIN: [toolchain.clang] * 2 + [toolchain.tool("clang++")] * 2}
        compilers |= {way: [each.driver(cpp="+" in name) for name in COMPILERS] for way, each in deployments.items()}
        known_file = RecordFile(folder / "records.jsonl", Record)
        apt = Apt(folder, _MIRROR.value)
        apt("update")
        sources = apt.sources()
        packages = _PACKAGES.value
        if count := _MOST_NEEDED.value:
            packages = most_needed(sources, count, excluded=manifest.load().projects)
        records = {(record.package, record.level, record.way): record for record in known_file.records}
        levels = [f"{level}{_LTO_OPTIONS.get(lto, '')}" for level in _LEVELS.value for lto in _LTO.value]
        wanted = [(package, level, way) for package in packages for level in levels for way in compilers]
        missing = [each for each in wanted if each not in records]
        if missing:
            gb = _PACKAGE_GB * len({package for package, _, _ in missing})
            took = duration_text(_BUILD_S * len(missing))
            say(
                f"{count_text(len(missing), 'build')} to do: about {took}, {gb:.1f} GB of sources and of what they need"
            )
        unfetched: dict[str, str] = {}
        for package, level, way in progress_bar(missing, total=len(missing), unit="build"):
            plain = records.get((package, level, PLAIN))
            if package in unfetched or (way != PLAIN and plain is not None and not counts(plain)):
                continue
            if reason := _fetch(package, folder, apt):
                unfetched[package] = reason
                continue
            tools = dict(zip(COMPILERS, compilers[way], strict=True))
            if "-flto" in level:  # The system's tools cannot read bitcode in archives.
                tools |= llvm_tools(toolchain)
            languages = sources[package].languages if package in sources else frozenset()
            language = min(languages) if len(languages) == 1 else ""
            jobs = entry_point.num_workers(_NUM_WORKERS.value)
            record = build(package, level, way, tools, folder, jobs, language)
            known_file.append([record])
            records[package, level, way] = record
        packages = [package for package in packages if package not in unfetched]
    worse = [_report(records, packages, level, way) for level in levels for way in _WAYS.value]
    for package, reason in unfetched.items():
        echo(f"{package}: not fetched: {reason}")
    return int(any(worse))


def _deploy(toolchain: Toolchain, prefix: Path, way: str) -> Deployment:
    return deploy(
        policy_requests(_POLICY_PATH.value),
        prefix,
        [toolchain.clang],
        options=_OPTIONS.read(),
        option_trials=_OPTIONS.trials,
        pass_plugin=_OPTIONS.pass_plugin,
        never_worse=way == NEVER_WORSE,
    )


def _fetch(package: str, folder: Path, apt: Apt) -> str:
    """Installs what a package needs and unpacks its source; returns why that failed."""
    source = folder / "source" / package
    try:
        if not source.is_dir():
            apt("build-dep", package)
            apt.unpack(package, source)
    except ToolchainError as error:
        return str(error)
    return ""


def _report(records: Mapping[tuple[str, str, str], Record], packages: Sequence[str], level: str, way: str) -> bool:
    """Prints the tables of a level and a way; returns whether a package fails, or grows as `never-worse`."""
    pairs = [(records[package, level, PLAIN], records.get((package, level, way))) for package in packages]
    comparison = compare(pairs, way)
    echo(f"-{level}, bytes of text, and how {way} changes it and its parts:")
    for line in [*package_table(comparison, way).lines(), *comparison.left_out, *comparison.worse, ""]:
        echo(line)
    for line in means_table(comparison).lines():
        echo(line)
    return bool(comparison.worse)


if __name__ == "__main__":
    entry()
