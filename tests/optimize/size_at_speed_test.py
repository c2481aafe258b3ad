"""A program made smaller at the speed that it had: code that its benchmark seldom runs is compiled for size."""

import dataclasses
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from compiler_opt.errors import BenchmarkError, ConfigError
from compiler_opt.llvm.advisors import mllvm
from compiler_opt.llvm.object_file import read_parts
from compiler_opt.llvm.profile import merge
from compiler_opt.llvm.toolchain import probe
from compiler_opt.measure.attribution import METRICS, Attribution
from compiler_opt.measure.benchmark import Benchmark, Reference
from compiler_opt.measure.callgrind import NOTHING, Counts
from compiler_opt.optimize import output, profiles, size_at_speed
from compiler_opt.optimize.database_program import DatabaseProgram
from compiler_opt.optimize.optimization import OptimizeSettings
from compiler_opt.optimize.pipeline import optimize
from compiler_opt.optimize.profiles import RecordedProfile
from compiler_opt.optimize.results import ColdStep, Measured, SizeAtSpeedResult
from compiler_opt.optimize.size_at_speed import Found, SmallAtSpeed
from tests.optimize.speed_programs import database, link_command

SMALL = SmallAtSpeed(Benchmark.of(["linked/bench"]), wall_rounds=6)


def optimized(tmp_path: Path, clang: str, small: SmallAtSpeed = SMALL) -> tuple[SizeAtSpeedResult, list[str]]:
    path = tmp_path / "source" / "compile_commands.json"
    if not path.exists():
        database(path.parent)
    program, lines = DatabaseProgram(path, [link_command()], 2), list[str]()
    settings = OptimizeSettings(tmp_path / "out", level="-O2", jobs=2)
    return optimize(program, probe(clang), settings, small, lines.append), lines


@pytest.mark.ci
@pytest.mark.parametrize(
    ("clang", "check"),
    [("clang-22", None), pytest.param("clang-19", Benchmark.of(["linked/bench 300"]), marks=pytest.mark.slow)],
)
def test_what_seldom_runs_gets_smaller_and_nothing_slower(tmp_path: Path, clang: str, check: Benchmark | None) -> None:
    chosen = dataclasses.replace(SMALL, check_benchmark=check)
    result, _ = optimized(tmp_path, clang, chosen)
    plain, small = result.default, result.optimized
    assert result.kept and result.change < 0
    assert small.text_bytes < min(plain.text_bytes, result.profiled.text_bytes)
    for metric in METRICS.values():
        assert metric(small.counts) <= 1.001 * metric(plain.counts)
    # With the share that only hot code has, the loop is compiled for size; that is slower, and ends the row.
    assert result.steps[-1].measured.counts.instructions > 1.05 * plain.counts.instructions
    shares = [step.cold for step in result.steps]
    assert shares == sorted(shares) and shares[0] == 0.0 and shares[-1] in size_at_speed.COLD

    # The command that is printed builds the same program, wherever the sources are.
    elsewhere = shutil.copytree(tmp_path / "source", tmp_path / "elsewhere")
    c, options = result.compilers[0], result.options
    objects = []
    for name in ("bench", "work"):
        objects.append(tmp_path / f"{name}.o")
        command = [c, *options, "-fno-lto", "-c", elsewhere / f"{name}.c", "-o", objects[-1]]
        subprocess.run(command, check=True)
    again = tmp_path / "again"
    subprocess.run([c, *objects, "-o", again], check=True)
    assert read_parts(again) == read_parts(tmp_path / "out" / "build-optimized" / "linked" / "bench")

    assert (result.default_checked is None) == (check is None)
    table, said = output.terminal_table(result), f"the last {100 * result.kept:g}%"
    assert re.search(rf"^{said} +kept ", table, re.MULTILINE) and f"have {said} of what runs" in table
    page = output.write(result, tmp_path / "report").read_text()
    assert said in page and "<svg" in page and "-profile-summary-cutoff-cold=" in page
    summary = json.loads((tmp_path / "report" / "summary.json").read_text())
    assert summary["kept"] == result.kept and len(summary["steps"]) == len(result.steps)

    # Nothing is done twice, and another benchmark is another optimisation.
    again_result, lines = optimized(tmp_path, clang, chosen)
    assert again_result.optimized == small and f"small, {said} for size: done before" in lines
    with pytest.raises(ConfigError, match="another objective"):
        optimized(tmp_path, clang, dataclasses.replace(SMALL, benchmark=Benchmark.of(["linked/bench 10"])))


