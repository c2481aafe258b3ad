"""A small project in place of LLVM, built in two ways; `python -m benchmarks.llvm_opt` takes Debian's LLVM."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.llvm_builds import (
    OPT,
    PLAIN,
    LlvmBuild,
    Record,
    count_instructions,
    is_larger,
    make_modules,
    report,
)
from compiler_opt.errors import BenchmarkError, CompileError
from compiler_opt.llvm.object_file import read_parts
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.report.formatting import MINUS

ROOT = Path(__file__).parents[2]
CMAKE_LISTS = """cmake_minimum_required(VERSION 3.13)
project(small C CXX ASM)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
file(WRITE ${CMAKE_BINARY_DIR}/generated.h "enum { kRounds = 100 };\\n")
include_directories(${CMAKE_BINARY_DIR})
add_library(part STATIC part.cpp none.S)
add_executable(opt main.c)
target_link_libraries(opt part)
"""
PART = """#include "generated.h"
template <int N> static int power(int x) { return N == 0 ? 1 : x * power<N - (N > 0)>(x); }
extern "C" int part(const char *text) {
  int sum = 0;
  for (int i = 0; i < kRounds; ++i) sum += power<3>(text[i & 1]) / (i + 1);
  return sum;
}
"""
MAIN = """#include <stdio.h>
int part(const char *text);
int main(int count, char **words) { return printf("%d %d\\n", count, part(words[1])) < 0; }
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    files = {"CMakeLists.txt": CMAKE_LISTS, "part.cpp": PART, "main.c": MAIN, "none.S": ""}
    folder = tmp_path / "source"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def _builds(toolchain: Toolchain, folder: Path) -> list[LlvmBuild]:
    """Plain, and by a compiler that makes larger code."""
    aligned = folder / "aligned"
    aligned.write_text(f'#!/bin/sh\nexec {toolchain.clang} "$@" -mllvm -align-all-blocks=5\n')
    aligned.chmod(0o755)
    return [
        LlvmBuild(way, compiler, toolchain, folder)
        for way, compiler in ((PLAIN, toolchain.clang), ("aligned", aligned))
    ]


@pytest.mark.ci
def test_the_front_end_runs_once_for_all_ways(toolchain: Toolchain, source: Path, tmp_path: Path) -> None:
    builds = _builds(toolchain, tmp_path)
    plain = builds[0]
    records, dates = [], []
    for build in builds:
        build.configure(source, [])
        build.make(OPT, 2)
        records.append(build.measure(OPT))
        dates.append({path: path.stat().st_mtime_ns for path in sorted((tmp_path / "bitcode").rglob("*.bc"))})
    assert dates[0] == dates[1] and [path.name for path in dates[0]] == ["main.c.o.bc", "part.cpp.o.bc"]
    assert [each.num_objects for each in records] == [2, 2] and records[0].code < records[1].code
    assert records[0].front_end_s == records[1].front_end_s > 0 < records[1].compile_s
    assert records[0].file == (plain.build / "bin" / OPT).stat().st_size
    # From bitcode, the text is that of a compilation of the source.
    directly = tmp_path / "part.o"
    words = f"{toolchain.tool('clang++')} -Oz -DNDEBUG -I{plain.build} -c {source}/part.cpp -o {directly}".split()
    subprocess.run(words, check=True)
    [found] = plain.build.rglob("part.cpp.o")
    assert read_parts(found) == read_parts(directly)


@pytest.mark.ci
def test_a_build_goes_on(toolchain: Toolchain, source: Path, tmp_path: Path) -> None:
    [plain, _] = _builds(toolchain, tmp_path)
    plain.configure(source, [])
    (source / "main.c").write_text("wrong")
    with pytest.raises(CompileError, match=r"opt, plain: .*exit status 1.*; see .*opt-plain\.log"):
        plain.make(OPT, 1)
    assert not list((tmp_path / "bitcode").rglob("main.c.o.bc"))
    (source / "main.c").write_text(MAIN)
    plain.configure(source, ["-G", "nothing, since it is configured"])
    plain.make(OPT, 1)
    dates = {path: path.stat().st_mtime_ns for path in plain.objects(OPT)}
    lost, kept = sorted(dates, key=lambda path: path.name)
    lost.unlink()
    plain.make(OPT, 1)
    assert lost.stat().st_mtime_ns > dates[lost] and kept.stat().st_mtime_ns == dates[kept]
    with pytest.raises(CompileError, match="clang: not a target of the build"):
        plain.objects("clang")


@pytest.mark.slow
def test_instructions_are_counted_if_the_output_is_the_same(toolchain: Toolchain, source: Path, tmp_path: Path) -> None:
    plain, aligned = builds = _builds(toolchain, tmp_path)
    for build in builds:
        build.configure(source, [])
        build.make(OPT, 2)
    modules = make_modules(plain, ["source/part.cpp", "source/main.c"], toolchain.clang)
    assert modules == [tmp_path / "modules" / name for name in ("part.cpp.bc", "main.c.bc")]
    assert all(path.read_bytes()[:2] == b"BC" for path in modules)
    assert count_instructions(plain, plain, modules) > 10_000
    other = '#include <stdio.h>\nint main(void) { return puts("other") < 0; }\n'
    (source / "main.c").write_text(other)
    subprocess.run([toolchain.clang, f"{source}/main.c", "-o", f"{aligned.build}/bin/{OPT}"], check=True)
    with pytest.raises(BenchmarkError, match="found 'other'"):
        count_instructions(aligned, plain, modules)


def test_changes_are_to_plain() -> None:
    plain = Record(OPT, PLAIN, 3, code=800, text=1000, file=2000, front_end_s=6, compile_s=4, instructions=100)
    both = Record(OPT, "both", 3, code=760, text=900, file=1900, front_end_s=6, compile_s=5, instructions=100)
    other = Record("other", PLAIN, 2, code=80, text=100, file=200, front_end_s=6, compile_s=4)
    lines = [line.split() for line in report([plain, both, other]).lines()]
    assert lines[2] == ["opt", "plain", "3", "1,000", "800"] and lines[-1] == ["other", "plain", "2", "100", "80"]
    changes = [f"{MINUS}10.00%", "760", f"{MINUS}5.00%", f"{MINUS}5.00%", "+10.00%", "0.00%"]
    assert lines[3] == ["both", "3", "900", *changes]
    assert not is_larger(both, plain) and not is_larger(None, plain) and is_larger(plain, both)


def test_a_way_is_checked_first(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.llvm_opt", f"--output_dir={tmp_path / 'new'}", "--ways=policy,bth"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: --ways: expected some of policy, options, both, never-worse, found bth\n"
    assert not (tmp_path / "new").exists()
