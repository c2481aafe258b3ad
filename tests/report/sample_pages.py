"""Every kind of page that commands write, from invented results that are awkward to show: many, long, failed."""

import dataclasses
from pathlib import Path
from typing import Any

from compiler_opt import problem as problems
from compiler_opt.evaluation import comparison, explain_report, report
from compiler_opt.evaluation.attribution import Attribution, DecisionChange, FunctionChange
from compiler_opt.evaluation.comparison import COMPLETE, FAILED, SEARCH, UNFINISHED, Comparison, RunResult, State
from compiler_opt.evaluation.explain import Explanation, ProjectExplanation
from compiler_opt.evaluation.history import Curve, History
from compiler_opt.evaluation.results import Evaluation, ModuleResult, Output, ProjectResult
from compiler_opt.llvm.object_file import TextParts
from compiler_opt.measure.callgrind import Counts
from compiler_opt.measure.wall_time import Median, WallTimes
from compiler_opt.optimize import output
from compiler_opt.optimize.program import TestRun
from compiler_opt.optimize.results import (
    BenchmarkResult,
    ChosenSet,
    ColdStep,
    Measured,
    SizeAtSpeedResult,
    SizeResult,
    SpeedResult,
    SpeedStep,
    Tests,
)
from compiler_opt.optimize.state import Cost
from compiler_opt.optimize.target_sizes import TargetSize
from compiler_opt.optimize.verdict import FailedTest, Verdict
from compiler_opt.policies.decisions import Decisions, Site
from compiler_opt.search import report as search_report
from compiler_opt.search.confirmation import Confirmed
from compiler_opt.search.program import Program
from compiler_opt.search.program_search import SearchResult
from compiler_opt.search.search_outcome import Progress, SearchOutcome

LONG = "storage-engine-with-a-name-longer-than-those-of-other-projects"
_PATH = f"/home/somebody/{LONG}/optimized/deployed/bin/mlgo-clang"
_STRING = "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char>>"
_TREE = f"std::_Rb_tree<{_STRING}, std::pair<{_STRING} const, VALUE>, std::less<{_STRING}>>::_M_insert_unique(VALUE&&)"
_REASON = f"src/{LONG}.cpp: clang exited with status 1: fatal error: {100 * 'x'}"
_PROVENANCE = {
    "Compiler": "Debian clang version 22.1.8",
    "Options": "-apply-ext-tsp-for-size=true -ext-tsp-block-placement-max-blocks=500 -min-jump-table-entries=7 --x=1",
    "Policy: checksum": 16 * "0123456789abcdef",
}
HISTORY = History(Curve("mean", (1, 2, 3), (0.0, 0.01, 0.02)), (Curve("a", (1, 2), (0.0, 0.02)),))


def write_pages(folder: Path) -> dict[str, Path]:
    """Writes each page into a folder; returns their paths by name."""
    size, searches = sample_evaluation(), [sample_search(name, k) for k, name in enumerate(("a", LONG))]
    score = dataclasses.replace(size, problem=problems.load("regalloc_eviction"))
    deploy = ["--data_path=corpus", f"--decisions={LONG}/decisions.json", f"--output_dir=/home/somebody/{LONG}"]
    return {
        "size": report.write(size, folder / "size", HISTORY),
        "score": report.write(score, folder / "score"),
        "explanation": explain_report.write(_explanation(), folder / "explanation"),
        "search": search_report.write_page(searches, folder / "search", _PROVENANCE, deploy),
        "comparison": comparison.write(sample_comparison(), folder / "comparison"),
        "optimized-size": output.write(sample_optimization(), folder / "optimized-size", HISTORY),
        "optimized-speed": output.write(sample_speed(), folder / "optimized-speed"),
        "size-at-speed": output.write(sample_size_at_speed(), folder / "size-at-speed"),
    }


def sample_evaluation() -> Evaluation:
    """Seven projects, with options alone and the policy alone."""

    def module(project: str, number: int) -> ModuleResult:
        name = f"{project}/{number}/{LONG}.cpp.o"

        def result(text: int) -> Output:
            return Output(TextParts(text), text, 3000, cpu_s=0.5, host_cpu_s=0.25)

        base = 10_000 * 3**number
        outputs = {"default": result(base), "options": result(base - 10), "never": result(3 * base)}
        outputs["policy"], outputs["policy+options"] = result(base - 300 + 90 * number), result(base - 310)
        return ModuleResult(name, project, "C++", outputs, {"random": _REASON} if number == 2 else {})

    def project(number: int) -> ProjectResult:
        name = LONG if number == 1 else f"project-{number}"
        text = {
            "default": TextParts(10_000_000, 50_000, 70_000, 0),
            "options": TextParts(9_990_000, 50_000, 70_000, 0),
            "policy": TextParts(9_000_000 + 250_000 * number, 50_000, 60_000, 0),
            "never": TextParts(40_000_000, 50_000, 90_000, 0),
        }
        text["policy+options"] = text["never worse"] = TextParts(8_900_000 + 250_000 * number, 50_000, 60_000, 0)
        modules = tuple(module(name, k) for k in range(4))
        return ProjectResult(name, modules, {f"{name}/broken": _REASON}, text, {"random": _REASON}, shared=text)

    projects = tuple(map(project, range(7)))
    return Evaluation(
        problem=problems.load("inlining"),
        policy="policy+options",
        alone=("options", "policy"),
        baselines=("never",),
        projects=projects,
        started_at="2026-01-02 03:04+00:00",
        wall_s=75,
        seed=0,
        provenance=_PROVENANCE,
    )


