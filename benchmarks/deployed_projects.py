"""Builds two held-out projects with `mlgo-clang++` and CMake, runs their tests, and compares the objects with rollouts.

For each project and compiler: a clean build; the project's own tests; a second clean build, which must be
byte-identical; and a plain build with embedded bitcode, from which `rollout` compiles every module under the same
policy, as training and evaluation do. These objects must be identical, too. So must those of a deployment in another
prefix; two builds with -g, and two with CMake's interprocedural optimisation; 20 links by lld in 8 partitions; and
what comes from ccache when it misses, when it hits, and after compilers have died. With MLGO_DISABLE, ccache must give
plain clang's objects. Sizes are printed.

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
from compiler_opt.decisions.inlining import PROBLEM as INLINING_PROBLEM
from compiler_opt.deploy.deployment import Deployment, deploy
from compiler_opt.deploy.policies import PolicyRequest
from compiler_opt.errors import CompileError, ConfigError
from compiler_opt.files import default_cache_dir, one_line, size_and_sha256
from compiler_opt.llvm import processes
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.toolchain import Toolchain, probe
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.binary import BinaryPolicy
from compiler_opt.tools import entry_point, shared_flags

_POLICY_PATH = flags.DEFINE_string("policy_path", "demo/training/policy", "A trained policy.")
_CLANG_PATH = flags.DEFINE_multi_string("clang_path", ["clang-19", "clang-22"], "The compilers.")
_PROJECTS = flags.DEFINE_list("projects", ["leveldb", "opentimelineio"], "Which projects.")
_NUM_WORKERS = shared_flags.num_workers()

_TIMEOUT_S = 3600.0
_LINKS, _PARTITIONS = 20, 8
_IPO = "-DCMAKE_INTERPROCEDURAL_OPTIMIZATION=ON"

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
class _Way:
    """One way to build a project.

    Attributes:
      compilers: for C and C++.
      options: more options of both, when they compile or link.
      settings: more options of CMake.
      environment: more environment variables.
    """

    compilers: Sequence[Path]
    options: str = ""
    settings: tuple[str, ...] = ()
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)


Files = Mapping[str, str]
"""Digests of a build's objects, programs and shared libraries, by path in its folder."""


@dataclasses.dataclass(frozen=True)
class Findings:
    """The result of one project with one compiler.

    Attributes:
      tests: the last lines of ctest.
      num_objects: objects of the build.
      unlike: by what the build was compared with, the names of the files that differ, or the reason why none could.
      unlike_plain: how many objects differ from plain clang's, so that there was something to show.
      plain_text_bytes: of all linked programs and shared libraries together, built with plain clang.
      policy_text_bytes: the same with the policy.
    """

    tests: str
    num_objects: int
    unlike: Mapping[str, tuple[str, ...]]
    unlike_plain: int
    plain_text_bytes: int
    policy_text_bytes: int


