from pathlib import Path

import pytest

from compiler_opt.errors import BenchmarkError, ConfigError
from compiler_opt.measure.benchmark import Benchmark
from compiler_opt.measure.callgrind import Function
from tests.measure.running import PROGRAM, built

COUNTING = """
#include <stdio.h>
int main(void) {
  int n = 0;
  FILE *file = fopen("runs", "r");
  if (file) { if (fscanf(file, "%d", &n) != 1) return 9; fclose(file); }
  file = fopen("runs", "w");
  fprintf(file, "%d", n + 1);
  fclose(file);
  printf("same\\nrun %d\\n", n);
}
"""


@pytest.mark.ci
def test_measures_other_builds_of_the_same_program(tmp_path: Path) -> None:
    plain, other = built(tmp_path / "plain", PROGRAM), built(tmp_path / "other", PROGRAM, "-O0")
    benchmark = Benchmark.of(["./bench 300", "./bench '200'"])
    reference = benchmark.reference(plain.parent)
    assert [output.split()[0] for output in reference.outputs] == [b"300", b"200"]
    before, after = (benchmark.measure(program.parent, reference) for program in (plain, other))
    assert after.total.instructions > before.total.instructions
    assert before.calls[Function(str(plain), "main"), Function(str(plain), "hot")].number == 300 + 200
    assert 0 < benchmark.wall_s(plain.parent, reference) < 60


@pytest.mark.parametrize("line", ["", "'", "   "])
def test_refuses_what_is_no_command(line: str) -> None:
    with pytest.raises(ConfigError, match="benchmark"):
        Benchmark.of([line])


def test_refuses_no_command() -> None:
    with pytest.raises(ConfigError, match="found none"):
        Benchmark.of([])


def test_refuses_a_program_that_is_missing(tmp_path: Path) -> None:
    for line in ("./gone", "no-such-program-anywhere"):
        with pytest.raises(BenchmarkError, match="expected a program, found none"):
            Benchmark.of([line]).reference(tmp_path)


def test_refuses_a_command_that_fails(tmp_path: Path) -> None:
    program = built(tmp_path, PROGRAM)
    with pytest.raises(BenchmarkError, match=r"\./bench -1: expected exit status 0, found: exit status 3"):
        Benchmark.of(["./bench -1"]).reference(program.parent)


def test_refuses_a_command_that_does_not_end(tmp_path: Path) -> None:
    program = built(tmp_path, PROGRAM)
    with pytest.raises(BenchmarkError, match=r"\./bench 1 hang: still runs after 0.3 s"):
        Benchmark.of(["./bench 1 hang"], timeout_s=0.3).reference(program.parent)


def test_refuses_a_command_that_is_not_deterministic(tmp_path: Path) -> None:
    program = built(tmp_path, COUNTING)
    with pytest.raises(
        BenchmarkError, match="is not deterministic: expected to print 'run 0', found 'run 1', in line 2"
    ):
        Benchmark.of(["./bench"]).reference(program.parent)


def test_refuses_another_output(tmp_path: Path) -> None:
    right = built(tmp_path / "right", PROGRAM)
    wrong = built(tmp_path / "wrong", PROGRAM.replace("%d %d", "%d  %d"))
    silent = built(tmp_path / "silent", PROGRAM.replace("printf", "if (0) printf"))
    benchmark = Benchmark.of(["./bench 3"])
    reference = benchmark.reference(right.parent)
    message = r"\./bench 3: expected to print '3 .*', found '3  .*', in line 1, in /"
    with pytest.raises(BenchmarkError, match=message):
        benchmark.measure(wrong.parent, reference)
    with pytest.raises(BenchmarkError, match=message):
        benchmark.wall_s(wrong.parent, reference)
    with pytest.raises(BenchmarkError, match="found '', in line 1"):
        benchmark.measure(silent.parent, reference)


def test_refuses_a_build_that_fails_under_callgrind(tmp_path: Path) -> None:
    right = built(tmp_path / "right", PROGRAM)
    failing = built(tmp_path / "failing", PROGRAM.replace("if (n < 0)", "if (n > 0)"))
    benchmark = Benchmark.of(["./bench 3"])
    with pytest.raises(BenchmarkError, match="expected exit status 0, found: exit status 3"):
        benchmark.measure(failing.parent, benchmark.reference(right.parent))
