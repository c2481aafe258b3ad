"""Call sites and spill costs from remarks: by hand, by chance, and from real compilers."""

import subprocess
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from compiler_opt.errors import ProtocolError
from compiler_opt.llvm import remarks
from compiler_opt.llvm.advisors import INLINING
from compiler_opt.llvm.interactive import compile_interactively, llvm_channel
from compiler_opt.llvm.remarks import REGALLOC_PASS, RegallocCosts, parse_costs
from tests.small_corpus import BUSY_SOURCES

_TEXT = b"""--- !Passed
Pass:            inline-ml
Name:            InliningSuccess
DebugLoc:        { File: 'a b.c', Line: 3,
                   Column: 10 }
Function:        top
Args:
  - Callee:          'it''s'
    DebugLoc:        { File: a.c, Line: 1, Column: 0 }
  - num_loops:       '0'
...
--- !Missed
Pass:            inline-ml
Name:            ForceStop
Function:        top
Args:
  - String:          'Won''t attempt inlining because module size grew too much.'
...
--- !Missed
Pass:            inline-ml
Name:            IniningNotAttempted
Function:        'it''s'
Args:
  - Callee:          top
...
"""


def test_names_and_outcomes() -> None:
    sites = remarks.parse_call_sites(_TEXT, {}, np.array([1, 0]))
    assert sites.functions == ("top", "it's")
    assert sites.callers.tolist() == [0, 1]
    assert sites.callees.tolist() == [1, 0]
    assert sites.inlined.tolist() == [True, False]


def test_no_remarks() -> None:
    sites = remarks.parse_call_sites(b"", {}, np.array([], np.int64))
    assert sites.functions == ()
    assert sites.callers.shape == sites.callees.shape == sites.inlined.shape == (0,)


def _remark(callee: str, cost: int) -> bytes:
    return (
        f"--- !Passed\nPass:            inline-ml\nName:            InliningSuccess\nFunction:        top\nArgs:\n"
        f"  - Callee:          {callee}\n  - cost_estimate:   '{cost}'\n  - num_loops:       '7'\n...\n"
    ).encode()


def _callees(calls: list[tuple[str, int]], costs: list[int]) -> list[str]:
    features = {"cost_estimate": np.array(costs), "num_loops": np.full(len(costs), 7), "unheard": np.ones(len(costs))}
    text = b"".join(_remark(*call) for call in calls)
    sites = remarks.parse_call_sites(text, features, np.ones(len(costs)))
    return [sites.functions[index] for index in sites.callees]


def test_what_had_to_be_inlined_is_no_decision() -> None:
    # They repeat the decision before, or nothing yet.
    assert _callees([("m", 0), ("a", 5), ("m", 5), ("n", 5), ("b", 6), ("a", 5), ("m", 5)], [5, 6, 5]) == [
        "a",
        "b",
        "a",
    ]
    # Two decisions with the same features: some callees are known from elsewhere.
    assert _callees([("a", 5), ("m", 5), ("b", 6), ("m", 6), ("c", 6)], [5, 6, 6]) == ["a", "b", "c"]
    assert _callees([("a", 5), ("b", 6), ("m", 6), ("a", 6)], [5, 6, 6]) == ["a", "b", "a"]
    with pytest.raises(ProtocolError, match="expected 2, one per decision, found 3"):
        _callees([("b", 6), ("m", 6), ("c", 6)], [6, 6])
    with pytest.raises(ProtocolError, match="the remarks do not match the decisions"):
        _callees([("a", 5), ("b", 6), ("m", 6)], [5, 7])
    with pytest.raises(ProtocolError, match="expected 3, one per decision, found 1"):
        _callees([("a", 5)], [5, 5, 6])
    assert _callees([("m", 0)], []) == []


_NAMES = st.text(st.characters(codec="ascii", categories=["L", "N", "P", "S"]), min_size=1, max_size=20)


