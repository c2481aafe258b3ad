"""Vocabularies of IR2Vec embeddings that are trained here, as LLVM reads them."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.ir2vec_vocabulary import read_entities, train_vectors, triplets, vocabulary_json
from compiler_opt.errors import ProtocolError
from compiler_opt.llvm.ir2vec import components, read_vocabulary
from compiler_opt.llvm.toolchain import probe
from tests.small_corpus import make_small_corpus


@pytest.fixture(scope="module")
def tool() -> Path:
    return probe("clang-22").tool("llvm-ir2vec")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_small_corpus(tmp_path_factory.mktemp("corpus"), "clang-22")


@pytest.mark.ci
def test_llvm_embeds_functions_by_it(corpus: Corpus, tool: Path, tmp_path: Path) -> None:
    paths = [tmp_path / "one.json", tmp_path / "two.json"]
    for path in paths:
        command = [
            "generate_ir2vec_vocab",
            f"--data_path={corpus.root}",
            f"--output_path={path}",
            "--clang_path=clang-22",
        ]
        result = subprocess.run(
            [sys.executable, "-m", "compiler_opt", *command, "--dimensions=12", "--epochs=100"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        assert "vectors of 12 numbers" in result.stdout
    assert paths[0].read_bytes() == paths[1].read_bytes()
    vocabulary = read_vocabulary(paths[0])
    content = json.loads(paths[0].read_text())
    names = {name for section in content.values() for name in section}
    assert names < set(read_entities(tool))
    assert {"Add", "Ret", "Call"} <= set(content["Opcodes"]) and "AtomicRMW" not in names
    # A function's embedding is not zero, and depends on its code.
    found = []
    for sign in "+", "*":
        (tmp_path / "f.c").write_text(f"int f(int a, int b) {{ return a {sign} b; }}")
        subprocess.run(["clang-22", "-O1", "-emit-llvm", "-c", "f.c"], cwd=tmp_path, check=True)
        command = [str(tool), "embeddings", "--level=func", f"--ir2vec-vocab-path={vocabulary.path}", "f.bc"]
        found.append(subprocess.check_output(command, cwd=tmp_path, text=True))
    numbers = [[float(word) for word in text.partition("[")[2].partition("]")[0].split()] for text in found]
    assert len(numbers[0]) == 12 and any(numbers[0]) and numbers[0] != numbers[1]
    features = probe("clang-22", vocabulary).problems["inlining"].features
    assert len(components([spec.name for spec in features])) == 24


def test_triplets_are_llvms_own(corpus: Corpus, tool: Path) -> None:
    for module, found in zip(corpus.modules, triplets(corpus.modules, tool, 2), strict=True):
        lines = subprocess.check_output([str(tool), "triplets", str(module.bitcode_path)], text=True).splitlines()[1:]
        assert isinstance(found, np.ndarray)
        assert {tuple(row) for row in found.tolist()} == {tuple(map(int, line.split())) for line in lines}


def test_true_facts_are_closer_than_false_ones(corpus: Corpus, tool: Path) -> None:
    facts = [each for each in triplets(corpus.modules, tool) if not isinstance(each, str)]
    names = read_entities(tool)
    vectors, better = train_vectors(facts, len(names), dimensions=32, epochs=300, seed=3)
    assert better > 0.9
    lengths = np.linalg.norm(vectors, axis=1)
    used = np.unique(np.concatenate(facts)[:, :2])
    np.testing.assert_allclose(lengths[used], 1)
    assert not np.delete(lengths, used).any()
    assert sum(map(len, vocabulary_json(names, vectors).values())) == len(used)
    assert vocabulary_json(["ICMP_eq"], np.ones((1, 1))) == {
        "Opcodes": {},
        "Types": {},
        "Arguments": {"ICMP_eq": [1.0]},
    }
    assert train_vectors(facts, len(names), dimensions=32, epochs=0, seed=3)[1] < better


def test_triplets_that_cannot_be_learned() -> None:
    for facts in ([], [np.array([[0, 7, 0]])]):
        with pytest.raises(ProtocolError, match="IR2Vec: expected triplets of 7 entities"):
            train_vectors(facts, 7, dimensions=2, epochs=1, seed=0)
