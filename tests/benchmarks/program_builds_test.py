"""What the builds of a program execute."""

from pathlib import Path

import pytest

from benchmarks.corpus_programs import ProgramSource, compile_objects
from benchmarks.program_builds import measure_builds
from compiler_opt.errors import BenchmarkError
from compiler_opt.evaluation.results import DEFAULT
from compiler_opt.llvm.toolchain import probe
from tests.small_corpus import make_corpus

CLANG = "/usr/bin/clang-22"
SUM = """
unsigned sum(unsigned count) {
  unsigned result = 1;
  for (unsigned i = 0; i < count; i++) {
    result = result * 31 + i;
  }
  return result;
}
"""
ASKS = """
#include <stdio.h>
unsigned sum(unsigned count);
int main(void) { printf("%u\\n", sum(100000)); return 0; }
"""


@pytest.mark.slow
def test_builds_are_compared_with_the_plain_one(tmp_path: Path) -> None:
    toolchain = probe(CLANG)
    sources = {
        DEFAULT: SUM,
        "slower": SUM.replace("    result", '    __asm__("nop");\n    result'),
        "wrong": SUM.replace("31", "33"),
    }
    builds = {}
    for name, text in sources.items():
        (tmp_path / name).mkdir()
        corpus = make_corpus(tmp_path / name, CLANG, {"deep/sum.c": text})
        builds[name] = compile_objects(corpus.modules, toolchain, tmp_path / name / "objects")
    (tmp_path / "deep_asks.c").write_text(ASKS)
    program = ProgramSource(tmp_path / "deep_asks.c")
    counts, times = measure_builds(program, {name: builds[name] for name in (DEFAULT, "slower")}, toolchain, 6)
    more = counts["slower"].instructions - counts[DEFAULT].instructions
    # Its 100,000 `nop`s; the C library's start differs by a few instructions from run to run.
    assert abs(more - 100_000) < 1_000 and counts["slower"].cycles > counts[DEFAULT].cycles
    assert times[DEFAULT].ratio.value == 1 and times["slower"].seconds.value > 0
    with pytest.raises(BenchmarkError, match=r"expected to print '\d+', found '\d+', in line 1"):
        measure_builds(program, builds, toolchain)
