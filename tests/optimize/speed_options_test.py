"""Options for single functions of a benchmark: chosen by running it, given by the deployed compilers."""

from pathlib import Path

import pytest

from compiler_opt.llvm.toolchain import probe
from compiler_opt.measure.benchmark import Benchmark
from compiler_opt.optimize import output
from compiler_opt.optimize.database_program import DatabaseProgram
from compiler_opt.optimize.optimization import FUNCTION_OPTIONS, OptimizeSettings
from compiler_opt.optimize.pipeline import optimize
from compiler_opt.optimize.speed import FastBenchmark
from compiler_opt.optimize.speed_options import PROGRAM_STEPS, SETS, OwnCost, choose
from compiler_opt.search import function_options
from tests.optimize.speed_programs import LOOPS, database, link_command


@pytest.mark.slow
@pytest.mark.parametrize("clang", ["clang-19", "clang-22"])
def test_each_function_has_the_set_with_which_it_executes_least(tmp_path: Path, clang: str) -> None:
    program = DatabaseProgram(database(tmp_path / "source", LOOPS), [link_command()], 2)
    settings = OptimizeSettings(tmp_path / "out", level="-O2", jobs=2)
    # Bytes count for next to nothing: what executes less is better.
    program_steps = (*PROGRAM_STEPS, ("what clang refuses", ("-mllvm", "-no-such-option")))
    benchmark = Benchmark.of(["linked/bench"])
    speed = FastBenchmark(benchmark, bytes_per_percent=1e6, wall_rounds=6, program_steps=program_steps)
    lines: list[str] = []
    result = optimize(program, probe(clang), settings, speed, lines.append)
    assert lines[0].startswith("Every file is compiled at -O2, or at -O3 if that pays, whatever ")
    kept = ", and at -O3 in the optimised build" if "-O3" in result.kept else ""
    assert result.notes[0].startswith(f"Every file is compiled at -O2{kept}, whatever ")
    assert [step.name for step in result.steps][:5] == [
        *(name for name, _ in PROGRAM_STEPS),
        "counting again after inlining",
    ]
    assert any(note.startswith("Left out: what clang refuses: ") and "-no-such-option" in note for note in result.notes)
    assert (tmp_path / "out" / "program-late.profdata").is_file()
    chosen = function_options.load(tmp_path / "out" / FUNCTION_OPTIONS)
    by_name = {name: chosen.menu[number] for (name, _), number in chosen.choices.items()}
    if clang == "clang-19":  # There is nothing to choose in this program.
        assert not by_name and not result.function_options and not (tmp_path / "out" / "deployed").exists()
        return
    assert by_name["many"] == ("-disable-lsr=true",) and by_name.get("main") != ("-disable-lsr=true",)
    assert chosen.menu[1:] == SETS and not chosen.menu[0]
    step = result.steps[-1]
    assert step.kept and step.name.startswith("options of ") and result.kept[-1] == step.name
    # What the functions save one by one is what the program saves that the deployed compilers build.
    saved = sum(each.saved for each in result.function_options)
    before = next(each for each in reversed(result.steps[:-1]) if each.kept).measured
    assert saved > 0.005 * result.default.own
    assert before.own - step.measured.own == pytest.approx(saved, rel=0.02)
    assert result.optimized.own == pytest.approx(step.measured.own, rel=0.001)
    assert not (tmp_path / "out" / "tried").exists() and not (tmp_path / "out" / "build-tried").exists()
    page = output.write(result, tmp_path / "report").read_text()
    assert (
        step.name in page
        and "<h2>Options by function</h2>" in page
        and "-disable-lsr=true" in page
        and "mlgo-clang" in page
    )

    lines.clear()
    again = optimize(program, probe(clang), settings, speed, lines.append)
    assert again.steps == result.steps and f"with {step.name}: done before" in lines


def test_no_set_is_chosen_that_costs_more_in_any_way() -> None:
    first = {"a": OwnCost(1000, 2000), "b": OwnCost(1000, 2000), "c": OwnCost(1000, 2000)}
    fewer = {"a": OwnCost(900, 2000), "b": OwnCost(900, 2001), "c": OwnCost(995, 1900)}
    other = {"a": OwnCost(950, 1500), "b": OwnCost(990, 1990)}
    assert choose([first, fewer, other], "instructions", 10) == {"a": 1, "b": 2}
    assert choose([first, fewer, other], "cycles", 10) == {"a": 2, "b": 2, "c": 1}
    assert choose([first], "instructions", 10) == {}
