"""Corpora of real CMake builds, compiled again and compared with the objects of those builds, section by section.

Each project is fetched, built by its own CMakeLists.txt and Ninja with bitcode embedded, extracted from the build's
compile_commands.json, and every module of it verified, with each compiler:

    python -m benchmarks.verify_corpus --clang_path=clang-19 --clang_path=clang-22

Prints, for each, how many objects came out the same to the byte, and why any did not. Exit status 1 when one differs
without a known reason.
"""

import dataclasses
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from absl import flags
from tqdm import tqdm

from compiler_opt.collect import verify
from compiler_opt.collect.verify import Verification
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.builds import database
from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.making import extract
from compiler_opt.corpus.ready_made import archives, manifest
from compiler_opt.errors import CompileError, ConfigError
from compiler_opt.files import default_cache_dir
from compiler_opt.llvm import processes
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.toolchain import Toolchain, probe
from compiler_opt.tools import entry_point

_CLANG_PATH = flags.DEFINE_multi_string("clang_path", ["clang-19", "clang-22"], "The compilers.")
_PROJECTS = flags.DEFINE_list("projects", ["h3", "libuv", "rapidyaml", "c-blosc"], "Which projects.")
_OPTIONS = flags.DEFINE_string("options", "-Oz -DNDEBUG", "What the projects are compiled with.")
_NUM_WORKERS = flags.DEFINE_integer("num_workers", None, "Compilers at a time; by default one per CPU.", 1)

_EMBED = "-Xclang -fembed-bitcode=all"


@dataclasses.dataclass(frozen=True)
class _Build:
    """How a project is built.

    Attributes:
      root: the folder of its archive with its CMakeLists.txt.
      options: for CMake.
    """

    root: str = "."
    options: tuple[str, ...] = ()


_NO_H3_PROGRAMS = tuple(f"-DBUILD_{what}=OFF" for what in ("BENCHMARKS", "FUZZERS", "FILTERS", "GENERATORS"))
BUILDS: Mapping[str, _Build] = {
    "c-blosc": _Build("blosc/c-blosc", tuple(f"-DBUILD_{what}=OFF" for what in ("TESTS", "BENCHMARKS", "FUZZERS"))),
    "h3": _Build("src/h3lib", ("-DBUILD_TESTING=OFF", *_NO_H3_PROGRAMS)),
    "libuv": _Build("vendor/libuv", ("-DLIBUV_BUILD_TESTS=OFF",)),
    "opentimelineio": _Build(options=("-DOTIO_AUTOMATIC_SUBMODULES=OFF",)),
    "rapidyaml": _Build("cpp"),
    "ruckig": _Build(options=("-DBUILD_EXAMPLES=OFF", "-DBUILD_TESTS=OFF")),
}


@dataclasses.dataclass(frozen=True)
class Findings:
    """What came of one project with one compiler.

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


def check(name: str, source: Path, toolchain: Toolchain, scratch: Path, num_workers: int, options: str) -> Findings:
    """Builds, extracts and verifies one project.

    Args:
      name: one of `BUILDS`.
      source: its unpacked archive.
      toolchain: the compiler.
      scratch: a folder of the caller's own.
      num_workers: compilers at a time.
      options: what it is compiled with.

    Raises:
      CompileError: it does not build.
    """
    build, corpus_dir = scratch / "build", scratch / "corpus"
    start_s = time.monotonic()
    compilers = {"C": toolchain.clang, "CXX": toolchain.tool("clang++")}
    settings = [f"-DCMAKE_{language}_COMPILER={path}" for language, path in compilers.items()]
    settings += [f"-DCMAKE_{language}_FLAGS_MINSIZEREL={options} {_EMBED}" for language in compilers]
    settings += ["-DCMAKE_BUILD_TYPE=MinSizeRel", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", *BUILDS[name].options]
    _run(["cmake", "-G", "Ninja", "-S", str(source / BUILDS[name].root), "-B", str(build), *settings], scratch)
    _run(["cmake", "--build", str(build), f"-j{num_workers}"], scratch)
    build_s = time.monotonic() - start_s
    objects = database.objects_of_database(build / "compile_commands.json", build)
    extraction = extract.extract(objects, corpus_dir, num_workers=num_workers)
    start_s = time.monotonic()
    modules = Corpus.load(corpus_dir).modules
    with WorkerPool(toolchain, "inlining", num_workers) as pool:
        found = verify.verify(modules, build, toolchain, pool)
        bar = tqdm(found, f"{name}, {toolchain.version[0]}", len(modules), unit="module", disable=None)
        verifications = tuple(bar)
    return Findings(verifications, len(extraction.failures), build_s, time.monotonic() - start_s)


def _run(command: list[str], scratch: Path) -> None:
    result = processes.run_logged(command, scratch / "log")
    if not result.ok:
        raise CompileError(f"{result.describe()}; it said: {entry_point.one_line(result.stderr_tail)}")


def main(argv: list[str]) -> int:
    del argv
    for tool in ("cmake", "ninja"):
        if shutil.which(tool) is None:
            raise ConfigError(f"{tool}: not found on PATH; install the packages cmake and ninja-build")
    if unknown := [name for name in _PROJECTS.value if name not in BUILDS]:
        raise ConfigError(f"--projects: expected some of {', '.join(BUILDS)}; found {unknown[0]!r}")
    toolchains = [probe(clang) for clang in _CLANG_PATH.value]
    num_workers = entry_point.num_workers(_NUM_WORKERS.value)
    good = True
    known = manifest.load().projects
    with scratch_directory() as scratch:
        for name in _PROJECTS.value:
            source = scratch / "sources" / name
            archives.unpack(archives.fetch(known[name].archive, default_cache_dir()), source)
            for toolchain in toolchains:
                folder = scratch / f"{name}-{toolchain.version[0]}"
                folder.mkdir()
                found = check(name, source, toolchain, folder, num_workers, _OPTIONS.value)
                good &= all(each.is_good for each in found.verifications)
                _report(name, toolchain, found)
                shutil.rmtree(folder)
    print(f"compiled with {_OPTIONS.value} {_EMBED}; not compared: {', '.join(verify.IGNORED_SECTIONS)}")
    print(f"{os.cpu_count()} threads, {num_workers} compilers at a time, load {os.getloadavg()[0]:.1f}")
    return 0 if good else 1


def _report(name: str, toolchain: Toolchain, found: Findings) -> None:
    total = len(found.verifications)
    identical = sum(each.is_identical for each in found.verifications)
    print(
        f"{name}, {toolchain.version_text}: {identical} of {total} modules bit-identical ({identical / total:.1%}); "
        f"{found.without_bitcode} objects without bitcode; built in {found.build_s:.0f} s, verified in "
        f"{found.verify_s:.0f} s"
    )
    for each in sorted(found.verifications, key=lambda each: each.module):
        if not each.is_identical:
            print(f"  {'explained' if each.is_good else 'NOT EXPLAINED'}: {each.module}: {each.describe()}")
    print(end="", flush=True)


def entry() -> None:
    entry_point.run(main)


if __name__ == "__main__":
    entry()
