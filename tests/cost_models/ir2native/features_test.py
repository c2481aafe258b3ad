"""The features that the plugin counts: against LLVM's own counts, and of small functions against counting by hand."""

import subprocess
from pathlib import Path

import pytest

from compiler_opt.cost_models.compiling import compile_object
from compiler_opt.cost_models.ir2native.functions import compile_functions, read_features
from compiler_opt.errors import CompileError, CorpusError, ProtocolError
from compiler_opt.llvm.inliner_plugin import environment, inliner_plugin
from compiler_opt.llvm.plugin import load_option
from compiler_opt.llvm.toolchain import Toolchain
from tests.cost_models.ir2native.samples import make_module


@pytest.mark.both_compilers
def test_counts_are_those_of_llvm(toolchain: Toolchain, tmp_path: Path) -> None:
    module = make_module(tmp_path, str(toolchain.clang))
    found, sizes = compile_functions(module, toolchain, tmp_path)
    assert "_ZL6helperi" not in found, "it is inlined everywhere"
    assert {"_Z3sumPKii", "_Z6choosei", "_Z6floatsdf", "_Z6caughtPK5Shape", "_ZNK5Shape4areaEv"} <= found.keys()
    assert found.keys() <= sizes.by_symbol.keys()
    for features in found.values():
        assert features["op"] == features["prop.TotalInstructionCount"]
        assert features["blocks"] == features["prop.BasicBlockCount"]
        assert features.get("op.load", 0) == features.get("prop.LoadInstCount", 0)
        assert features.get("op.store", 0) == features.get("prop.StoreInstCount", 0)
        assert features["op"] == sum(value for name, value in features.items() if name.startswith("op."))
    assert found["_Z3sumPKii"]["prop.MaxLoopDepth"] == 1
    assert found["_Z3sumPKii"]["cost.mul"] == 1
    assert found["_Z6caughtPK5Shape"]["fn.personality"] == 1 and "fn.personality" not in found["_Z6choosei"]
    assert found["_Z6choosei"]["fn.minsize"] == 1
    # Counting does not change the code.
    compile_object(module, toolchain, tmp_path / "plain.o")
    assert (tmp_path / "plain.o").read_bytes() == (tmp_path / "module.o").read_bytes()


@pytest.mark.both_compilers
def test_the_level_is_that_of_the_module(toolchain: Toolchain, tmp_path: Path) -> None:
    module = make_module(tmp_path, str(toolchain.clang), "O2")
    assert "fn.minsize" not in compile_functions(module, toolchain, tmp_path)[0]["_Z6choosei"]


def test_without_inlining_there_are_no_features(tmp_path: Path, toolchain: Toolchain) -> None:
    module = make_module(tmp_path, str(toolchain.clang), "O0")
    with pytest.raises(CorpusError, match="is not optimised"):
        compile_functions(module, toolchain, tmp_path)


def test_a_damaged_module_is_an_error(tmp_path: Path, toolchain: Toolchain) -> None:
    module = make_module(tmp_path, str(toolchain.clang))
    module.bitcode_path.write_bytes(b"BC\xc0\xde" + b"nonsense" * 8)
    with pytest.raises((CorpusError, CompileError)) as error:
        compile_functions(module, toolchain, tmp_path)
    assert "\n" not in str(error.value)


TEXT = """
target triple = "x86_64-pc-linux-gnu"
@near = dso_local global i32 0, align 4
@far = external global i32, align 4
declare i32 @callee(i32)
define i32 @calls(i32 %0, i32 %1) {
  %3 = call i32 @callee(i32 %0)
  %4 = call i32 @callee(i32 %1)
  %5 = sub i32 %3, %4
  ret i32 %5
}
define void @"a b"(ptr %0, i64 %1) minsize {
  %3 = getelementptr i32, ptr %0, i64 100
  %4 = load i32, ptr %3, align 4
  store i32 %4, ptr @near, align 4
  store i32 5, ptr @far, align 4
  %5 = getelementptr i32, ptr %0, i64 %1
  store i32 0, ptr %5, align 4
  ret void
}
define i32 @branches(i32 %0) {
  %2 = icmp eq i32 %0, 3
  br i1 %2, label %3, label %5
3:
  %4 = call i32 @callee(i32 100000)
  br label %5
5:
  ret i32 7
}
define available_externally i32 @elsewhere() { ret i32 1 }
define internal i32 @unused() { ret i32 2 }
"""


@pytest.mark.both_compilers
def test_features_are_those_of_counting_by_hand(toolchain: Toolchain, tmp_path: Path) -> None:
    source, path = tmp_path / "text.ll", tmp_path / "functions"
    source.write_text(TEXT)
    command = [str(toolchain.clang), "-Oz", "-x", "ir", str(source), "-c", "-o", str(tmp_path / "text.o")]
    loading = [*command, load_option(inliner_plugin(toolchain))]
    subprocess.run(loading, env=environment(policy=None, functions=path), check=True)
    found = read_features(path)
    assert set(found) == {"calls", "a b", "branches"}

    def tokens(function: str) -> dict[str, float]:
        return {name[4:]: value for name, value in found[function].items() if name.startswith("tok.")}

    assert tokens("calls") == {
        "call.got.used": 2,
        "arg.i32.param.same": 1,
        "arg.i32.param": 1,
        "sub.i32.once.once>ret": 1,
        "ret.i32.once": 1,
    }
    assert tokens("a b") == {
        "getelementptr.i64.folded": 2,
        "load.i32.param+d32>store": 1,
        "store.i32.once.glob": 1,
        "store.i32.imm8.got": 1,
        "store.i32.zero.param+s": 1,
        "ret": 1,
    }
    assert tokens("branches") == {
        "icmp.i32.param.imm8.eq>br": 1,
        "br.once": 1,
        "br": 1,
        "jump": 1,
        "call.got": 1,
        "arg.i32.imm32": 1,
        "ret.i32.imm8": 1,
    }
    assert found["a b"]["fn.minsize"] == 1 and found["a b"]["fn.parameters.i64"] == 2
    live = {name[5:]: value for name, value in found["calls"].items() if name.startswith("live.")}
    # At the beginning and behind each instruction: {%0, %1}; {%1, %3}; {%3, %4}; {%5}; nothing. %1 and %3 cross a call,
    # and both are alive behind the first.
    expected = {"mean": (2 + 2 + 2 + 1 + 0) / 5, "max": 2, "across": 2, "saved": 2, "crossing": 2, "crossing_uses": 2}
    assert live == {f"int.{name}": pytest.approx(value) for name, value in expected.items()}


@pytest.mark.parametrize("content", [b"f\0op 1\n", b"f\0op one\n\0", b"f\0op\n\0", b"f\0"])
def test_damaged_files_are_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "functions"
    path.write_bytes(content)
    with pytest.raises(ProtocolError, match="expected the plugin's features of functions"):
        read_features(path)
