"""The statistics of a small corpus, and counts of modules against what their source says."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler_opt.corpus import statistics
from compiler_opt.corpus.command_lines.command_line import optimization_level
from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.statistics import ModuleCounts, Statistics, count_module, parse_counts
from compiler_opt.errors import CompileError, ProtocolError
from compiler_opt.llvm.toolchain import Toolchain
from tests.probed import probed
from tests.small_corpus import make_corpus

SOURCES = {
    "one/a.c": "static int f(int x) { return x; } int g(int x) { return f(x) + f(x + 1); }",
    "one/b.cpp": "template <int N> int t() { return N; } int u() { return t<1>() + t<2>() + t<3>(); }",
    "two/empty.c": "int x;",
    "two/again.c": "int x;",
}


@pytest.fixture(scope="module", name="newest")
def newest_fixture() -> Toolchain:
    return probed("clang-22")


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


CALLS_SOURCE = """
int puts(const char *);
static int one(int x) { return x + 1; }
int two(int x) { return one(x) + one(x * 2); }
int three(int x, int (*other)(int)) { puts("x"); return two(x) + other(x); }
int number = 3;
"""


def bitcode_of(clang: Path, folder: Path, source: str) -> Path:
    (folder / "x.c").write_text(source)
    command = [str(clang), "-O2", "-Xclang", "-disable-llvm-passes", "-emit-llvm", "-c", "x.c", "-o", "x.bc"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "x.bc"


def test_functions_and_calls_that_can_be_inlined(toolchain: Toolchain, tmp_path: Path) -> None:
    counts = count_module(toolchain.tool("opt"), bitcode_of(toolchain.clang, tmp_path, CALLS_SOURCE))
    # Neither the call of `puts`, which is elsewhere, nor the one of `other`, which nobody knows.
    assert (counts.functions, counts.call_sites) == (3, 3)
    assert 15 < counts.instructions < 60
    assert count_module(toolchain.tool("opt"), bitcode_of(toolchain.clang, tmp_path, "int x;")) == ModuleCounts(0, 0, 0)


def test_what_is_no_bitcode(toolchain: Toolchain, tmp_path: Path) -> None:
    (tmp_path / "x.bc").write_text("no bitcode")
    with pytest.raises(CompileError, match=r"x\.bc: exit status 1: .*error"):
        count_module(toolchain.tool("opt"), tmp_path / "x.bc")
    with pytest.raises(CompileError, match="ran out of time"):
        count_module(toolchain.tool("opt"), bitcode_of(toolchain.clang, tmp_path, CALLS_SOURCE), timeout_s=0)


PRINTED = b"""Printing analysis results of CFA for function 'f':
BasicBlockCount: 6
DirectCallsToDefinedFunctions: 2
TotalInstructionCount: 36

Printing analysis results of CFA for function 'g':
DirectCallsToDefinedFunctions: 1
TotalInstructionCount: 4
"""


def test_totals() -> None:
    assert parse_counts(PRINTED) == ModuleCounts(functions=2, instructions=40, call_sites=3)


@given(st.data())
def test_damaged_output_is_refused_or_counted(data: st.DataObject) -> None:
    lines = PRINTED.splitlines(keepends=True)
    kept = data.draw(st.lists(st.sampled_from([*lines, b"TotalInstructionCount: -4\n", b"\xff\n"]), max_size=9))
    try:
        counts = parse_counts(b"".join(kept))
    except ProtocolError as error:
        assert "\n" not in str(error)
    else:
        assert counts.functions == sum(line.startswith(b"Printing") for line in kept)
