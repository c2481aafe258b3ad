"""A program made faster: found where a benchmark runs, replayed by the deployed compilers, measured again."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from compiler_opt.errors import BenchmarkError, ConfigError, ToolchainError
from compiler_opt.llvm.toolchain import probe
from compiler_opt.measure.benchmark import Benchmark
from compiler_opt.optimize import output
from compiler_opt.optimize.database_program import DatabaseProgram
from compiler_opt.optimize.optimization import DECISIONS, OptimizeSettings
from compiler_opt.optimize.pipeline import optimize
from compiler_opt.optimize.results import SpeedResult
from compiler_opt.optimize.speed import FastBenchmark
from compiler_opt.pass_options.sets import OptionSets
from compiler_opt.policies.decisions import Decisions
from compiler_opt.report.formatting import count_text
from tests.optimize.speed_programs import database, link_command

SPEED = FastBenchmark(Benchmark.of(["linked/bench"]), bytes_per_percent=20_000, wall_rounds=6, program_steps=())
"""Without -O3, which inlines what the search is to find."""

OPTIONS = OptionSets({"O2": ("-enable-load-pre=false",)})


def optimized(tmp_path: Path, speed: FastBenchmark, echoed: list[str] | None = None) -> SpeedResult:
    path = tmp_path / "source" / "compile_commands.json"
    if not path.exists():
        database(path.parent)
    program = DatabaseProgram(path, [link_command()], 2)
    settings = OptimizeSettings(tmp_path / "out", search_minutes=0.3, level="-O2", pass_options=OPTIONS, jobs=2)
    lines = [] if echoed is None else echoed
    return optimize(program, probe("clang-22"), settings, speed, lines.append)


@pytest.mark.slow
def test_inlines_what_runs_often_and_nothing_else(tmp_path: Path) -> None:
    result = optimized(tmp_path, SPEED)
    assert result.kept
    plain, profiled, better = result.default, result.profiled, result.optimized
    assert better.own < profiled.own - 10_000 and profiled.own <= plain.own
    # Of the same program, libraries run the same.
    assert better.own - plain.own == pytest.approx(better.counts.instructions - plain.counts.instructions, abs=2000)
    decisions = Decisions.load(tmp_path / "out" / DECISIONS)
    assert {(site.callee, advice) for site, advice in decisions.items()} == {("often", 1)}
    # `loop`, or `work`, into which it is inlined.
    assert min(result.functions, key=lambda symbol: result.functions[symbol]) == "work"
    assert result.kept == (count_text(len(decisions), "inlining decision"),)
    assert (result.steps[0].name, result.steps[0].kept) == (OPTIONS.levels["O2"][0], False)
    assert 0 < better.text_bytes - profiled.text_bytes < 3000
    table = output.terminal_table(result)
    assert "wall time, optimized" in table
    kept = f"Kept, on top of the profile: {result.kept[-1]}"
    assert table.splitlines()[-1].startswith(kept) and "where a percent counts as 20,000 bytes" in table
    page = output.write(result, tmp_path / "report").read_text()
    assert kept in page and "-fprofile-use=" in page and "mlgo-clang" in page and "cost in instructions is" in page
    summary = json.loads((tmp_path / "report" / "summary.json").read_text())
    assert summary["optimized"]["counts"]["cycles"] == better.counts.cycles

    # With as many minutes, the search is not repeated; with a benchmark that is another one, it is refused.
    echoed: list[str] = []
    again = optimized(tmp_path, SPEED, echoed)
    assert again.optimized == result.optimized and "search: done before" in echoed
    with pytest.raises(ConfigError, match="another objective"):
        optimized(tmp_path, dataclasses.replace(SPEED, metric="cycles"))


@pytest.mark.slow
def test_nothing_is_kept_that_costs_more_than_it_saves(tmp_path: Path) -> None:
    """A byte is worth 100 percent."""
    result = optimized(tmp_path, dataclasses.replace(SPEED, bytes_per_percent=0.01))
    assert not result.kept
    assert result.profiled == result.optimized
    assert not (tmp_path / "out" / "deployed").exists()
    said = output.terminal_table(result).splitlines()[-1]
    assert said.startswith("Kept: the profile alone, since ")
    page = output.render(result)
    assert said in page and "mlgo-clang" not in page and str(probe("clang-22").clang) in page


def test_a_benchmark_that_is_wrong_is_refused_before_the_search(tmp_path: Path) -> None:
    speed = dataclasses.replace(SPEED, benchmark=Benchmark.of(["linked/no-bench"]))
    with pytest.raises(BenchmarkError, match="linked/no-bench: expected a program, found none"):
        optimized(tmp_path, speed)
    assert not (tmp_path / "out" / "search").exists()


@pytest.mark.ci
def test_a_benchmark_that_does_not_run_the_program_has_no_profile(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match=r"the benchmark has recorded no profile in .*raw-profiles; it must run"):
        optimized(tmp_path, dataclasses.replace(SPEED, benchmark=Benchmark.of(["echo always the same"])))


def test_valgrind_is_needed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clang = shutil.which("clang-22")
    assert clang is not None
    toolchain = probe(clang)
    program = DatabaseProgram(database(tmp_path / "source"), [link_command()], 2)
    settings = OptimizeSettings(tmp_path / "out", level="-O2")
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(ToolchainError, match="install the package valgrind"):
        optimize(program, toolchain, settings, SPEED, lambda line: None)
    assert not (tmp_path / "out").exists()