@pytest.mark.parametrize("profile", size_at_speed.PROFILES, ids=lambda profile: profile.name)
@pytest.mark.parametrize("clang", ["clang-22", "clang-19"])
def test_a_static_function_has_its_profile_wherever_its_file_is(
    tmp_path: Path, clang: str, profile: RecordedProfile
) -> None:
    folders = [tmp_path / "recorded", tmp_path / "used"]
    for folder in folders:
        folder.mkdir()
        (folder / "p.c").write_text(
            "static __attribute__((noinline)) int f(int n) { return n % 7 ? n : f(n / 7); }\n"
            "int main(int argc, char **argv) { return f(49 * argc) != 1; }\n"
        )
    options, raw = mllvm(profile.llvm_options), tmp_path / "raw.profraw"
    program = tmp_path / "program"
    subprocess.run([clang, "-O2", "-fprofile-generate", *options, folders[0] / "p.c", "-o", program], check=True)
    subprocess.run([program], check=True, env={**os.environ, "LLVM_PROFILE_FILE": str(raw)})
    path = tmp_path / "p.profdata"
    merge([raw], path, probe(clang))
    options += ["-Wbackend-plugin", "-mllvm", "-pgo-warn-missing-function", "-c", str(folders[1] / "p.c")]
    using = [clang, "-O2", f"-fprofile-use={path}", *options, "-o", str(tmp_path / "p.o")]
    said = subprocess.check_output(using, stderr=subprocess.STDOUT)
    assert said == b""


def test_a_benchmark_that_fails_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match="linked/no-bench: expected a program, found none"):
        optimized(tmp_path, "clang-22", SmallAtSpeed(Benchmark.of(["linked/no-bench"])))


def build(text: int, instructions: int, misses: int = 0) -> Measured:
    """Instructions in thousands."""
    return Measured(Counts(instructions=1000 * instructions, l1_misses=misses), 1000 * instructions, text)


def test_of_builds_that_cost_no_more_the_smallest_is_chosen_if_that_is_worth_it() -> None:
    small = [
        ColdStep(0.0, build(1010, 90)),
        ColdStep(0.000001, build(995, 94)),
        ColdStep(0.001, build(900, 95)),
        ColdStep(0.01, build(892, 100)),
        ColdStep(0.05, build(880, 100, misses=100)),
        ColdStep(0.1, build(800, 101)),
    ]
    # Five percent of the instructions count as one of text.
    assert [step.cold for step in found(small).choices()] == [0.001, 0.01, 0.000001]
    small[3] = ColdStep(0.01, build(888, 100))
    assert [step.cold for step in found(small).choices()] == [0.01, 0.001, 0.000001]


def found(steps: list[ColdStep]) -> Found:
    attribution = Attribution(NOTHING, METRICS["instructions"], bool)
    plain = build(1000, 100)
    return Found(Reference((), 0.0), NOTHING, attribution, plain, plain, None, steps=tuple(steps))


def test_builds_end_between_the_last_that_is_as_fast_and_the_first_that_is_not() -> None:
    def next_of(*instructions: tuple[float, int]) -> float | None:
        return found([ColdStep(cold, build(900, number)) for cold, number in instructions]).next_share()

    fast = [(0.0, 90), (0.000001, 90), (0.001, 91), (0.01, 92)]
    assert next_of(*fast[:1]) == 0.000001 and next_of(*fast) == 0.05
    assert next_of(*fast, (0.05, 93), (0.1, 94), (0.2, 95), (0.4, 100)) is None
    assert next_of(*fast, (0.05, 101)) == 0.022
    assert next_of(*fast, (0.022, 101), (0.05, 101)) == 0.015
    assert next_of(*fast, (0.022, 99), (0.05, 101)) == 0.033
    assert next_of(*fast, (0.015, 99), (0.022, 101), (0.05, 101)) is None
    # The profile itself is slower.
    assert next_of((0.0, 101)) is None and next_of((0.0, 99), (0.000001, 101)) is None


def test_the_other_benchmark_must_be_as_fast_too() -> None:
    steps = [
        ColdStep(cold, build(900, 90), Counts(instructions=count)) for cold, count in ((0.001, 5004), (0.01, 5006))
    ]
    checked = dataclasses.replace(found(steps), checking=(Reference((), 0.0), Counts(instructions=5000)))
    assert [checked.is_fast(step) for step in steps] == [True, False]


def test_options_leave_nothing_both_hot_and_cold() -> None:
    assert profiles.cold_options(0.0) == ()
    assert profiles.cold_options(0.001)[1::2] == ("-pgo-cold-func-opt=optsize", "-profile-summary-cutoff-cold=999000")
    assert profiles.cold_options(0.1)[1::2] == (
        "-pgo-cold-func-opt=optsize",
        "-profile-summary-cutoff-cold=900000",
        "-profile-summary-cutoff-hot=900000",
    )
