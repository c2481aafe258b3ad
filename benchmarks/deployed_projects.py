"""Builds two held-out projects with `mlgo-clang++` and CMake, runs their tests, and compares the objects with rollouts.

For each project and compiler: a clean build; the project's own tests; a second clean build, whose objects must be
byte-identical; and a plain build with embedded bitcode, from which `rollout` compiles every module under the same
policy, as training and evaluation do. These objects must be identical, too. Sizes are printed.

    python -m benchmarks.deployed_projects --policy_path=$POLICY --clang_path=clang-19 --clang_path=clang-22

leveldb's archive has no build file, so this module contains one; opentimelineio has its own.
"""

import dataclasses
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from absl import flags

from compiler_opt.collect.workers import Job, WorkerPool
from compiler_opt.corpus.builds.database import objects_of_database
from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.making import extract
from compiler_opt.corpus.ready_made import archives, manifest
from compiler_opt.deploy.deployment import Deployment, deploy
from compiler_opt.deploy.policies import PolicyRequest
from compiler_opt.errors import CompileError, ConfigError
from compiler_opt.files import default_cache_dir, one_line
from compiler_opt.llvm import processes
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.toolchain import Toolchain, probe
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.problems.inlining import PROBLEM as INLINING_PROBLEM
from compiler_opt.spaces.binary import BinaryPolicy
from compiler_opt.tools import entry_point, shared_flags

_POLICY_PATH = flags.DEFINE_string("policy_path", "demo/training/policy", "A trained policy.")
_CLANG_PATH = flags.DEFINE_multi_string("clang_path", ["clang-19", "clang-22"], "The compilers.")
_PROJECTS = flags.DEFINE_list("projects", ["leveldb", "opentimelineio"], "Which projects.")
_NUM_WORKERS = shared_flags.num_workers()

_TIMEOUT_S = 3600.0

_LEVELDB = """
cmake_minimum_required(VERSION 3.13)
project(leveldb CXX)
set(CMAKE_CXX_STANDARD 11)
enable_testing()
find_package(Threads REQUIRED)
file(GLOB sources db/*.cc port/*.cc table/*.cc util/*.cc)
set(test_sources ${sources})
list(FILTER sources EXCLUDE REGEX "(_test|db_bench|leveldb_main|leveldbutil|testharness|testutil)[.]cc$")
list(FILTER test_sources INCLUDE REGEX "_test[.]cc$")
add_library(leveldb STATIC ${sources})
target_include_directories(leveldb PUBLIC . include)
target_compile_definitions(leveldb PUBLIC LEVELDB_PLATFORM_POSIX OS_LINUX)
target_link_libraries(leveldb PUBLIC Threads::Threads)
add_library(testing STATIC util/testharness.cc util/testutil.cc)
target_link_libraries(testing PUBLIC leveldb)
foreach(source ${test_sources})
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} ${source})
  target_link_libraries(${name} testing)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES ENVIRONMENT TEST_TMPDIR=${CMAKE_BINARY_DIR}/${name}.tmp)
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/${name}.tmp)
endforeach()
"""


@dataclasses.dataclass(frozen=True)
class _Build:
    """How to build a project.

    Attributes:
      root: the archive's folder of CMakeLists.txt.
      cmake_lists: the text of that file, if the archive has none.
      options: options of CMake.
    """

    root: str = "."
    cmake_lists: str | None = None
    options: tuple[str, ...] = ()


BUILDS: Mapping[str, _Build] = {
    "leveldb": _Build("leveldb", _LEVELDB),
    "opentimelineio": _Build(options=("-DOTIO_AUTOMATIC_SUBMODULES=OFF",)),
}


