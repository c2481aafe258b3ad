"""Rebuilds Debian's source packages, with their tests, by plain clang and by `mlgo-clang`, and compares what they ship.

    python -m benchmarks.distribution --output_dir=$OUTPUT --packages=zlib,ninja-build --levels=Oz,O2

For root on a Debian system that may be thrown away: it installs what the packages need, and runs their build and their
tests. While one builds, `gcc`, `cc`, `g++` and `c++` are the compiler under test, with the level as its last option, so
nothing of a package is changed. `mlgo-clang` has the policy and the options that ship, or those of --policy_path and
--options.

A package whose build or tests fail with plain clang is counted and left out. Sizes are those of the text of programs
and shared libraries in the binary packages. --output_dir has a record and a log of each build, and the same command
continues. Exit status: 1 if a package builds and passes its tests with plain clang only.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from absl import flags

from benchmarks.debian_packages import DEPLOYED, PLAIN, Apt, Record, build, sizes
from compiler_opt import pretrained
from compiler_opt.deploy.deployment import deploy
from compiler_opt.deploy.policies import PolicyRequest
from compiler_opt.errors import ConfigError
from compiler_opt.files import exclusive_directory
from compiler_opt.kept_results import RecordFile, check_conditions
from compiler_opt.llvm.toolchain import probe
from compiler_opt.pass_options.sets import LEVELS
from compiler_opt.progress_bar import progress_bar
from compiler_opt.report.formatting import aligned, bytes_text, change_text
from compiler_opt.tools import entry_point, shared_flags
from compiler_opt.tools.entry_point import echo
from compiler_opt.tools.options_flag import OptionsFlag

_OUTPUT_DIR = shared_flags.required_path("output_dir", "Folder for sources, builds, logs and records.")
_PACKAGES = flags.DEFINE_list(
    "packages",
    "zlib,lz4,expat,libpng1.6,pcre2,jansson,ninja-build,libjsoncpp,snappy,re2".split(","),
    "Debian's source packages; by default five in C and five with C++.",
)
_LEVELS = flags.DEFINE_list("levels", "Oz", "Optimisation levels.")
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
    if wrong := set(_LEVELS.value) - set(LEVELS):
        raise ConfigError(f"--levels: expected some of {', '.join(LEVELS)}, found {min(wrong)}")
    folder = Path(_OUTPUT_DIR.value).absolute()
    toolchain = probe(_CLANG_PATH.value)
    name = _POLICY_PATH.value
    with exclusive_directory(folder, "--output_dir"):
        requests = [] if name == shared_flags.NONE else [PolicyRequest(pretrained.folder(name) if name else None)]
        deployment = deploy(
            requests,
            folder / "prefix",
            [toolchain.clang],
            options=_OPTIONS.read(),
            option_trials=_OPTIONS.trials,
            pass_plugin=_OPTIONS.pass_plugin,
        )
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
                apt.unpack(package, source)
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
