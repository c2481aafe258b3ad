"""The command that searches for rules of eviction for the benchmark programs: a whole run, and bad input."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.corpus_programs import ProgramSource
from benchmarks.eviction_search import METRICS, describe, search_program, summary
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.errors import BenchmarkError
from compiler_opt.llvm.toolchain import probe
from compiler_opt.problems import problem as problems
from compiler_opt.search.measured_rules import MIN_MEASUREMENTS, RuleSearchSettings
from tests.small_corpus import BUSY_SOURCES, make_corpus

CLANG = "/usr/bin/clang-22"
ROOT = Path(__file__).parents[2]
SOURCES = {"mixed/sums.c": BUSY_SOURCES["mixed/sums.c"]}
MAIN = """
#include <stdio.h>
long sums(const long *, long), more(const long *, long);
int main(int argc, char **argv) {
  long p[11] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  char path[4096];
  snprintf(path, sizeof path, "%s/file", argv[argc - 1]);
  FILE *there = fopen(path, "a");
  printf("%ld PRINTED\\n", sums(p, 500) + more(p, 300));
  return !there;
}
"""


def _corpus(folder: Path) -> Corpus:
    folder.mkdir()
    return make_corpus(folder, CLANG, SOURCES, level="O2")


def _source(folder: Path, main: str) -> ProgramSource:
    (folder / "mixed_sums.c").write_text(main)
    return ProgramSource(folder / "mixed_sums.c")


def test_a_program_is_measured_and_described(tmp_path: Path) -> None:
    corpus, toolchain = _corpus(tmp_path / "corpus"), probe(CLANG)
    source, settings = _source(tmp_path, MAIN), RuleSearchSettings(MIN_MEASUREMENTS)
    with WorkerPool(toolchain, problems.load("regalloc_eviction"), num_workers=1) as pool:
        arguments = (source, corpus, pool, toolchain, settings, METRICS["accesses"], tmp_path / "result")
        found = search_program(*arguments)
        program = tmp_path / "result" / "program"
        linked_ns = program.stat().st_mtime_ns
        assert search_program(*arguments) == found
        # All was measured before, so nothing was linked.
        assert program.stat().st_mtime_ns == linked_ns
    assert found.plain.functions.keys() == {"sums", "more"}
    assert found.best.own.accesses <= found.plain.own.accesses
    lines = describe(found)
    assert [line.split("  ")[0] for line in lines[2:-2]] == [
        "plain",
        "one rule",
        "one of these for each module",
        "one of these for each function",
        "own rule for each function, as a sum",
        "own rule for each function",
    ]
    assert f"{found.plain.own.accesses:,}" in lines[2]
    assert lines[-2].startswith(f"2 hot functions in 1 modules; rules change what {found.changed_functions} of them do")
    assert summary({"mixed_sums": found}).lines()[-1].startswith("mixed_sums ")


def test_a_program_that_prints_something_else_each_time_is_refused(tmp_path: Path) -> None:
    corpus, toolchain = _corpus(tmp_path / "corpus"), probe(CLANG)
    main = MAIN.replace("#include", "#include <unistd.h>\n#include", 1)
    source = _source(tmp_path, main.replace("PRINTED", "%d").replace("more(p, 300)", "more(p, 300), getpid()"))
    settings = RuleSearchSettings(MIN_MEASUREMENTS)
    with (
        WorkerPool(toolchain, problems.load("regalloc_eviction"), num_workers=1) as pool,
        pytest.raises(BenchmarkError, match=r"\./program place: is not deterministic: expected to print"),
    ):
        search_program(source, corpus, pool, toolchain, settings, METRICS["accesses"], tmp_path / "result")


@pytest.mark.parametrize(
    ("has_valgrind", "message"),
    [
        (False, "valgrind: not found; install the package valgrind"),
        (True, "holds none of the projects of"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, has_valgrind: bool, message: str) -> None:
    _corpus(tmp_path / "corpus")
    flags = [f"--data_path={tmp_path / 'corpus'}", f"--output_dir={tmp_path / 'result'}", f"--clang_path={CLANG}"]
    result = subprocess.run(
        [sys.executable, "-m", "benchmarks.eviction_by_heart", *flags],
        cwd=ROOT,
        env={**os.environ, **({} if has_valgrind else {"PATH": str(tmp_path)})},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 2
    assert re.fullmatch(rf"error: [^\n]*{message}[^\n]*\n", result.stderr)
    assert not (tmp_path / "result").exists()
