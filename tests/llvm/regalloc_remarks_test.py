"""The costs that the remarks tell, as written by hand and by both compilers."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler_opt.errors import ProtocolError
from compiler_opt.llvm import regalloc_remarks, remarks
from compiler_opt.llvm.regalloc_remarks import RegallocCosts, parse_costs
from tests.small_corpus import BUSY_SOURCES

TEXT = b"""--- !Missed
Pass:            regalloc
Name:            LoopSpillReloadCopies
Function:        f
Args:
  - NumSpills:       '4'
  - TotalSpillsCost: '8.000000e+01'
...
--- !Missed
Pass:            regalloc
Name:            SpillReloadCopies
DebugLoc:        { File: 'a b.c',
                   Line: 2, Column: 1 }
Function:        f
Args:
  - NumSpills:       '9'
  - String:          ' spills '
  - TotalSpillsCost: '8.312500e+01'
  - TotalFoldedSpillsCost: '1.5'
  - TotalReloadsCost: '2.000000e+02'
  - TotalZeroCostFoldedReloadsCost: '7.0'
  - TotalFoldedReloadsCost: '4.000000e+01'
  - TotalCopiesCost: '6.000000e+01'
...
--- !Missed
Pass:            regalloc
Name:            SpillReloadCopies
Function:        'operator "" _x'
Hotness:         3
Args:
  - TotalCopiesCost: '2.5'
...
"""


def test_only_the_total_of_a_function_counts() -> None:
    assert parse_costs(TEXT) == {
        "f": RegallocCosts(spills=83.125, folded_spills=1.5, reloads=200.0, folded_reloads=40.0, copies=60.0),
        'operator "" _x': RegallocCosts(copies=2.5),
    }


@pytest.mark.parametrize("cost", [b"nan", b"inf", b"-1", b"", b"1e", b"0x1"])
def test_a_cost_that_is_no_number_is_refused(cost: bytes) -> None:
    with pytest.raises(ProtocolError, match="expected the cost of a function"):
        parse_costs(TEXT.replace(b"2.5", cost))


@given(st.binary() | st.lists(st.sampled_from(TEXT.splitlines(keepends=True))).map(b"".join))
def test_nothing_but_a_protocol_error_comes_of_damage(text: bytes) -> None:
    try:
        costs = parse_costs(text)
    except ProtocolError:
        return
    assert all(cost.spills >= 0 for cost in costs.values())


def test_the_compiler_names_its_functions(clang_path: str, tmp_path: Path) -> None:
    source = tmp_path / "busy.c"
    # With debug information a remark says where it is about.
    source.write_text(BUSY_SOURCES["mixed/both.c"])
    output = tmp_path / "remarks.yaml"
    passed_on = [
        argument
        for option in remarks.options(str(output), regalloc_remarks.REMARK_PASS)
        for argument in ("-Xclang", option)
    ]
    command = [clang_path, "-O2", "-g", "-c", str(source), "-o", str(tmp_path / "o"), *passed_on]
    subprocess.run(command, check=True)
    costs = parse_costs(output.read_bytes())
    assert set(costs) == {"looped", "summed"}
    assert costs["looped"].reloads > 0
