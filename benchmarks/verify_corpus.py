"""Extracts corpora from real CMake builds, compiles them again, and compares the objects, section by section.

Each project is fetched, built by its own CMakeLists.txt and Ninja, and extracted; then every module is verified, with
each compiler:

    python -m benchmarks.verify_corpus --clang_path=clang-19 --clang_path=clang-22

`--projects` names them, `NAME` or `NAME:WAY`. The ways to build are `embedded` (bitcode in the objects, which
compile_commands.json lists), and two with ThinLTO: `local` (backends inside the linker) and `distributed` (each backend
a compiler process, see `distributed_link.py`).

Prints how many objects are byte-identical, and why the others differ. Exit status 1 if one differs without a known
reason.
"""

import dataclasses
import os
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from absl import flags

from benchmarks import distributed_link
from compiler_opt.collect import verify
from compiler_opt.collect.verify import Verification
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.builds import database
from compiler_opt.corpus.builds.objects import objects_of_directory
from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.making import extract, thinlto
from compiler_opt.corpus.making.writing import MadeCorpus
from compiler_opt.corpus.ready_made import archives, manifest
from compiler_opt.decisions.inlining import PROBLEM as INLINING_PROBLEM
from compiler_opt.errors import CompileError, ConfigError
from compiler_opt.files import default_cache_dir, one_line
from compiler_opt.llvm import processes
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.toolchain import Toolchain, probe
from compiler_opt.progress_bar import progress_bar
from compiler_opt.tools import entry_point, shared_flags

WAYS = _EMBEDDED, _LOCAL, _DISTRIBUTED = "embedded", "local", "distributed"

_CLANG_PATH = flags.DEFINE_multi_string("clang_path", ["clang-19", "clang-22"], "The compilers.")
_PROJECTS = flags.DEFINE_list(
    "projects",
    ["h3", "libuv", "rapidyaml", "c-blosc", *(f"{name}:{way}" for name in ("libuv", "rapidyaml") for way in WAYS[1:])],
    "Which projects, NAME or NAME:WAY.",
)
_THINLTO_OPTIONS = flags.DEFINE_string("thinlto_options", "-O2 -DNDEBUG", "Compiler options of builds with ThinLTO.")
_OPTIONS = flags.DEFINE_string("options", "-Oz -DNDEBUG", "Compiler options of the projects.")
_NUM_WORKERS = shared_flags.num_workers()

_EMBED = "-Xclang -fembed-bitcode=all"
_KEEP = "-Wl,--save-temps=import -Wl,--save-temps=prelink -Wl,--thinlto-emit-index-files"


@dataclasses.dataclass(frozen=True)
class _Build:
    """How to build a project.

    Attributes:
      root: the archive's folder of CMakeLists.txt.
      options: options of CMake.
      thinlto_options: more options for builds with ThinLTO, which must link something.
    """

    root: str = "."
    options: tuple[str, ...] = ()
    thinlto_options: tuple[str, ...] = ("-DBUILD_SHARED_LIBS=ON",)


_NO_H3_PROGRAMS = tuple(f"-DBUILD_{what}=OFF" for what in ("BENCHMARKS", "FUZZERS", "FILTERS", "GENERATORS"))
BUILDS: Mapping[str, _Build] = {
    "c-blosc": _Build("blosc/c-blosc", tuple(f"-DBUILD_{what}=OFF" for what in ("TESTS", "BENCHMARKS", "FUZZERS"))),
    "h3": _Build("src/h3lib", ("-DBUILD_TESTING=OFF", *_NO_H3_PROGRAMS)),
    "libuv": _Build("vendor/libuv", ("-DLIBUV_BUILD_TESTS=OFF",)),
    "opentimelineio": _Build(options=("-DOTIO_AUTOMATIC_SUBMODULES=OFF",)),
    "rapidyaml": _Build("cpp"),
    "ruckig": _Build(options=("-DBUILD_EXAMPLES=OFF", "-DBUILD_TESTS=OFF")),
}