class Project:
    """A project, and the builds of it with one compiler.

    Args:
      name: one of `BUILDS`.
      toolchain: the compiler.
      scratch: a folder of the caller's own, for sources and builds.
      workers: compilers at a time.
    """

    def __init__(self, name: str, toolchain: Toolchain, scratch: Path, workers: int):
        self._name, self._toolchain, self._scratch, self._workers = name, toolchain, scratch, workers
        source = scratch / "source"
        archives.unpack(archives.fetch(manifest.load().projects[name].archive, default_cache_dir()), source)
        self._source = source / BUILDS[name].root
        if (text := BUILDS[name].cmake_lists) is not None:
            (self._source / "CMakeLists.txt").write_text(text)

    def check(self, deployments: Sequence[Deployment], policy: BinaryPolicy) -> Findings:
        """Builds and compares; `deployments` are two of the policy, in different prefixes.

        Raises:
          CompileError: a build or a test fails.
        """
        strictly = {"MLGO_STRICT": "1"}
        ways = [
            _Way([deployment.driver(cpp=cpp, major=self._toolchain.version[0]) for cpp in (False, True)])
            for deployment in deployments
        ]
        way, elsewhere = (dataclasses.replace(way, environment=strictly) for way in ways)
        plainly = _Way([self._toolchain.clang, self._toolchain.tool("clang++")])
        folder = self._build(way, "policy")
        # Sequentially: some tests depend on time. leveldb's db_test fails occasionally, also with plain clang.
        repeated = ["--repeat", "until-pass:6", "--output-on-failure"]
        tests = _run(["ctest", "--test-dir", str(folder), *repeated], strictly)
        files, text_bytes = _files(folder), _text_bytes(folder, self._toolchain)
        objects = {path: digest for path, digest in files.items() if path.endswith(".o")}
        plain_folder = self._build(plainly, "plain")
        plain, plain_text_bytes = _files(plain_folder), _text_bytes(plain_folder, self._toolchain)
        bitcode = self._build(dataclasses.replace(plainly, options="-Xclang -fembed-bitcode=all"), "bitcode")
        kept = self._scratch / "rollouts"
        failures = _rollouts(bitcode, kept, self._toolchain, policy, self._workers)
        unlike = {
            "the second build's": _unlike(files, _files(self._build(way, "policy"))),
            "the rollouts'": failures or _unlike(objects, _files(kept)),
            "those of another prefix": _unlike(objects, _files(self._build(elsewhere, "elsewhere"))),
            "the second build's, with -g": self._twice(dataclasses.replace(way, options="-g")),
            "the second build's, with CMake's IPO": self._twice(dataclasses.replace(way, settings=(_IPO,))),
            f"the first of {_LINKS} links in {_PARTITIONS} partitions": self._links(way),
            **self._cached(way, objects, plain),
        }
        return Findings(
            tests=" ".join(line.strip() for line in tests.splitlines()[-4:] if "tests passed" in line),
            num_objects=len(objects),
            unlike=unlike,
            unlike_plain=len(_unlike(objects, plain)),
            plain_text_bytes=plain_text_bytes,
            policy_text_bytes=text_bytes,
        )

    def _build(self, way: _Way, name: str) -> Path:
        """Builds from scratch in the folder of a name, and returns it."""
        folder = self._scratch / name
        shutil.rmtree(folder, ignore_errors=True)
        languages = zip(("C", "CXX"), way.compilers, strict=True)
        settings = [f"-DCMAKE_{language}_COMPILER={compiler}" for language, compiler in languages]
        for language in ("C", "CXX"):
            # CMake's own level for this build type is -Os.
            settings += [f"-DCMAKE_{language}_FLAGS_MINSIZEREL=-Oz -DNDEBUG", f"-DCMAKE_{language}_FLAGS={way.options}"]
        settings += ["-DCMAKE_BUILD_TYPE=MinSizeRel", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", *way.settings]
        _run(
            ["cmake", "-S", str(self._source), "-B", str(folder), *settings, *BUILDS[self._name].options],
            way.environment,
        )
        self._continue(way, folder)
        return folder

    def _continue(self, way: _Way, folder: Path) -> None:
        output = _run(["cmake", "--build", str(folder), f"-j{self._workers}"], way.environment)
        if "mlgo:" in output:
            said = output[output.index("mlgo:") :][:300]
            raise CompileError(f"{self._name}: the driver has something to say: {said}")

    def _twice(self, way: _Way) -> tuple[str, ...]:
        # In one folder: debug information names it.
        first, second = (_files(self._build(way, "twice")) for _ in range(2))
        return _unlike(first, second)

    def _links(self, way: _Way) -> tuple[str, ...]:
        """Links the first program again and again by a linker that optimises in threads."""
        tools = tuple(
            f"-DCMAKE_{tool.upper()}={way.compilers[0].with_name(f'mlgo-llvm-{tool}-{self._toolchain.version[0]}')}"
            for tool in ("ar", "ranlib")
        )
        link_options = f"-fuse-ld=lld -Wl,--lto-partitions={_PARTITIONS}"
        settings = tuple(f"-DCMAKE_{kind}_LINKER_FLAGS={link_options}" for kind in ("EXE", "SHARED", "MODULE"))
        way = dataclasses.replace(way, options="-flto", settings=(*tools, *settings))
        folder = self._build(way, "links")
        program = _programs(folder)[0]
        digests = [size_and_sha256(program)[1]]
        for _ in range(_LINKS - 1):
            program.unlink()
            self._continue(way, folder)
            digests.append(size_and_sha256(program)[1])
        return tuple(f"link {number}" for number, digest in enumerate(digests, 1) if digest != digests[0])

    def _cached(self, way: _Way, objects: Files, plain: Files) -> dict[str, tuple[str, ...]]:
        """Builds through ccache: into an empty cache, from it, without the policy, and after compilers that died."""
        dying, marker = self._scratch / "dying-clang", self._scratch / "dying"
        dying.write_text(f'#!/bin/sh\n{_DYING.format(marker=marker)}exec {self._toolchain.clang} "$@"\n')
        dying.chmod(0o755)
        cache = {"CCACHE_DIR": str(self._scratch / "ccache"), "CCACHE_COMPILERCHECK": "%compiler% --mlgo-info"}
        launchers = tuple(f"-DCMAKE_{language}_COMPILER_LAUNCHER=ccache" for language in ("C", "CXX"))
        way = dataclasses.replace(way, settings=launchers, environment=cache)
        unlike = {"those that ccache missed": _unlike(objects, _files(self._build(way, "cached")))}
        before = _hits(way)
        found = _files(self._build(way, "cached"))
        missed = len(objects) - (_hits(way) - before)
        unlike["those from ccache"] = _unlike(objects, found) + (f"{missed} not found there",) * (missed > 0)
        disabled = dataclasses.replace(way, environment={**cache, "MLGO_DISABLE": "1"})
        unlike["plain clang's, with ccache and MLGO_DISABLE"] = _unlike(
            {path: plain[path] for path in objects}, _files(self._build(disabled, "cached"))
        )
        mortal = dataclasses.replace(way, environment={**cache, "MLGO_CLANG": str(dying)})
        folder = self._build(mortal, "cached")
        shutil.rmtree(self._scratch / "ccache")
        for path in objects:
            (folder / path).unlink()
        marker.touch()
        try:
            self._continue(mortal, folder)
            raise CompileError(
                f"{self._name}: a build in which every compiler with a policy dies succeeded with ccache"
            )
        except CompileError as error:
            if "the compiler died" not in str(error):
                raise
        marker.unlink()
        self._continue(mortal, folder)
        unlike["those that ccache got after compilers had died"] = _unlike(objects, _files(folder))
        return unlike


_DYING = 'case "$*" in *-fpass-plugin=*) [ -e {marker} ] && kill -KILL $$;; esac\n'


def _hits(way: _Way) -> int:
    counts = dict(line.split() for line in _run(["ccache", "--print-stats"], way.environment).splitlines())
    return int(counts["direct_cache_hit"]) + int(counts["preprocessed_cache_hit"])


def _unlike(expected: Files, found: Files) -> tuple[str, ...]:
    return tuple(path for path, digest in expected.items() if found.get(path) != digest)


def _files(folder: Path) -> Files:
    paths = [*sorted(folder.rglob("*.o")), *_programs(folder)]
    return {str(path.relative_to(folder)): size_and_sha256(path)[1] for path in paths}


def _programs(folder: Path) -> list[Path]:
    """Linked programs and shared libraries."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file()
        and not path.is_symlink()
        and "CMakeFiles" not in path.parts
        and path.suffix != ".o"
        and os.access(path, os.X_OK)
    )


def _run(command: Sequence[str], environment: Mapping[str, str]) -> str:
    result = processes.run(command, timeout_s=_TIMEOUT_S, environment={**os.environ, **environment})
    if not result.ok:
        said = result.stdout.decode("utf-8", "replace")[-2000:]
        raise CompileError(f"{result.describe()}; it said: {one_line(said)}")
    return result.stdout.decode("utf-8", "replace") + result.stderr_tail


def _rollouts(build: Path, kept: Path, toolchain: Toolchain, policy: BinaryPolicy, num_workers: int) -> tuple[str, ...]:
    """Compiles every module of a build with bitcode; returns the failures."""
    objects = objects_of_database(build / "compile_commands.json", build).objects
    corpus_dir = kept.with_name("corpus")
    extract.extract(objects, corpus_dir, num_workers=num_workers)
    jobs = [Job(module, policy, keep_object=kept / module.name) for module in Corpus.load(corpus_dir).modules]
    with WorkerPool(toolchain, INLINING_PROBLEM, num_workers=num_workers) as pool:
        return tuple(result.failure for _, result in pool.rollouts(jobs) if result.failure is not None)


def _text_bytes(build: Path, toolchain: Toolchain) -> int:
    result = processes.run([str(toolchain.tool("llvm-size")), *map(str, _programs(build))])
    lines = result.stdout.decode().splitlines()[1:]
    return sum(int(line.split()[0]) for line in lines)


@entry_point.command
def entry() -> int:
    for tool, package in {"cmake": "cmake", "ctest": "cmake", "ccache": "ccache"}.items():
        if shutil.which(tool) is None:
            raise ConfigError(f"{tool}: not found on PATH; install the package {package}")
    unknown = [name for name in _PROJECTS.value if name not in BUILDS]
    if unknown:
        raise ConfigError(f"--projects: expected some of {', '.join(BUILDS)}; found {unknown[0]!r}")
    policy = BinaryPolicy(NetworkWeights.load(Path(_POLICY_PATH.value)))
    toolchains = [probe(clang) for clang in _CLANG_PATH.value]
    num_workers = entry_point.num_workers(_NUM_WORKERS.value)
    good = True
    with scratch_directory() as scratch:
        request = PolicyRequest(Path(_POLICY_PATH.value))
        deployments = [deploy([request], scratch / prefix, _CLANG_PATH.value) for prefix in ("prefix", "another")]
        for name in _PROJECTS.value:
            for toolchain in toolchains:
                folder = scratch / f"{name}-{toolchain.version[0]}"
                found = Project(name, toolchain, folder, num_workers).check(deployments, policy)
                good &= not any(found.unlike.values())
                _report(name, toolchain, found)
                shutil.rmtree(folder)
    return 0 if good else 1


def _report(name: str, toolchain: Toolchain, found: Findings) -> None:
    change = found.policy_text_bytes / found.plain_text_bytes - 1
    print(f"{name}, {toolchain.version_text}, -Oz")
    print(f"  its own tests: {found.tests}")
    print(f"  {found.num_objects} objects, {found.unlike_plain} of them other than plain clang's")
    for what, unlike in found.unlike.items():
        print(f"  other than {what}: {len(unlike)}{' ' if unlike else ''}{', '.join(unlike[:3])}")
    print(
        f"  linked text, tests included: {found.plain_text_bytes} bytes by plain clang, "
        f"{found.policy_text_bytes} with the policy ({change:+.2%})",
        flush=True,
    )


if __name__ == "__main__":
    entry()