@dataclasses.dataclass(frozen=True)
class Findings:
    """The result of one project with one compiler.

    Attributes:
      tests: the last lines of ctest.
      num_objects: objects of the build.
      unlike_again: names of those that differ in the second build.
      unlike_rollout: names of those that differ from the rollout's, with the reason if the rollout failed.
      unlike_plain: how many differ from plain clang's, so that there was something to show.
      plain_text_bytes: of all linked programs and shared libraries together, built with plain clang.
      policy_text_bytes: the same with the policy.
    """

    tests: str
    num_objects: int
    unlike_again: tuple[str, ...]
    unlike_rollout: tuple[str, ...]
    unlike_plain: int
    plain_text_bytes: int
    policy_text_bytes: int


def check(
    name: str, deployment: Deployment, toolchain: Toolchain, policy: BinaryPolicy, scratch: Path, num_workers: int
) -> Findings:
    """Builds and compares one project.

    Args:
      name: one of `BUILDS`.
      deployment: of `policy`, for this compiler.
      toolchain: the compiler.
      policy: the deployed policy.
      scratch: a folder of the caller's own.
      num_workers: compilers at a time.

    Raises:
      CompileError: a build or a test fails.
    """
    source = scratch / "source"
    archives.unpack(archives.fetch(manifest.load().projects[name].archive, default_cache_dir()), source)
    source /= BUILDS[name].root
    if (text := BUILDS[name].cmake_lists) is not None:
        (source / "CMakeLists.txt").write_text(text)
    major = toolchain.version[0]
    drivers = [deployment.driver(cpp=cpp, major=major) for cpp in (False, True)]
    plain = [toolchain.clang, toolchain.tool("clang++")]
    policy_dir, again_dir, plain_dir, bitcode_dir = (scratch / each for each in ("policy", "again", "plain", "bitcode"))
    strictly = {**os.environ, "MLGO_STRICT": "1"}
    _cmake(name, source, policy_dir, drivers, num_workers, environment=strictly)
    # Sequentially: some tests depend on time. leveldb's db_test fails occasionally, also with plain clang.
    repeated = ["--repeat", "until-pass:6", "--output-on-failure"]
    tests = _run(["ctest", "--test-dir", str(policy_dir), *repeated], strictly)
    _cmake(name, source, again_dir, drivers, num_workers, environment=strictly)
    _cmake(name, source, plain_dir, plain, num_workers)
    _cmake(name, source, bitcode_dir, plain, num_workers, "-Xclang -fembed-bitcode=all")
    objects = sorted(str(path.relative_to(policy_dir)) for path in policy_dir.rglob("*.o"))

    def unlike(other: Path) -> tuple[str, ...]:
        return tuple(each for each in objects if (policy_dir / each).read_bytes() != (other / each).read_bytes())

    failures = _rollouts(bitcode_dir, scratch / "rollouts", toolchain, policy, num_workers)
    return Findings(
        tests=" ".join(line.strip() for line in tests.splitlines()[-4:] if "tests passed" in line),
        num_objects=len(objects),
        unlike_again=unlike(again_dir),
        unlike_rollout=failures or unlike(scratch / "rollouts"),
        unlike_plain=len(unlike(plain_dir)),
        plain_text_bytes=_text_bytes(plain_dir, toolchain),
        policy_text_bytes=_text_bytes(policy_dir, toolchain),
    )