def _explanation() -> Explanation:
    types = ("int", "long", _STRING, f"std::vector<{_STRING}>")
    names = {f"symbol{k}": _TREE.replace("VALUE", value) for k, value in enumerate(types)}
    functions = tuple(FunctionChange(name, 100.0, 100 - k, 2, ()) for k, name in enumerate(names))
    decisions = tuple(
        DecisionChange(Site(caller, 1, callee, k), False, True, (f"{LONG}/a.o", "b.o"), 10.0 * k, 3.0, 2)
        for k, (caller, callee) in enumerate(zip(names, reversed(names), strict=True))
    )
    attribution = Attribution(functions, decisions, 4, 1.0)
    linked = TextParts(9_000_000), TextParts(8_000_000)
    projects = tuple(ProjectExplanation(name, 4, 50_000, linked, attribution) for name in ("a", LONG))
    return Explanation(("default", "policy"), projects, {f"{LONG}/c.o": _REASON}, names, _PROVENANCE)


def sample_search(name: str, number: int) -> SearchResult:
    base = Program(())
    outcome = SearchOutcome(base, base, [], {0: 9000}, 99.0, [Progress(9000, 99.0, 900, 800, 800)], {1: _REASON})
    linked = {"all": 8_000_000 + 1_000_000 * number}
    plain = {"all": 9_000_000}
    confirmed = Confirmed({}, plain, plain, linked, {0: 900}, {0: 800}, frozenset({1}), 100, 4.0)
    return SearchResult(name, ["a.o", f"{LONG}/b.o"], Decisions({}), outcome, confirmed, 50_000, 61.0)


def sample_comparison() -> Comparison:
    runs = []
    for number, name in enumerate(("ppo", "evolution", f"my_package.{LONG}", SEARCH)):
        for seed in range(3):
            ends = (0.0, -0.01 * number, -0.02 * number - 0.003 * seed)
            curve = Curve("mean of projects", (0, 50_000, 100_000), ends)
            state: State = FAILED if seed == 2 else COMPLETE
            runs.append(RunResult(name, seed, state, _REASON if seed == 2 else "", 100_000, 7, 5e4, curve, curve))
    runs.append(RunResult("dqn", 0, UNFINISHED))
    return Comparison(runs, "COMDAT-weighted text", 100_000, _PROVENANCE)


def sample_optimization() -> SizeResult:
    return SizeResult(
        **_shared(f"{_PATH}", ("-Oz",)),
        num_modules=400,
        num_decisions=500_000,
        function_options=_options(),
    )


def _options() -> tuple[ChosenSet, ...]:
    return (ChosenSet(f"-disable-lsr=true -{LONG}=true -disable-cgp=true -enable-pre=false", 12, 340),)


def _shared(clang: str, options: tuple[str, ...]) -> dict[str, Any]:
    passed, failed = TestRun(True, "100% tests passed", "a.log"), TestRun(False, "1 tests failed", "b.log", ("parse",))
    verdict = Verdict((FailedTest(f"parse_{LONG}", 0, 5, 5), FailedTest("race", 1, 2, 3)), (f"src/{LONG}.o",), "Sorry.")
    return {
        "program": LONG,
        "targets": (
            TargetSize("app", "program", "main", TextParts(6_000_000, 400), TextParts(5_000_000, 330)),
            TargetSize(f"lib{LONG}", "shared library", "main", TextParts(60_000), TextParts(60_100)),
            TargetSize("base", "static library", "part", TextParts(500), TextParts(400)),
        ),
        "tests": Tests((passed, failed), verdict),
        "costs": (Cost("training", 6000.0, 10_000.0, 80_000), Cost("build-default", 1.0, 2.0, 4)),
        "compilers": (clang, f"{clang}++"),
        "options": options,
        "notes": ("Every file is compiled at -Oz.", f"Left out: {LONG}/{LONG}.cpp."),
        "provenance": _PROVENANCE,
    }


def _measured(thousands: int) -> Measured:
    return Measured(Counts(instructions=1000 * thousands, l1_misses=thousands), 900 * thousands, 20_000_000 - thousands)


def _benchmark() -> dict[str, Any]:
    even, faster = WallTimes(Median(1.5, 1.4, 1.6), Median(1.0, 1.0, 1.0)), Median(0.9, 0.89, 0.92)
    return {
        **_shared(_PATH, ("-O2", f"-fprofile-use=/home/somebody/{LONG}/a b/program.profdata", "-mllvm", "-inline=5")),
        "metric": "instructions",
        "default": _measured(9_000_000),
        "profiled": _measured(8_100_000),
        "optimized": _measured(8_000_000),
        "functions": {_TREE.replace("VALUE", value): -1e6 for value in ("int", "long")},
        "wall": (even, even, WallTimes(faster, faster)),
    }


def sample_speed() -> BenchmarkResult:
    steps = (
        SpeedStep(f"-enable-load-pre=false -{LONG}", _measured(8_100_000), False),
        SpeedStep("12 inlining decisions", _measured(8_000_000), True),
    )
    return SpeedResult(
        **_benchmark(),
        bytes_per_percent=20_000.0,
        steps=steps,
        function_options=_options(),
        num_decisions=12,
        compiles=4000,
        hot_functions=7,
    )


def sample_size_at_speed() -> BenchmarkResult:
    steps = tuple(ColdStep(cold, _measured(8_000_000 + 10**6 * k)) for k, cold in enumerate((0.0, 0.001, 0.02)))
    return SizeAtSpeedResult(**_benchmark(), steps=steps, kept=0.001, default_checked=None)
