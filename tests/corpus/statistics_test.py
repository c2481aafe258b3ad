"""The statistics of a small corpus."""

import json
import shutil
from pathlib import Path

import pytest

from compiler_opt.corpus import statistics
from compiler_opt.corpus.command_lines.command_line import optimization_level
from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.statistics import Statistics
from compiler_opt.llvm.toolchain import Toolchain, probe
from tests.small_corpus import make_corpus

SOURCES = {
    "one/a.c": "static int f(int x) { return x; } int g(int x) { return f(x) + f(x + 1); }",
    "one/b.cpp": "template <int N> int t() { return N; } int u() { return t<1>() + t<2>() + t<3>(); }",
    "two/empty.c": "int x;",
    "two/again.c": "int x;",
}


@pytest.fixture(scope="module", name="newest")
def newest_fixture() -> Toolchain:
    return probe("clang-22")


@pytest.fixture(name="corpus")
def corpus_fixture(newest: Toolchain, tmp_path: Path) -> Corpus:
    corpus = make_corpus(tmp_path, str(newest.clang), SOURCES)
    shutil.copy(tmp_path / "two/empty.c.o.bc", tmp_path / "two/again.c.o.bc")
    (tmp_path / "two/again.c.o.cmd").write_bytes(b"-cc1\0-triple\0aarch64-linux-gnu\0-O2\0-main-file-name\0again.c\0")
    return corpus


def gathered(corpus: Corpus, toolchain: Toolchain) -> Statistics:
    return Statistics(tuple(statistics.gather(corpus.modules, toolchain.tool("opt"), "own-target", 2)))


def test_numbers(corpus: Corpus, newest: Toolchain) -> None:
    found = gathered(corpus, newest)
    assert [module.name for module in found.modules] == [module.name for module in corpus.modules]
    assert found.values("functions").tolist() == [2, 4, 0, 0]
    assert found.values("call_sites").tolist() == [2, 3, 0, 0]
    assert found.total("functions") == 6 and found.total("functions", "two") == 0
    assert found.total("decisions") is None and found.distribution("decisions") == {}
    quantiles = {"min": 0, "25%": 0, "median": 1, "75%": 2.25, "95%": 2.85, "max": 3}
    assert found.distribution("call_sites") == pytest.approx(quantiles)
    assert found.count_by("language") == {"C": 3, "C++": 1}
    assert found.count_by("level") == {"-Oz": 3, "-O2": 1}
    assert found.count_by("target") == {"own-target": 3, "aarch64-linux-gnu": 1}
    assert found.count_by("project") == {"one": 2, "two": 2}
    assert found.copies() == [("two/empty.c.o", "two/again.c.o")]
    sizes = [module.bitcode_path.stat().st_size for module in corpus.modules]
    assert found.values("bitcode_bytes").tolist() == sizes
    assert found.failures() == {}
    assert json.loads(json.dumps(found.to_json()))["totals"]["call_sites"] == 5


def test_decisions_and_failures(corpus: Corpus, newest: Toolchain) -> None:
    corpus.modules[1].bitcode_path.write_bytes(b"no bitcode")
    corpus.modules[3].command_path.unlink()
    found = gathered(corpus, newest)
    assert found.failures().keys() == {"one/b.cpp.o", "two/again.c.o"}
    assert found.values("functions").tolist() == [2, 0]
    compiled = statistics.with_decisions(found.modules[0], 7, None)
    assert compiled.decisions == 7 and compiled.failure is None
    failed = statistics.with_decisions(found.modules[1], None, "later")
    assert failed.failure == found.modules[1].failure
    assert statistics.with_decisions(found.modules[0], None, "later").failure == "later"


@pytest.mark.parametrize(
    ("options", "level"),
    [("-cc1 -O2", "-O2"), ("-cc1 -O2 -Oz", "-Oz"), ("-cc1", "-O0"), ("-cc1 -Os -Output", "-Os"), ("-cc1 -O", "-O")],
)
def test_level(options: str, level: str) -> None:
    assert optimization_level(options.split()) == level
