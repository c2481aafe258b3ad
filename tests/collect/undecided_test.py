"""Bitcode of -O0: no policy is asked about it, which a report of 0.00% must not hide."""

from pathlib import Path

import pytest

from compiler_opt.collect.undecided import why_undecided
from compiler_opt.corpus.description import Corpus
from tests import programs
from tests.small_corpus import SOURCES, make_corpus, make_small_corpus

PLAIN = {"plain/list.c": SOURCES["plain/list.c"]}


@pytest.fixture
def optnone(clang_path: str, tmp_path: Path) -> Corpus:
    """A corpus of -O0, whose recorded options say otherwise."""
    (tmp_path / "corpus").mkdir()
    corpus = make_corpus(tmp_path / "corpus", clang_path, PLAIN, level="O0")
    options = corpus.modules[0].command_path
    options.write_bytes(options.read_bytes().replace(b"-O0", b"-Oz"))
    return corpus


def test_functions_that_are_optnone(optnone: Corpus, clang_path: str, tmp_path: Path) -> None:
    assert why_undecided(optnone.modules, Path(clang_path)).startswith("1 of 1 modules have functions that are optnone")
    (tmp_path / "others").mkdir()
    small = make_small_corpus(tmp_path / "others", clang_path)
    assert why_undecided(small.modules, Path(clang_path)) == ""
    at_level_0 = make_corpus(tmp_path / "others", clang_path, PLAIN, level="O0")
    assert "compiled at -O0: build again" in why_undecided(at_level_0.modules, Path(clang_path))


@pytest.mark.ci
def test_an_evaluation_that_says_nothing_warns(optnone: Corpus, clang_path: str, tmp_path: Path) -> None:
    result = programs.run(
        "compiler_opt.tools.evaluate",
        f"--data_path={optnone.root}",
        f"--output_dir={tmp_path / 'results'}",
        f"--clang_path={clang_path}",
        "--baselines=",
        cwd=tmp_path,
    )
    assert result.returncode == 0, result.stderr
    assert f"warning: {optnone.root}: no module has any decisions, so the result says nothing; 1 of 1" in result.stderr