def _cmake(
    name: str,
    source: Path,
    build: Path,
    compilers: Sequence[Path],
    num_workers: int,
    options: str = "",
    environment: Mapping[str, str] | None = None,
) -> None:
    languages = zip(("C", "CXX"), compilers, strict=True)
    settings = [f"-DCMAKE_{language}_COMPILER={compiler}" for language, compiler in languages]
    for language in ("C", "CXX"):
        # CMake's own level for this build type is -Os.
        settings += [f"-DCMAKE_{language}_FLAGS_MINSIZEREL=-Oz -DNDEBUG", f"-DCMAKE_{language}_FLAGS={options}"]
    settings += ["-DCMAKE_BUILD_TYPE=MinSizeRel", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", *BUILDS[name].options]
    _run(["cmake", "-S", str(source), "-B", str(build), *settings], environment)
    output = _run(["cmake", "--build", str(build), f"-j{num_workers}"], environment)
    if "mlgo:" in output:
        raise CompileError(f"{name}: the driver has something to say: {output[output.index('mlgo:') :][:300]}")


def _run(command: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    result = processes.run(command, timeout_s=_TIMEOUT_S, environment=environment)
    if not result.ok:
        said = result.stdout.decode("utf-8", "replace")[-2000:]
        raise CompileError(f"{result.describe()}; it said: {one_line(said)}")
    return result.stdout.decode("utf-8", "replace") + result.stderr_tail


def _rollouts(build: Path, kept: Path, toolchain: Toolchain, policy: BinaryPolicy, num_workers: int) -> tuple[str, ...]:
    """Compiles every module of a build with bitcode; returns the failures."""
    objects = objects_of_database(build / "compile_commands.json", build)
    corpus_dir = kept.with_name("corpus")
    extract.extract(objects, corpus_dir, num_workers=num_workers)
    jobs = [Job(module, policy, keep_object=kept / module.name) for module in Corpus.load(corpus_dir).modules]
    with WorkerPool(toolchain, INLINING_PROBLEM, num_workers=num_workers) as pool:
        return tuple(result.failure for _, result in pool.rollouts(jobs) if result.failure is not None)


def _text_bytes(build: Path, toolchain: Toolchain) -> int:
    programs = [
        path
        for path in build.rglob("*")
        if path.is_file() and not path.is_symlink() and "CMakeFiles" not in path.parts and os.access(path, os.X_OK)
    ]
    result = processes.run([str(toolchain.tool("llvm-size")), *map(str, programs)])
    lines = result.stdout.decode().splitlines()[1:]
    return sum(int(line.split()[0]) for line in lines)


@entry_point.command
def entry() -> int:
    for tool in ("cmake", "ctest"):
        if shutil.which(tool) is None:
            raise ConfigError(f"{tool}: not found on PATH; install the package cmake")
    unknown = [name for name in _PROJECTS.value if name not in BUILDS]
    if unknown:
        raise ConfigError(f"--projects: expected some of {', '.join(BUILDS)}; found {unknown[0]!r}")
    policy = BinaryPolicy(NetworkWeights.load(Path(_POLICY_PATH.value)))
    toolchains = [probe(clang) for clang in _CLANG_PATH.value]
    num_workers = entry_point.num_workers(_NUM_WORKERS.value)
    good = True
    with scratch_directory() as scratch:
        deployment = deploy([PolicyRequest(Path(_POLICY_PATH.value))], scratch / "prefix", _CLANG_PATH.value)
        for name in _PROJECTS.value:
            for toolchain in toolchains:
                folder = scratch / f"{name}-{toolchain.version[0]}"
                found = check(name, deployment, toolchain, policy, folder, num_workers)
                good &= not found.unlike_again and not found.unlike_rollout
                _report(name, toolchain, found)
                shutil.rmtree(folder)
    return 0 if good else 1


def _report(name: str, toolchain: Toolchain, found: Findings) -> None:
    change = found.policy_text_bytes / found.plain_text_bytes - 1
    print(f"{name}, {toolchain.version_text}, -Oz")
    print(f"  its own tests: {found.tests}")
    print(f"  {found.num_objects} objects, {found.unlike_plain} of them other than plain clang's")
    for what, unlike in {"the second build's": found.unlike_again, "the rollouts'": found.unlike_rollout}.items():
        print(f"  other than {what}: {len(unlike)}{' ' if unlike else ''}{', '.join(unlike[:3])}")
    print(
        f"  linked text, tests included: {found.plain_text_bytes} bytes by plain clang, "
        f"{found.policy_text_bytes} with the policy ({change:+.2%})",
        flush=True,
    )


if __name__ == "__main__":
    entry()