@given(st.lists(st.tuples(_NAMES, _NAMES, st.booleans())))
def test_any_name_as_yaml_writes_it(calls: list[tuple[str, str, bool]]) -> None:
    text = b"".join(
        b"--- !Missed\nPass:            inline-ml\n"
        + b"Name:            %b\n" % (b"InliningSuccess" if inlined else b"InliningAttemptedAndUnsuccessful")
        + b"Function:        %b\nArgs:\n  - Callee:          %b\n...\n" % (_scalar(caller), _scalar(callee))
        for caller, callee, inlined in calls
    )
    sites = remarks.parse_call_sites(text, {}, np.zeros(len(calls)))
    assert [sites.functions[index] for index in sites.callers] == [caller for caller, _, _ in calls]
    assert [sites.functions[index] for index in sites.callees] == [callee for _, callee, _ in calls]
    np.testing.assert_array_equal(sites.inlined, [inlined for _, _, inlined in calls])


def _scalar(name: str) -> bytes:
    # LLVM quotes with apostrophes whatever is not plain.
    plain = name.replace("_", "").isalnum() and not name.isdigit()
    return (name if plain else "'" + name.replace("'", "''") + "'").encode()


@pytest.mark.both_compilers
def test_as_many_as_a_real_compiler_decides(clang_path: str, tmp_path: Path) -> None:
    source, bitcode, output = tmp_path / "a.cc", tmp_path / "a.bc", tmp_path / "r.yaml"
    source.write_text(
        "#include <string>\n#include <vector>\n"
        "std::string join(const std::vector<std::string>& v) {\n"
        "  std::string r; for (auto& s : v) r += s + ','; return r;\n"
        "}\n"
    )
    emit = ["-Xclang", "-disable-llvm-passes", "-emit-llvm"]
    subprocess.run([clang_path, "-x", "c++", "-Oz", "-c", *emit, str(source), "-o", str(bitcode)], check=True)
    result = compile_interactively(
        [
            clang_path,
            "-cc1",
            "-Oz",
            "-emit-obj",
            "-x",
            "ir",
            str(bitcode),
            "-o",
            str(tmp_path / "a.o"),
            *remarks.options(str(output)),
        ],
        connect=llvm_channel(INLINING),
        start_deciding=lambda header: lambda observation: observation[0] & 1,
        scratch=tmp_path,
    )
    assert result.process.ok
    assert result.header is not None
    features = result.header.decode(result.observations)
    sites = remarks.parse_call_sites(output.read_bytes(), features, np.array(result.advice))
    assert len(sites.callers) == len(result.advice) > 20
    # The oracle: a real YAML parser.
    documents = list(yaml.load_all(output.read_text().replace("!Passed", "").replace("!Missed", ""), yaml.CSafeLoader))
    assert [sites.functions[index] for index in sites.callers] == [document["Function"] for document in documents]
    assert [sites.functions[index] for index in sites.callees] == [
        document["Args"][0]["Callee"] for document in documents
    ]


_COSTS_TEXT = b"""--- !Missed
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
    assert parse_costs(_COSTS_TEXT) == {
        "f": RegallocCosts(spills=83.125, folded_spills=1.5, reloads=200.0, folded_reloads=40.0, copies=60.0),
        'operator "" _x': RegallocCosts(copies=2.5),
    }


@pytest.mark.parametrize("cost", [b"nan", b"inf", b"-1", b"", b"1e", b"0x1"])
def test_a_cost_that_is_no_number_is_refused(cost: bytes) -> None:
    with pytest.raises(ProtocolError, match="expected the cost of a function"):
        parse_costs(_COSTS_TEXT.replace(b"2.5", cost))


@given(st.binary() | st.lists(st.sampled_from(_COSTS_TEXT.splitlines(keepends=True))).map(b"".join))
def test_nothing_but_a_protocol_error_comes_of_damaged_costs(text: bytes) -> None:
    try:
        costs = parse_costs(text)
    except ProtocolError:
        return
    assert all(cost.spills >= 0 for cost in costs.values())


@pytest.mark.both_compilers
def test_the_compiler_names_its_functions(clang_path: str, tmp_path: Path) -> None:
    source = tmp_path / "busy.c"
    # With debug information a remark says where it is about.
    source.write_text(BUSY_SOURCES["mixed/both.c"])
    output = tmp_path / "remarks.yaml"
    passed_on = [argument for option in remarks.options(str(output), REGALLOC_PASS) for argument in ("-Xclang", option)]
    command = [clang_path, "-O2", "-g", "-c", str(source), "-o", str(tmp_path / "o"), *passed_on]
    subprocess.run(command, check=True)
    costs = parse_costs(output.read_bytes())
    assert set(costs) == {"looped", "summed"}
    assert costs["looped"].reloads > 0
