"""Variants of a program's objects."""

import subprocess
from pathlib import Path

import pytest

from benchmarks.corpus_programs import compile_objects
from compiler_opt import problem as problems
from compiler_opt.corpus.description import Corpus
from compiler_opt.cost_models.throughput.address_map import FLAGS, read_object
from compiler_opt.evaluation.evaluate import baselines
from compiler_opt.llvm.toolchain import probe
from studies.ranking.variants import BASE, OPTIONS, POLICIES, objects_under
from tests.small_corpus import BUSY_SOURCES, make_corpus

CLANG = "/usr/bin/clang-22"


def test_llvm_knows_the_options(tmp_path: Path) -> None:
    (tmp_path / "x.c").write_text("int f(int x) { return x; }\n")
    assert next(iter(OPTIONS)) == BASE and not OPTIONS[BASE]
    for options in OPTIONS.values():
        words = [word for option in options for word in ("-mllvm", option)]
        subprocess.run([CLANG, "-O2", *words, "-c", "x.c"], cwd=tmp_path, check=True)


def test_the_problem_has_the_baselines() -> None:
    assert [policy.name for policy in baselines(problems.load("regalloc_eviction"), POLICIES)] == list(POLICIES)


@pytest.mark.slow
def test_objects_under_a_policy_have_an_address_map(tmp_path: Path) -> None:
    toolchain = probe(CLANG)
    (tmp_path / "corpus").mkdir()
    make_corpus(tmp_path / "corpus", CLANG, BUSY_SOURCES, level="O2")
    modules = Corpus.load(str(tmp_path / "corpus")).modules
    done: list[int] = []
    plain = compile_objects(modules, toolchain, tmp_path / "plain", FLAGS)
    found = objects_under("random", modules, toolchain, tmp_path / "random", done.append, num_workers=1)
    assert sum(done) == len(modules)
    for one, other in zip(plain, found, strict=True):
        assert {block.function for block in read_object(one, toolchain)} == {
            block.function for block in read_object(other, toolchain)
        }
    assert any(one.read_bytes() != other.read_bytes() for one, other in zip(plain, found, strict=True))
    before = [path.stat().st_mtime_ns for path in found]
    assert objects_under("random", modules, toolchain, tmp_path / "random", num_workers=1) == found
    assert [path.stat().st_mtime_ns for path in found] == before
