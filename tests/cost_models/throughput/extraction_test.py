"""Data sets of blocks: no block twice, none in two splits, and a repeated command gives the same."""

import dataclasses
import json
from pathlib import Path

import numpy as np

from compiler_opt.array_files import save_arrays
from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.module import Module
from compiler_opt.cost_models.throughput.blocks import Block, to_arrays
from compiler_opt.cost_models.throughput.extraction import BlockExtractor, Part, compile_module, sample, split_blocks
from compiler_opt.cost_models.throughput.instructions import Decoder
from compiler_opt.cost_models.throughput.mca import Labeller
from compiler_opt.llvm.toolchain import Toolchain
from tests.small_corpus import SOURCES, make_corpus


def block(code: bytes, module: str = "p/a.o") -> Block:
    return Block(code, module, "f", 0, 1.0)


def test_each_block_is_in_one_split_only() -> None:
    parts = {
        "train": [
            Part((block(b"1"), block(b"2", "p/b.o")), 5, 1),
            Part((block(b"2", "p/c.o"), block(b"3", "p/c.o"), block(b"4", "p/c.o")), 3, 0),
        ],
        "validation": [Part((block(b"3", "q/a.o"), block(b"5", "q/a.o")), 2, 0), Part(failure="it is broken")],
        "held_out": [Part((block(b"4", "r/a.o"), block(b"5", "r/a.o"), block(b"6", "r/a.o")), 4, 0)],
    }
    blocks, counts = split_blocks(parts)
    found = {split: [(each.code, each.module, each.num_copies) for each in blocks[split]] for split in blocks}
    assert found == {
        "train": [(b"1", "p/a.o", 1), (b"2", "p/b.o", 2)],
        "validation": [(b"3", "q/a.o", 1)],
        "held_out": [(b"4", "r/a.o", 1), (b"5", "r/a.o", 1), (b"6", "r/a.o", 1)],
    }
    assert dataclasses.asdict(counts["validation"]) == {
        "modules": 1,
        "failures": ["it is broken"],
        "blocks": 2,
        "refused": 0,
        "unique": 1,
        "elsewhere": 1,
        "unlabelled": 0,
    }
    assert (counts["train"].blocks, counts["train"].refused, counts["train"].elsewhere) == (8, 1, 2)


def test_sample() -> None:
    blocks = [block(bytes([number])) for number in range(100)]
    assert sample(blocks, None) == sample(blocks, 100) == blocks
    drawn = sample(blocks, 10, seed=1)
    assert (
        drawn == sorted(drawn, key=blocks.index) == sample(blocks, 10, seed=1)
        and len({each.code for each in drawn}) == 10
    )
    assert drawn != sample(blocks, 10, seed=2)


def test_parts_are_all_blocks_of_the_modules_once(toolchain: Toolchain, clang_path: str, tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, clang_path, SOURCES, level="O2")
    extractor = BlockExtractor(tmp_path / "blocks", Labeller(toolchain))
    done: list[int] = []
    parts = extractor.parts(corpus.modules, done.append)
    decoder = Decoder()
    for module, part in zip(corpus.modules, parts, strict=True):
        every = compile_module(module, toolchain)
        codes = [decoder.canonical(each.code) for each in every]
        assert part.failure is None and part.num_blocks == len(every) and part.num_refused == 0
        assert [each.code for each in part.blocks] == [*dict.fromkeys(codes)]
        assert [each.num_copies for each in part.blocks] == [codes.count(each.code) for each in part.blocks]
        assert all(each.module == module.name for each in part.blocks)
    assert done == [1] * len(corpus.modules)

    labelled, num_unlabelled = extractor.label(parts[0].blocks)
    source = extractor._labeller.source
    assert num_unlabelled == 0 and all(each.labels[source] > 0 for each in labelled)

    # Files from an earlier run are used; damaged ones are made again.
    kept = sorted((tmp_path / "blocks").rglob("*.npz"))
    times = [path.stat().st_mtime_ns for path in kept]
    for path in (kept[0], kept[-1]):
        path.write_bytes(path.read_bytes()[:100])
    assert repr(extractor.parts(corpus.modules)) == repr(parts)
    assert repr(extractor.label(parts[0].blocks)[0]) == repr(labelled)
    assert [path.stat().st_mtime_ns for path in kept][1:-1] == times[1:-1]
    aside = sorted((tmp_path / "blocks").rglob("*.npz.damaged"))
    assert aside == [path.with_name(f"{path.name}.damaged") for path in (kept[0], kept[-1])]


def test_files_of_earlier_versions_are_found(tmp_path: Path) -> None:
    (tmp_path / "m.o.bc").write_bytes(b"BC\xc0\xdebitcode")
    module = Module("m.o", "p", tmp_path, command_override=("-cc1", "-O2"))
    compiler = Toolchain(Path("clang"), (22, 1, 0), "clang version 22.1.0", "x86_64-pc-linux-gnu", {}, {}, False, None)
    part = {**to_arrays([block(b"\xc3")]), "counts": np.array([7, 2])}
    save_arrays(tmp_path / "blocks/parts/017effd9254096a168cc906fc5489eb2.npz", part)
    save_arrays(tmp_path / "blocks/labels/25a875238b189383bc27b944d07f8c72.npz", {"cycles": np.array([0.5])})
    extractor = BlockExtractor(tmp_path / "blocks", Labeller(compiler))
    (found,) = extractor.parts([module])
    assert (found.num_blocks, found.num_refused, found.failure) == (7, 2, None)
    labelled, _ = extractor.label(found.blocks)
    assert [(each.code, each.labels) for each in labelled] == [(b"\xc3", {"llvm-mca 22.1.0 skylake": 0.5})]


def test_a_module_that_cannot_be_compiled_has_a_reason(toolchain: Toolchain, clang_path: str, tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, clang_path, SOURCES, level="O2")
    first, second, *_ = corpus.modules
    content = first.bitcode_path.read_bytes()
    first.bitcode_path.write_bytes(content[: len(content) // 8 * 4])
    second.command_path.write_bytes(b"-cc1\0-load\0x.so\0")
    parts = BlockExtractor(tmp_path / "blocks", Labeller(toolchain)).parts(corpus.modules)
    assert (parts[0].failure or "").startswith("shapes/area.cpp.o: exit status 1")
    assert "'-load' is not an option that a corpus may use" in (parts[1].failure or "")
    assert parts[2].failure is None and parts[2].blocks


def test_modules_for_other_processors_have_a_reason(toolchain: Toolchain, clang_path: str, tmp_path: Path) -> None:
    make_corpus(
        tmp_path, clang_path, {"p/a.c": "int f(int x) { return x + 1; }"}, options=["--target=aarch64-linux-gnu"]
    )
    path = tmp_path / "p/a.c.o.cmd"
    path.write_bytes(path.read_bytes() + b"-triple\0aarch64-unknown-linux-gnu\0")
    assert json.loads((tmp_path / "corpus_description.json").read_text())
    (part,) = BlockExtractor(tmp_path / "blocks", Labeller(toolchain)).parts(Corpus.load(tmp_path).modules)
    assert "expected an object for x86-64, found one for EM_AARCH64" in (part.failure or "")
