"""IR2Vec's vocabularies: good ones, bad ones, and what compilers make of them."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler_opt.errors import ConfigError, PolicyError, ToolchainError
from compiler_opt.llvm import ir2vec
from compiler_opt.llvm.advisors import INLINING, REGALLOC_EVICTION
from compiler_opt.llvm.inlining_config import InliningConfig
from compiler_opt.llvm.interactive import compile_interactively, llvm_channel
from compiler_opt.llvm.toolchain import probe
from compiler_opt.llvm.training_log import Header
from compiler_opt.tensor_spec import TensorSpec
from tests.ir2vec_vocabulary import random_vocabulary, write_vocabulary


def test_a_good_one(tmp_path: Path) -> None:
    path = write_vocabulary(tmp_path / "vocabulary.json", dimensions=5)
    found = InliningConfig(ir2vec_vocabulary=str(path)).vocabulary(INLINING)
    assert found is not None
    assert (found.path, found.dimensions, len(found.sha256)) == (path, 5, 64)
    assert ir2vec.read_vocabulary(write_vocabulary(path, 5, seed=2)).sha256 != found.sha256
    assert InliningConfig().vocabulary(INLINING) is None
    with pytest.raises(ConfigError, match="expected decisions of inlining, found regalloc_eviction"):
        InliningConfig(ir2vec_vocabulary=str(path)).vocabulary(REGALLOC_EVICTION)


def _with(section: str, name: str, vector: Any) -> Callable[[], Any]:
    def make() -> Any:
        vocabulary = random_vocabulary()
        vocabulary[section][name] = vector
        return vocabulary

    return make


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (list, "found list"),
        (lambda: {"Opcodes": {}, "Types": {}, "Arguments": {}}, "Opcodes to be missing or empty"),
        (lambda: {**random_vocabulary(), "Types": None}, "Types to be missing or empty"),
        (_with("Types", "VoidTy", [1.0] * 7), "found vectors of 7 and 8 numbers"),
        (_with("Opcodes", "Add", ["x"] * 8), "Opcodes 'Add' not to be numbers"),
        (_with("Opcodes", "Add\n", [float("nan")] * 8), r"Opcodes 'Add\\n' not to be numbers"),
        (_with("Arguments", "Constant", [10**38] * 8), "Arguments 'Constant' not to be numbers"),
        (_with("Arguments", "Constant", [10**400] * 8), "an integer of more than 128 bits"),
        (lambda: random_vocabulary(dimensions=0), "found vectors of 0 numbers"),
        (lambda: random_vocabulary(ir2vec.MAX_DIMENSIONS + 1), "found vectors of 513 numbers, where 1 to 512"),
    ],
)
def test_what_is_none_is_refused(make: Callable[[], Any], words: str, tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.json"
    path.write_text(json.dumps(make()))
    with pytest.raises(ConfigError, match=words) as caught:
        ir2vec.read_vocabulary(path)
    assert str(caught.value).startswith(f"inlining.ir2vec_vocabulary: {path}: expected an IR2Vec vocabulary (JSON")


@pytest.mark.parametrize("content", [b"", b"\xff{}", b"[" * 100_000, b"{" + b"9" * 5000])
def test_what_is_no_json_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "odd").write_bytes(content)
    with pytest.raises(ConfigError, match="expected an IR2Vec vocabulary"):
        ir2vec.read_vocabulary(tmp_path / "odd")


def test_hostile_paths_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(ir2vec.MAX_BYTES + 1)
    for path, words in (
        (tmp_path / "fifo", "expected a file, found something else"),
        (tmp_path, "expected a file, found something else"),
        (Path("/dev/zero"), "expected a file, found something else"),
        (tmp_path / "large", "expected at most 16777216 bytes, found 16777217"),
        (tmp_path / "none\nsuch", r"none\\nsuch: cannot be read: No such file"),
        (Path("a\0b"), "cannot be read"),
    ):
        with pytest.raises(ConfigError, match=words) as caught:
            ir2vec.read_vocabulary(path)
        assert "\n" not in str(caught.value)


def test_each_number_is_a_feature() -> None:
    advice = TensorSpec("inlining_decision", np.dtype("i8"), (1,))
    header = Header(
        (
            TensorSpec("threshold", np.dtype("i8"), (1,)),
            TensorSpec("callee_embedding", np.dtype("f4"), (3,)),
            TensorSpec("caller_embedding", np.dtype("f4"), (3,)),
        ),
        advice,
    )
    flat = ir2vec.flattened(header)
    numbers = tuple(f"{side}_embedding_{index}" for side in ("callee", "caller") for index in range(3))
    assert flat.names == ("threshold", *numbers)
    assert ir2vec.components(flat.names) == numbers
    assert flat.observation_bytes == header.observation_bytes == 8 + 6 * 4
    observation = np.arange(2, dtype="i8").tobytes()[:8] + np.arange(6, dtype="f4").tobytes()
    assert [flat.decode(observation)[name].item() for name in numbers] == [0, 1, 2, 3, 4, 5]
    assert ir2vec.flattened(flat) == flat
    assert ir2vec.tensor_and_place("caller_embedding_12") == ("caller_embedding", 12)
    assert ir2vec.tensor_and_place("caller_embedding_x") is None


def test_another_vocabulary_is_refused_by_name(tmp_path: Path) -> None:
    mine, other = (ir2vec.read_vocabulary(write_vocabulary(tmp_path / f"{seed}.json", seed=seed)) for seed in (1, 2))
    made_by = {ir2vec.IDENTITY: mine.sha256}
    ir2vec.check_same(made_by, mine, "policy")
    nothings: tuple[Any, ...] = (None, {}, "clang")
    for nothing in nothings:
        ir2vec.check_same(nothing, None, "policy")
        with pytest.raises(PolicyError, match=r"policy: was made without IR2Vec embeddings, found .*1\.json.*leave"):
            ir2vec.check_same(nothing, mine, "policy")
    with pytest.raises(PolicyError, match=f"SHA-256 {mine.sha256[:12]}.*, found .*2.json.*{other.sha256[:12]}"):
        ir2vec.check_same(made_by, other, "policy")
    with pytest.raises(PolicyError, match=f"SHA-256 {mine.sha256[:12]}..., found none; give the same file"):
        ir2vec.check_same(made_by, None, "policy")


@pytest.mark.ci
@pytest.mark.both_compilers
def test_a_compiler_without_them_is_refused(clang_path: str, tmp_path: Path) -> None:
    vocabulary = ir2vec.read_vocabulary(write_vocabulary(tmp_path / "vocabulary.json"))
    if "19" in clang_path:
        with pytest.raises(ToolchainError) as caught:
            probe(clang_path, vocabulary)
        for words in (clang_path, ir2vec.OPTION, "Unknown command line argument", "use a clang >= 22"):
            assert words in str(caught.value)
        return
    toolchain = probe(clang_path, vocabulary)
    plain = probe(clang_path)
    features = toolchain.require("inlining").features
    assert len(features) == 38 + 2 * 8
    assert {spec.dtype for spec in features[38:]} == {np.dtype("f4")}
    assert features[:38] == plain.require("inlining").features
    assert toolchain.identity() == {**plain.identity(), "ir2vec_vocabulary": vocabulary.sha256}
    # The file is not what it was when it was read.
    write_vocabulary(vocabulary.path, dimensions=3)
    with pytest.raises(ToolchainError, match="expected 2 of 8 numbers, found 6 in all"):
        probe(clang_path, vocabulary)
    vocabulary.path.write_text("{}")
    with pytest.raises(ToolchainError, match="Missing 'Opcodes' section"):
        probe(clang_path, vocabulary)


_SOURCE = """
int outside(int);
static int callee(int x) {
  int s = 0;
  for (int i = 0; i < x; i++) s += outside(x * i) ^ s;
  return s;
}
int caller(int a) { return callee(a) + callee(a + 1); }
"""


def test_they_are_those_of_llvms_own_tool(tmp_path: Path) -> None:
    """By `llvm-ir2vec`, of IR in which nothing is left to be simplified before the first decision."""
    clang, opt, tool = (shutil.which(f"{name}-22") for name in ("clang", "opt", "llvm-ir2vec"))
    assert clang and opt and tool
    vocabulary = ir2vec.read_vocabulary(write_vocabulary(tmp_path / "vocabulary.json"))
    source, optimised = tmp_path / "source.c", tmp_path / "optimised.ll"
    source.write_text(_SOURCE)
    no_inlining = ["-mllvm", "-inline-threshold=-100000", "-mllvm", "-inlinecold-threshold=-100000"]
    subprocess.run([clang, "-Oz", *no_inlining, "-S", "-emit-llvm", str(source), "-o", str(optimised)], check=True)
    command = [tool, "embeddings", f"-ir2vec-vocab-path={vocabulary.path}", "--level=func", str(optimised)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("Function: ")[1:]
    expected = {text.split()[0]: [float(word) for word in text.split()[2:-1]] for text in printed}
    options = [word for word in vocabulary.options() if word != "-mllvm"]
    result = compile_interactively(
        [opt, "-passes=scc-oz-module-inliner", *options, str(optimised), "-o", str(tmp_path / "out.bc")],
        connect=llvm_channel(INLINING, takes_llvm_options=True),
        start_deciding=lambda header: lambda observation: 0,
        scratch=tmp_path,
    )
    assert result.process.ok, result.process.describe()
    assert result.header is not None
    features = ir2vec.flattened(result.header).decode(result.observations)
    for side in ("callee", "caller"):
        found = [features[f"{side}_embedding_{index}"][0] for index in range(8)]
        np.testing.assert_allclose(found, expected[side], atol=0.006)  # printed with two decimals
