"""Sizes of functions against llvm-size's kin, and the files of a dataset: resumed, and made again when damaged."""

import dataclasses
import subprocess
from pathlib import Path

import numpy as np
import pytest

from compiler_opt.array_files import save_arrays
from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.module import Module
from compiler_opt.cost_models.ir2native.dataset import ABSENT, ModuleFunctions, read_corpus
from compiler_opt.cost_models.ir2native.functions import compile_functions
from compiler_opt.errors import CorpusError
from compiler_opt.llvm.toolchain import Toolchain
from tests.cost_models.ir2native.samples import corpus_of, made_up, make_module


def test_sizes_are_those_of_readelf(toolchain: Toolchain, tmp_path: Path) -> None:
    module = make_module(tmp_path, str(toolchain.clang))
    _, found = compile_functions(module, toolchain, tmp_path)
    # The oracle: clang's driver, from the source, and nm.
    options = [
        "-Oz",
        "-fPIC",
        "-c",
        str(tmp_path / "real/code.cpp"),
        "-o",
        str(tmp_path / "own.o"),
    ]
    subprocess.run([str(toolchain.clang), *options], check=True)
    nm = str(toolchain.tool("llvm-size")).replace("llvm-size", "llvm-nm")
    lines = subprocess.run([nm, "-S", tmp_path / "own.o"], check=True, capture_output=True, text=True).stdout
    rows = [line.split() for line in lines.splitlines()]
    oracle = {row[3]: int(row[1], 16) for row in rows if len(row) == 4 and row[2] in "TtWw"}
    assert found.by_symbol == oracle
    # The two names of the destructor are of the same code.
    assert found.by_symbol["_ZN5ShapeD1Ev"] == found.by_symbol["_ZN5ShapeD2Ev"]
    assert found.total == sum(oracle.values()) - oracle["_ZN5ShapeD1Ev"]


def test_collecting_is_resumed_and_failures_are_named(toolchain: Toolchain, tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path / "corpus", str(toolchain.clang))
    folder = tmp_path / "dataset"
    data, [damaged] = read_corpus(corpus, toolchain, folder, num_workers=2)
    assert "b.cpp.o" in damaged and "\n" not in damaged
    first, last = data.modules
    assert [first.module, last.module] == [corpus.modules[0].name, corpus.modules[2].name]
    assert len(first.symbols) == 30 and (first.bytes > 0).all()
    assert first.total == first.bytes.sum()
    times = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert len(times) == 2
    restored, _ = read_corpus(corpus, toolchain, folder)
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == times
    columns = data.columns()
    assert (restored.matrix(columns) == data.matrix(columns)).all() and restored.symbols() == data.symbols()


def test_a_matrix_is_the_features_by_name() -> None:
    data = made_up(projects=2, modules=2, functions=3)
    columns = ["tok.b", "none", "fn"]
    x = data.matrix(columns)
    assert x.shape == (2 * 2 * 4, 3) and (x[:, 2] == 1).all() and (x[:, 1] == 0).all()
    for module in data.modules:
        for value, row, feature in zip(module.values, module.rows, module.features, strict=True):
            if module.columns[feature] == "tok.b":
                start = 4 * data.modules.index(module)
                assert x[start + row, 0] == value
    assert data.columns(min_functions=17) == [] and "fn" in data.columns(min_functions=16)
    assert (data.bytes() == ABSENT).sum() == 4 and len(data.symbol_hashes()) == 16
    assert len(np.unique(data.symbol_hashes())) == len(set(data.symbols()))


def test_damaged_files_are_set_aside_and_made_again(tmp_path: Path, toolchain: Toolchain) -> None:
    module = make_module(tmp_path, str(toolchain.clang))
    corpus, folder = Corpus.load(tmp_path), tmp_path / "dataset"

    def symbols() -> list[str]:
        return read_corpus(corpus, toolchain, folder)[0].symbols()

    expected = symbols()
    (path,) = folder.iterdir()
    content = path.read_bytes()
    for damaged in (content[:-40], b"", content.replace(b"rows", b"cows")):
        path.write_bytes(damaged)
        assert symbols() == expected
        ModuleFunctions.load(path, module)
    assert len(list(folder.glob(f"{path.name}.damaged*"))) == 3


def test_files_of_earlier_versions_are_found(tmp_path: Path, toolchain: Toolchain) -> None:
    (tmp_path / "m.o.bc").write_bytes(b"BC\xc0\xdebitcode")
    module = Module("m.o", "p", tmp_path, command_override=("-cc1", "-O2"))
    functions = made_up(projects=1, modules=1).modules[0]
    save_arrays(tmp_path / "4cf663ec090ce9932b1a0c59bfcb4f96.npz", functions.arrays())
    compiler = dataclasses.replace(
        toolchain,
        version=(22, 1, 0),
        version_text="clang version 22.1.0",
        target="x86_64-pc-linux-gnu",
        embeddings=None,
    )
    found, _ = read_corpus(Corpus(tmp_path, (module,)), compiler, tmp_path)
    assert found.symbols() == list(functions.symbols)


def test_thinlto_is_refused(toolchain: Toolchain, tmp_path: Path) -> None:
    module = make_module(tmp_path, str(toolchain.clang))
    module.command_path.write_bytes(b"-cc1\0-Oz\0-fthinlto-index=x\0")
    with pytest.raises(CorpusError, match=r"1 of 1 modules failed; the first: .*ThinLTO"):
        read_corpus(Corpus.load(tmp_path), toolchain, tmp_path)
    with pytest.raises(CorpusError):
        compile_functions(module, toolchain, tmp_path)