def _settings(way: str, build: _Build, toolchain: Toolchain) -> list[str]:
    """CMake options of one way to build."""
    compilers = {"C": toolchain.clang, "CXX": toolchain.tool("clang++")}
    settings = [f"-DCMAKE_{language}_COMPILER={path}" for language, path in compilers.items()]
    compiled = f"{_OPTIONS.value} {_EMBED}" if way == _EMBEDDED else f"{_THINLTO_OPTIONS.value} -flto=thin"
    settings += [f"-DCMAKE_{language}_FLAGS_MINSIZEREL={compiled}" for language in compilers]
    settings += ["-DCMAKE_BUILD_TYPE=MinSizeRel", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", *build.options]
    if way == _EMBEDDED:
        return settings
    archiver = toolchain.tool("llvm-ar")
    settings += [f"-DCMAKE_AR={archiver}", f"-DCMAKE_RANLIB={archiver.with_name('llvm-ranlib')}"]
    linked = "-fuse-ld=lld" + (f" {_KEEP}" if way == _LOCAL else "")
    settings += [f"-DCMAKE_{kind}_LINKER_FLAGS={linked}" for kind in ("EXE", "SHARED")]
    if way == _DISTRIBUTED:
        launcher = f"{sys.executable};{distributed_link.__file__}"
        settings += [f"-DCMAKE_{language}_LINKER_LAUNCHER={launcher}" for language in compilers]
    return [*settings, *build.thinlto_options]


def _extract(way: str, build: Path, corpus_dir: Path, num_workers: int) -> MadeCorpus:
    """Extracts like `extract_ir`, for two of the ways with `--thinlto_build`."""
    if way == _LOCAL:
        return thinlto.extract(thinlto.link_of_directory(build), corpus_dir, num_workers=num_workers)
    if way == _DISTRIBUTED:
        objects = objects_of_directory(build / "native", build).objects
        return extract.extract(objects, corpus_dir, num_workers=num_workers, thinlto_base=build)
    objects = database.objects_of_database(build / "compile_commands.json", build).objects
    return extract.extract(objects, corpus_dir, num_workers=num_workers)


@dataclasses.dataclass(frozen=True)
class Findings:
    """The result of one project with one compiler.

    Attributes:
      verifications: of its modules.
      without_bitcode: objects that have none, such as those of assembly.
      build_s: wall-clock seconds of the build.
      verify_s: of compiling all modules again and comparing.
    """

    verifications: tuple[Verification, ...]
    without_bitcode: int
    build_s: float
    verify_s: float


def check(name: str, way: str, source: Path, toolchain: Toolchain, scratch: Path, num_workers: int) -> Findings:
    """Builds, extracts and verifies one project.

    Args:
      name: one of `BUILDS`.
      way: one of `WAYS`.
      source: its unpacked archive.
      toolchain: the compiler.
      scratch: a folder of the caller's own.
      num_workers: compilers at a time.

    Raises:
      CompileError: it does not build.
    """
    build, corpus_dir = scratch / "build", scratch / "corpus"
    start_s = time.monotonic()
    root = source / BUILDS[name].root
    settings = _settings(way, BUILDS[name], toolchain)
    _run(["cmake", "-G", "Ninja", "-S", str(root), "-B", str(build), *settings], scratch)
    _run(["cmake", "--build", str(build), f"-j{num_workers}"], scratch)
    build_s = time.monotonic() - start_s
    extraction = _extract(way, build, corpus_dir, num_workers)
    start_s = time.monotonic()
    modules = Corpus.load(corpus_dir).modules
    with WorkerPool(toolchain, INLINING_PROBLEM, num_workers) as pool:
        found = verify.verify(modules, build, toolchain, pool)
        bar = progress_bar(found, f"{name}, {way}, {toolchain.version[0]}", len(modules), unit="module")
        verifications = tuple(bar)
    return Findings(verifications, len(extraction.failures), build_s, time.monotonic() - start_s)


def _run(command: list[str], scratch: Path) -> None:
    result = processes.run_logged(command, scratch / "log")
    if not result.ok:
        raise CompileError(f"{result.describe()}; it said: {one_line(result.stderr_tail)}")


@entry_point.command
def entry() -> int:
    for tool in ("cmake", "ninja"):
        if shutil.which(tool) is None:
            raise ConfigError(f"{tool}: not found on PATH; install the packages cmake and ninja-build")
    projects = [_project(text) for text in _PROJECTS.value]
    toolchains = [probe(clang) for clang in _CLANG_PATH.value]
    num_workers = entry_point.num_workers(_NUM_WORKERS.value)
    good = True
    known = manifest.load().projects
    with scratch_directory() as scratch:
        for name, way in projects:
            source = scratch / "sources" / name
            if not source.exists():
                archives.unpack(archives.fetch(known[name].archive, default_cache_dir()), source)
            for toolchain in toolchains:
                folder = scratch / f"{name}-{toolchain.version[0]}"
                folder.mkdir()
                found = check(name, way, source, toolchain, folder, num_workers)
                good &= all(each.is_good for each in found.verifications)
                _report(f"{name}, {way}", toolchain, found)
                shutil.rmtree(folder)
    print(f"{_EMBEDDED}: compiled with {_OPTIONS.value} {_EMBED}; with ThinLTO: {_THINLTO_OPTIONS.value} -flto=thin")
    print(f"not compared: {', '.join(verify.IGNORED_SECTIONS)}")
    print(f"{os.cpu_count()} threads, {num_workers} compilers at a time, load {os.getloadavg()[0]:.1f}")
    return 0 if good else 1


def _project(text: str) -> tuple[str, str]:
    """Name and way of a project to build."""
    name, _, way = text.partition(":")
    way = way or _EMBEDDED
    if name not in BUILDS or way not in WAYS:
        raise ConfigError(
            f"--projects: expected NAME or NAME:WAY, of {', '.join(BUILDS)} and {', '.join(WAYS)}; found {text!r}"
        )
    return name, way


def _report(what: str, toolchain: Toolchain, found: Findings) -> None:
    total = len(found.verifications)
    identical = sum(each.is_identical for each in found.verifications)
    print(
        f"{what}, {toolchain.version_text}: {identical} of {total} modules bit-identical ({identical / total:.1%}); "
        f"{found.without_bitcode} objects without bitcode; built in {found.build_s:.0f} s, verified in "
        f"{found.verify_s:.0f} s"
    )
    for each in sorted(found.verifications, key=lambda each: each.module):
        if not each.is_identical:
            print(f"  {'explained' if each.is_good else 'NOT EXPLAINED'}: {each.module}: {each.describe()}")
    print(end="", flush=True)


if __name__ == "__main__":
    entry()
