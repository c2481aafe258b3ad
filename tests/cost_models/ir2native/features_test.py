"""The features of real modules against what LLVM itself counts, and of small functions against counting by hand."""

import re
import subprocess
from pathlib import Path

import pytest

from compiler_opt.cost_models.ir2native import operands
from compiler_opt.cost_models.ir2native.features import module_features
from compiler_opt.cost_models.ir2native.inlined import InlinedModule, Inliner, cut_pipeline, parse_said
from compiler_opt.cost_models.ir2native.instructions import FunctionTokens
from compiler_opt.cost_models.ir2native.ir_text import parse_module, symbol_name
from compiler_opt.cost_models.ir2native.pressure import pressure
from compiler_opt.errors import CompileError, CorpusError, ProtocolError
from compiler_opt.llvm.toolchain import Toolchain
from tests.cost_models.ir2native.samples import make_module


@pytest.mark.both_compilers
def test_counts_are_those_of_llvm(toolchain: Toolchain, tmp_path: Path) -> None:
    module = make_module(tmp_path, str(toolchain.clang))
    inlined = Inliner(toolchain).run(module, tmp_path)
    found = module_features(inlined)
    assert "_ZL6helperi" not in found, "it is inlined everywhere"
    assert {"_Z3sumPKii", "_Z6choosei", "_Z6floatsdf", "_Z6caughtPK5Shape", "_ZNK5Shape4areaEv"} <= found.keys()
    # The oracle: LLVM counts the very text that was parsed.
    text = tmp_path / "again.ll"
    text.write_text(inlined.text)
    command = [str(toolchain.tool("opt")), "-passes=print<func-properties>", "-disable-output", str(text)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    oracle, _ = parse_said(said)
    assert oracle.keys() == found.keys()
    for name, properties in oracle.items():
        features = found[name]
        assert features["op"] == properties["TotalInstructionCount"]
        assert features["blocks"] == properties["BasicBlockCount"]
        assert features.get("op.load", 0) == properties["LoadInstCount"]
        assert features.get("op.store", 0) == properties["StoreInstCount"]
    # Right at the cut, LLVM's own features are of the same functions.
    assert found["_Z3sumPKii"]["prop.MaxLoopDepth"] == 1
    assert found["_Z3sumPKii"]["cost"] > 0 and found["_Z3sumPKii"]["cost.mul"] == 1
    assert found["_Z6caughtPK5Shape"]["fn.personality"] == 1 and "fn.personality" not in found["_Z6choosei"]
    assert found["_Z6choosei"]["fn.minsize"] == 1 and inlined.cpu_s > 0


@pytest.mark.both_compilers
def test_the_prefix_is_that_of_the_level(toolchain: Toolchain, tmp_path: Path) -> None:
    module = make_module(tmp_path, str(toolchain.clang), "O2")
    assert "fn.minsize" not in module_features(Inliner(toolchain).run(module, tmp_path))["_Z6choosei"]


def test_without_inlining_there_is_no_cut(tmp_path: Path, toolchain: Toolchain) -> None:
    module = make_module(tmp_path, str(toolchain.clang), "O0")
    with pytest.raises(CorpusError, match="-O0 does not inline"):
        Inliner(toolchain).run(module, tmp_path)


def test_a_damaged_module_is_an_error(tmp_path: Path, toolchain: Toolchain) -> None:
    module = make_module(tmp_path, str(toolchain.clang))
    module.bitcode_path.write_bytes(b"BC\xc0\xde" + b"nonsense" * 8)
    with pytest.raises((CorpusError, CompileError)) as error:
        Inliner(toolchain).run(module, tmp_path)
    assert "\n" not in str(error.value)


def test_a_pipeline_is_cut_behind_the_inliner() -> None:
    pipeline = "a<x=1,y>,cgscc(devirt<4>(inline,function(b,c))),cgscc(d),e\n"
    assert cut_pipeline(pipeline, "-Oz") == "a<x=1,y>,cgscc(devirt<4>(inline,function(b,c)))"


def test_what_opt_prints_must_be_properties() -> None:
    with pytest.raises(ProtocolError, match="expected properties"):
        parse_said("usage: opt")
    assert parse_said("") == ({}, {})


TEXT = """
@near = internal global i32 0, align 4
@far = external global i32, align 4
define dso_local i32 @"a\\20b"(ptr noundef %0, i32 %1, ...) local_unnamed_addr #3 comdat personality ptr @p {
  %3 = load i32, ptr %0, align 4, !tbaa !5
  %4 = getelementptr inbounds i8, ptr %0, i64 400
  %5 = load i32, ptr %4, align 4
  %6 = add nsw i32 %3, %5
  %7 = icmp eq i32 %6, 0
  br i1 %7, label %8, label %11

8:                                                ; preds = %2
  store i32 5, ptr @near, align 4
  store i32 %6, ptr @far, align 4
  call void asm sideeffect "nop; ret %0, !x", "r"(i32 %6)
  %9 = tail call i32 @callee(ptr nonnull %0, i32 0, i32 %1)
  switch i32 %9, label %11 [
    i32 0, label %10
    i32 100000, label %11
  ]

10:
  ret i32 %9

11:
  ret i32 1
}
attributes #3 = { minsize nounwind uwtable "frame-pointer"="all" }
!0 = !{i32 8, !"PIC Level", i32 2}
"""


def test_tokens_of_a_function() -> None:
    module = parse_module(TEXT)
    (function,) = module.functions
    assert function.name == "a b" and module.flags == {"PIC Level": 2}
    assert function.parameters == ["ptr noundef %0", "i32 %1", "..."]
    assert {"minsize", "nounwind", '"frame-pointer"="all"'} <= function.attributes
    assert [(block.label, len(block.lines)) for block in function.blocks] == [(2, 6), (8, 5), (10, 1), (11, 1)]
    assert module.local_names == {"near", '"a\\20b"'}
    assert FunctionTokens(function, module.local_names).counts == {
        "load.i32.reg.folded": 1,
        "gep.folded": 1,
        "load.i32.d32.folded": 1,
        "add.i32.reg": 1,
        "icmp.i32.zero.br.eq": 1,
        "br.cond": 1,
        "store.i32.imm8.glob": 1,
        "store.i32.reg.got": 1,
        "call.asm": 1,
        "call.direct": 1,
        "arg.same": 1,
        "arg.zero": 1,
        "arg.moved": 1,
        "arg": 3,
        "call.used_result": 1,
        "switch": 1,
        "switch.compares": 1,
        "switch.cases": 2,
        "switch.cases.large": 1,
        "ret.i32.reg": 1,
        "ret.i32.one": 1,
    }


def test_live_values_are_those_of_counting_by_hand() -> None:
    text = """
define i32 @f(i32 %0, i32 %1) {
  %3 = add i32 %0, %1
  %4 = mul i32 %0, 3
  call void @g()
  %5 = add i32 %3, %4
  ret i32 %5
}
"""
    (function,) = parse_module(text).functions
    found = pressure(function, set())
    # Behind each instruction: {%0, %3}; {%3, %4}; the same across the call; {%5}; nothing.
    assert found["live.int.max"] == 2 and found["live.int.mean"] == (2 + 2 + 2 + 1 + 0) / 5
    assert found["live.int.across"] == 2 and found["live.int.crossing"] == 2 and found["live.calls"] == 1


def test_a_value_lives_to_the_end_of_its_loop() -> None:
    text = """
define void @f(i32 %0) {
  br label %2

2:
  call void @g(i32 %0)
  call void @h()
  br i1 undef, label %2, label %3

3:
  ret void
}
"""
    (function,) = parse_module(text).functions
    assert pressure(function, set())["live.int.across"] == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("i32 %3", "i32"),
        ("ptr @f", "i64"),
        ("i17 0", "i32"),
        ("<4 x float> %1", "vec"),
        ("{ ptr, i32 } %1", "agg"),
        ("i200 1", "wide"),
        ("", "none"),
    ],
)
def test_classes_of_types(text: str, expected: str) -> None:
    assert operands.type_class(text) == expected


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        ("i8, ptr %0, i64 8", "d8"),
        ("i32, ptr %0, i64 100", "d32"),
        ("i8, ptr %0, i64 0", "zero"),
        ("i32, ptr %0, i64 %1", "s1"),
        ("%struct.a, ptr %0, i64 %1", "mul"),
        ("[4 x i32], ptr %0, i64 0, i64 %2", "s1"),
        ("[4 x i32], ptr %0, i64 %1, i64 %2", "far"),
    ],
)
def test_classes_of_addresses(rest: str, expected: str) -> None:
    assert operands.gep_class(rest) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, "zero"), (-1, "one"), (127, "imm8"), (128, "imm32"), (-(1 << 31), "imm32"), (1 << 31, "imm64")],
)
def test_classes_of_immediates(value: int, expected: str) -> None:
    assert operands.integer_class(value) == expected


def test_names_of_symbols() -> None:
    assert symbol_name("plain") == "plain" and symbol_name('"a\\20b"') == "a b" and symbol_name('"\\01raw"') == "raw"


@pytest.mark.parametrize("cut", range(0, len(TEXT), 23))
def test_no_text_makes_it_fail(cut: int) -> None:
    """Truncated text, and text with a hole, are read as far as they make sense."""
    for text in (TEXT[:cut], TEXT[cut:], TEXT[:cut] + TEXT[cut + 40 :], re.sub("i32", "%", TEXT)[cut:]):
        module_features(InlinedModule(text, {}, {}, 0.0))
