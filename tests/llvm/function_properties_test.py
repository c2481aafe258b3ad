"""Counts of real modules, against what the source says."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler_opt.errors import CompileError, ProtocolError
from compiler_opt.llvm.function_properties import ModuleCounts, count, parse
from compiler_opt.llvm.toolchain import Toolchain

SOURCE = """
int puts(const char *);
static int one(int x) { return x + 1; }
int two(int x) { return one(x) + one(x * 2); }
int three(int x, int (*other)(int)) { puts("x"); return two(x) + other(x); }
int number = 3;
"""


def bitcode_of(clang: Path, folder: Path, source: str) -> Path:
    (folder / "x.c").write_text(source)
    command = [str(clang), "-O2", "-Xclang", "-disable-llvm-passes", "-emit-llvm", "-c", "x.c", "-o", "x.bc"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "x.bc"


def test_functions_and_calls_that_can_be_inlined(toolchain: Toolchain, tmp_path: Path) -> None:
    counts = count(toolchain.tool("opt"), bitcode_of(toolchain.clang, tmp_path, SOURCE))
    # Neither the call of `puts`, which is elsewhere, nor the one of `other`, which nobody knows.
    assert (counts.functions, counts.call_sites) == (3, 3)
    assert 15 < counts.instructions < 60
    assert count(toolchain.tool("opt"), bitcode_of(toolchain.clang, tmp_path, "int x;")) == ModuleCounts(0, 0, 0)


def test_what_is_no_bitcode(toolchain: Toolchain, tmp_path: Path) -> None:
    (tmp_path / "x.bc").write_text("no bitcode")
    with pytest.raises(CompileError, match=r"x\.bc: exit status 1: .*error"):
        count(toolchain.tool("opt"), tmp_path / "x.bc")
    with pytest.raises(CompileError, match="ran out of time"):
        count(toolchain.tool("opt"), bitcode_of(toolchain.clang, tmp_path, SOURCE), timeout_s=0)


PRINTED = b"""Printing analysis results of CFA for function 'f':
BasicBlockCount: 6
DirectCallsToDefinedFunctions: 2
TotalInstructionCount: 36

Printing analysis results of CFA for function 'g':
DirectCallsToDefinedFunctions: 1
TotalInstructionCount: 4
"""


def test_totals() -> None:
    assert parse(PRINTED) == ModuleCounts(functions=2, instructions=40, call_sites=3)


@given(st.data())
def test_damaged_output_is_refused_or_counted(data: st.DataObject) -> None:
    lines = PRINTED.splitlines(keepends=True)
    kept = data.draw(st.lists(st.sampled_from([*lines, b"TotalInstructionCount: -4\n", b"\xff\n"]), max_size=9))
    try:
        counts = parse(b"".join(kept))
    except ProtocolError as error:
        assert "\n" not in str(error)
    else:
        assert counts.functions == sum(line.startswith(b"Printing") for line in kept)
