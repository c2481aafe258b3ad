"""Builds LLVM's own `opt` at -Oz by plain clang, with a policy, with options, with both, and compares them.

    python -m benchmarks.llvm_opt --output_dir=$OUTPUT
    python -m benchmarks.llvm_opt --output_dir=$OUTPUT --programs=FileCheck --ways=policy,options,both

LLVM is Debian's source package llvm-toolchain-19, for X86 alone, without assertions. --programs are targets of its
build, such as opt, clang, llvm-tblgen. The front end runs once, and all ways compile its bitcode, by `mlgo-clang` with
the policy and the options that ship, or with --policy_path and --options. LLVM is in no training split.

Sizes are those of the linked program. CPU is that of all its compilations, front end included. For `opt`, callgrind
counts the instructions that it executes to optimise three modules; what it prints must be the same.

--output_dir has the builds and a record of each finished program and way; the same command continues, also a build that
was interrupted. Exit status: 1 if a program is larger with never-worse than plain.
"""

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path

from absl import flags

from benchmarks.debian_packages import Apt
from benchmarks.deployments import policy_requests
from benchmarks.llvm_builds import (
    MODULES,
    OPT,
    PLAIN,
    LlvmBuild,
    Record,
    count_instructions,
    is_larger,
    make_modules,
    report,
)
from compiler_opt.deploy.deployment import Deployment, deploy
from compiler_opt.deploy.pass_options import NO_OPTIONS
from compiler_opt.errors import ConfigError, ToolchainError
from compiler_opt.files import exclusive_directory
from compiler_opt.kept_results import RecordFile, check_conditions
from compiler_opt.llvm.toolchain import Toolchain, find_clang, probe
from compiler_opt.measure.callgrind import valgrind
from compiler_opt.report.formatting import count_text, duration_text
from compiler_opt.tools import entry_point, shared_flags
from compiler_opt.tools.entry_point import echo, say
from compiler_opt.tools.options_flag import OptionsFlag

_BOTH, _NEVER_WORSE = "both", "never-worse"
_WAYS = {"policy": (True, False), "options": (False, True), _BOTH: (True, True), _NEVER_WORSE: (True, True)}
"""By name, whether a way has the policy, and the options."""

_OUTPUT_DIR = shared_flags.required_path("output_dir", "Folder for the source, builds, logs and records.")
_PROGRAMS = flags.DEFINE_list("programs", [OPT], "Targets of LLVM's build: programs, by default opt.")
_WAYS_FLAG = flags.DEFINE_list("ways", list(_WAYS), f"Besides plain -Oz, some of {', '.join(_WAYS)}; by default all.")
_CLANG_PATH = shared_flags.clang_path()
_POLICY_PATH = shared_flags.policy("policy_path", "The policy; by default the one that ships.")
_OPTIONS = OptionsFlag("Options of LLVM's passes: {forms}.")
_MIRROR = flags.DEFINE_string("mirror", "http://deb.debian.org/debian", "Where the source package is.")
_NUM_WORKERS = shared_flags.num_workers()

_MAJOR = 19
_TOOLS = {"apt-get": "apt", "dpkg-source": "dpkg-dev", "cmake": "cmake", "ninja": "ninja-build"}
"""By program, its package."""
_TABLEGEN = {
    "LLVM_TABLEGEN": ("llvm-tblgen", f"llvm-{_MAJOR}"),
    "LLVM_HEADERS_TABLEGEN": ("llvm-tblgen", f"llvm-{_MAJOR}"),
    "CLANG_TABLEGEN": ("clang-tblgen", f"clang-tools-{_MAJOR}"),
}
"""By option of CMake, a program of the same version, which saves the builds from building their own; its package."""
_SETTINGS = {
    "LLVM_ENABLE_PROJECTS": "clang",
    "LLVM_TARGETS_TO_BUILD": "X86",
    **{f"LLVM_INCLUDE_{each}": "OFF" for each in ("BENCHMARKS", "DOCS", "EXAMPLES", "TESTS")},
    **{f"LLVM_ENABLE_{each}": "OFF" for each in ("BINDINGS", "LIBEDIT", "LIBXML2", "TERMINFO", "ZLIB", "ZSTD")},
}
"""Of CMake, where they are not LLVM's own: no other libraries are needed."""
_FRONT_END_S, _COMPILE_S = 3.0, 1.5
"""CPU seconds of an object, roughly; never-worse compiles twice."""
_SOURCE_GB, _BITCODE_MB, _OBJECT_MB = 2.5, 0.6, 0.4
"""On disk; objects are in libraries, too."""


@entry_point.command
def entry() -> int:
    for tool, package in _TOOLS.items():
        if shutil.which(tool) is None:
            raise ConfigError(f"{tool}: not found on PATH; install the package {package}")
    if wrong := set(_WAYS_FLAG.value) - set(_WAYS):
        raise ConfigError(f"--ways: expected some of {', '.join(_WAYS)}, found {min(wrong)}")
    toolchain, old_clang = probe(_CLANG_PATH.value), find_clang(f"clang-{_MAJOR}")
    settings = [f"-D{name}={value}" for name, value in {**_SETTINGS, **_tablegen(old_clang)}.items()]
    folder = Path(_OUTPUT_DIR.value).absolute()
    jobs = entry_point.num_workers(_NUM_WORKERS.value)
    programs, ways = list(dict.fromkeys(_PROGRAMS.value)), (PLAIN, *dict.fromkeys(_WAYS_FLAG.value))
    if OPT in programs:
        valgrind()
    wanted = [(program, way) for program in programs for way in ways]
    with exclusive_directory(folder, "--output_dir"):
        both = _deploy(_BOTH, toolchain, folder)
        _check_conditions(both, toolchain, folder)
        file = RecordFile(folder / "records.jsonl", Record)
        known = {(record.program, record.way): record for record in file.records}
        if missing := [each for each in wanted if each not in known]:
            source = _source(folder)
            drivers = {PLAIN: toolchain.clang, _BOTH: both.driver()}
            plain = LlvmBuild(PLAIN, toolchain.clang, toolchain, folder)
            plain.configure(source, settings)
            _announce(missing, plain, jobs)
            for program, way in missing:
                if way not in drivers:
                    drivers[way] = _deploy(way, toolchain, folder).driver()
                build = LlvmBuild(way, drivers[way], toolchain, folder)
                build.configure(source, settings)
                build.make(program, jobs)
                record = build.measure(program)
                if program == OPT:
                    modules = make_modules(plain, MODULES, old_clang)
                    record = dataclasses.replace(record, instructions=count_instructions(build, plain, modules))
                file.append([record])
                known[program, way] = record
    for line in report([known[each] for each in wanted]).lines():
        echo(line)
    larger = [program for program in programs if is_larger(known.get((program, _NEVER_WORSE)), known[program, PLAIN])]
    for program in larger:
        echo(f"{program}: larger with never-worse than plain")
    return int(bool(larger))


def _tablegen(clang: Path) -> dict[str, Path]:
    """Settings that name the installed programs of LLVM that write its sources; raises ToolchainError without them."""
    folder = clang.resolve().parent
    for tool, package in _TABLEGEN.values():
        if not (folder / tool).exists():
            raise ToolchainError(f"{folder / tool}: not found; install the package {package}")
    return {setting: folder / tool for setting, (tool, _) in _TABLEGEN.items()}


def _deploy(way: str, toolchain: Toolchain, folder: Path) -> Deployment:
    has_policy, has_options = _WAYS[way]
    requests = policy_requests(_POLICY_PATH.value) if has_policy else []
    options = _OPTIONS.read() if has_options else NO_OPTIONS
    prefix, never_worse = folder / "prefix" / way, way == _NEVER_WORSE
    return deploy(requests, prefix, [toolchain.clang], options=options, never_worse=never_worse, strict=True)


def _check_conditions(both: Deployment, toolchain: Toolchain, folder: Path) -> None:
    policies = [policy.checksum for policy in both.policies]
    options = {level: list(words) for level, words in both.compilers[0].options.sets.levels.items()}
    conditions = {"compiler": toolchain.version_text, "policies": policies, "options": options}
    check_conditions(folder / "conditions.json", conditions)


def _source(folder: Path) -> Path:
    """The folder of LLVM in the source package, which is fetched first."""
    unpacked = folder / "source"
    if not unpacked.is_dir():
        echo(f"Fetches LLVM {_MAJOR}; its source takes {_SOURCE_GB:g} GB")
        apt = Apt(folder, _MIRROR.value)
        apt("update")
        apt.unpack(f"llvm-toolchain-{_MAJOR}", unpacked)
    return next(unpacked.glob("*/debian")).with_name("llvm")


def _announce(missing: Sequence[tuple[str, str]], plain: LlvmBuild, jobs: int) -> None:
    """Says how long the builds will take, and how much of the disk."""
    objects = {program: [path.relative_to(plain.build) for path in plain.objects(program)] for program, _ in missing}
    left = {(way, path) for program, way in missing for path in objects[program]}
    left = {(way, path) for way, path in left if not (plain.build.with_name(way) / path).exists()}
    front_ends = sum(not (plain.bitcode / f"{path}.bc").exists() for path in {path for _, path in left})
    seconds = _FRONT_END_S * front_ends + _COMPILE_S * sum(1 + (way == _NEVER_WORSE) for way, _ in left)
    gb = (_BITCODE_MB * front_ends + _OBJECT_MB * len(left)) / 1000
    say(
        f"{count_text(front_ends, 'source')} and {count_text(len(left), 'object')} to compile: about "
        f"{duration_text(seconds / jobs)} on {count_text(jobs, 'idle processor')}, {gb:.1f} GB"
    )


if __name__ == "__main__":
    entry()
