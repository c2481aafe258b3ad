"""Writes the results of an optimisation: `targets.csv`, `summary.json`, the terminal's text, and a page."""

import dataclasses
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from compiler_opt.evaluation import plots
from compiler_opt.evaluation.history import History
from compiler_opt.evaluation.report_parts import change_headline, write_report
from compiler_opt.evaluation.statistics import relative_change
from compiler_opt.measure.attribution import METRICS
from compiler_opt.optimize.results import (
    BenchmarkResult,
    ChosenSet,
    ColdStep,
    Measured,
    Result,
    SizeAtSpeedResult,
    SizeResult,
    SpeedResult,
)
from compiler_opt.optimize.state import Cost
from compiler_opt.optimize.target_sizes import TargetSize
from compiler_opt.report import page
from compiler_opt.report.formatting import (
    bytes_text,
    change_text,
    command_text,
    count_text,
    cxx_names,
    duration_text,
    signed_bytes_text,
)
from compiler_opt.report.table import Cell, Change, Table, size_cells

_MAX_BARS = 40
_MAX_NAMED = 8


def write(result: Result, folder: Path, history: History | None = None) -> Path:
    """Writes all files into a folder, see `report_parts.write_report`; returns the page's path.

    The page has a plot of the training if its history is given.
    """
    rows = [
        {
            "target": target.name,
            "kind": target.kind,
            "role": target.role,
            "default_text_bytes": target.default_bytes,
            "optimized_text_bytes": target.optimized_bytes,
            **{f"default_{part}_bytes": size for part, size in dataclasses.asdict(target.default).items()},
            **{f"optimized_{part}_bytes": size for part, size in dataclasses.asdict(target.optimized).items()},
            "change": f"{target.change:.6f}",
        }
        for target in result.targets
    ]
    tables: dict[str, list[dict[str, Any]]] = {"targets.csv": rows}
    if isinstance(result, BenchmarkResult):
        changes = result.functions.items()
        tables["functions.csv"] = [{"function": name, "change": round(change)} for name, change in changes]
    return write_report(folder, tables, result.to_json(), render(result, history))


def terminal_table(result: Result) -> str:
    """The result as plain text."""
    table, lines = _targets(result), _test_lines(result)
    if isinstance(result, BenchmarkResult):
        table, lines = _builds(result), [*_wall_lines(result), *lines, *_how_lines(result)]
    cost = (
        f"cost: {duration_text(result.cost.wall_s)}, {result.cost.cpu_s:,.0f} CPU seconds, "
        f"{count_text(result.cost.compiles, 'compilation')}"
    )
    lines += [cost, *(_change_lines(result) if isinstance(result, SizeResult) else []), *result.notes[1:]]
    lines += [_outcome(result)] if isinstance(result, BenchmarkResult) else _nothing(result)
    return "\n".join([*table.lines(), "", *lines])


def _builds(result: BenchmarkResult) -> Table:
    def row(name: str, value: Callable[[Measured], int]) -> list[Cell]:
        plain, profiled, optimized = map(value, (result.default, result.profiled, result.optimized))
        changes = [Change(relative_change(plain, each)) for each in (profiled, optimized)]
        return [name, f"{plain:,}", f"{profiled:,}", changes[0], f"{optimized:,}", changes[1]]

    rows = [
        row("instructions", lambda build: build.counts.instructions),
        row("estimated cycles", lambda build: build.counts.cycles),
        row(f"{result.metric} without libraries", lambda build: build.own),
        row("first-level misses", lambda build: build.counts.l1_misses),
        row("last-level misses", lambda build: build.counts.ll_misses),
        row("mispredicted branches", lambda build: build.counts.mispredicts),
        row("bytes of text", lambda build: build.text_bytes),
    ]
    return Table(["benchmark", "plain", "profile", "change", "optimized", "change"], rows)


def _wall_lines(result: BenchmarkResult) -> Iterator[str]:
    for name, times in zip(("plain", "profile", "optimized"), result.wall, strict=False):
        change, low, high = (change_text(each - 1) for each in dataclasses.astuple(times.ratio))
        against = "" if name == "plain" else f", {change} ({low} to {high}, 95%)"
        yield f"wall time, {name}: {times.seconds.value:.3f} s{against}"


def _how_lines(result: BenchmarkResult) -> list[str]:
    if isinstance(result, SizeAtSpeedResult):
        return _steps(result).lines()
    assert isinstance(result, SpeedResult)
    where = count_text(result.hot_functions, "hot function")
    how = count_text(result.compiles, "compilation")
    searched = f"search: {count_text(result.num_decisions, 'decision')} in {where}, found by {how}"
    return [*_tried(result).lines(), *([searched] if result.compiles else [])]


def _tried(result: SpeedResult) -> Table:
    """What was tried on top of the profile; each row but the first is with all that is kept above it."""

    def row(name: str, kept: str, build: Measured) -> list[Cell]:
        plain = result.default
        pairs = (
            (plain.counts.instructions, build.counts.instructions),
            (plain.counts.cycles, build.counts.cycles),
            (plain.text_bytes, build.text_bytes),
        )
        return [name, kept, *(Change(relative_change(*pair)) for pair in pairs)]

    rows = [row("the profile alone", "", result.profiled)]
    rows += [row(step.name, "kept" if step.kept else "", step.measured) for step in result.steps]
    return Table(["what was tried", "", "instructions", "estimated cycles", "text"], rows, num_text_columns=2)


def _steps(result: SizeAtSpeedResult) -> Table:
    """The builds to choose from."""

    def row(step: ColdStep) -> list[Cell]:
        plain, build = result.default, step.measured
        pairs: tuple[tuple[int, int], ...] = (
            (plain.text_bytes, build.text_bytes),
            (plain.counts.instructions, build.counts.instructions),
            (plain.counts.cycles, build.counts.cycles),
        )
        if result.default_checked is not None and step.checked is not None:
            pairs += ((result.default_checked.instructions, step.checked.instructions),)
        kept = "kept" if step.cold == result.kept else ""
        name = f"the last {100 * step.cold:g}%" if step.cold else "nothing"
        return [name, kept, *(Change(relative_change(*pair)) for pair in pairs)]

    names = ["of what runs, for size", "", "text", "instructions", "estimated cycles"]
    if result.default_checked is not None:
        names.append("instructions of the check")
    return Table(names, list(map(row, result.steps)), num_text_columns=2)


def _outcome(result: BenchmarkResult) -> str:
    """A sentence about what is kept, and why."""
    if isinstance(result, SizeAtSpeedResult):
        if result.kept is None:
            return f"Kept: plain clang {result.options[0]}, since no smaller build is as fast."
        part = f", with functions that have the last {100 * result.kept:g}% of what runs compiled for size"
        return (
            f"Kept: the profile{part if result.kept else ' alone'}: "
            f"{change_text(result.change)} of linked text, and the benchmark is as fast."
        )
    assert isinstance(result, SpeedResult)
    if not result.kept:
        return "Kept: the profile alone, since nothing that was tried is better."
    share, added = result.gain
    return (
        f"Kept, on top of the profile: {', '.join(result.kept)}; without libraries, this changes {result.metric} by "
        f"{change_text(share)} of the plain build's, where a percent counts as {result.bytes_per_percent:,.0f} bytes, "
        f"and text by {signed_bytes_text(added)} bytes."
    )


def _nothing(result: Result) -> list[str]:
    """A sentence if nothing is gained."""
    if result.change < 0:
        return []
    return ["Nothing is saved: the main targets are no smaller than with plain clang."]


def _targets(result: Result) -> Table:
    sizes = size_cells(result.default_bytes, result.optimized_bytes, result.change)
    return Table(
        ["target", "kind", f"clang {result.options[0]}", "optimized", "bytes", "change", "code"],
        [_target(result, target) for target in result.main],
        ["together", "", *sizes, Change(result.code_change())],
        extra=[_target(result, target) for target in result.targets if target.role != "main"],
        num_text_columns=2,
    )


def _target(result: Result, target: TargetSize) -> list[Cell]:
    role = "" if target.role == "main" else f" ({target.role})"
    sizes = size_cells(target.default_bytes, target.optimized_bytes, target.change)
    return [target.name, target.kind + role, *sizes, Change(result.code_change([target]))]


def _test_lines(result: Result) -> list[str]:
    runs = [
        f"tests, {name}: {'passed' if run.passed else 'FAILED'} ({run.summary}; {run.log})"
        for name, run in zip(("plain", "optimized"), result.tests.runs, strict=False)
    ]
    return runs + (result.tests.verdict.lines() if result.tests.verdict is not None else [])


def _change_lines(result: SizeResult) -> list[str]:
    """Sentences about what is reused: what is new to it, and whether it is outdated; empty if nothing is reused."""
    lines = []
    changes = result.changes
    if changes is not None:
        lines.append(
            f"{changes.decisions_new:.1%} of {count_text(changes.num_decisions, 'decision')} are new to the policy; of "
            f"{count_text(changes.num_modules, 'module')}, {len(changes.modules_added)} are new and "
            f"{len(changes.modules_changed)} have changed since; {len(changes.modules_removed)} are gone."
        )
        if changes.modules_added:
            more = len(changes.modules_added) - _MAX_NAMED
            names = ", ".join(changes.modules_added[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
            lines.append(f"New: {names}.")
    if result.earlier_change is not None:
        lines.append(f"In the earlier optimisation, the main targets changed by {change_text(result.earlier_change)}.")
    if reason := result.outdated():
        lines.append(f"It is advisable to optimise the program anew: {reason}.")
    elif lines:
        lines.append("What is reused still holds.")
    return lines


def usage(result: Result) -> list[str]:
    """Commands that build with what was found, each with a line for every setting."""
    build_type = "MinSizeRel" if result.options[0] == "-Oz" else "Release"
    options = shlex.join(result.options)
    compilers = dict(zip(("C", "CXX"), result.compilers, strict=True))
    cmake = [f"-DCMAKE_BUILD_TYPE={build_type}"]
    cmake += [f"-DCMAKE_{language}_COMPILER={path}" for language, path in compilers.items()]
    cmake += [f"-DCMAKE_{language}_FLAGS_{build_type.upper()}={options} -DNDEBUG" for language in compilers]
    make = [f"CC={result.compilers[0]}", f"CXX={result.compilers[1]}", f"CFLAGS={options}", f"CXXFLAGS={options}"]
    return [command_text("cmake -S SOURCE -B BUILD", cmake), command_text("make", make)]


def render(result: Result, history: History | None = None) -> str:
    """The page; see `write`."""
    if isinstance(result, BenchmarkResult):
        values = _benchmark_page(result)
    else:
        assert isinstance(result, SizeResult)
        values = _size_page(result)
    return page.render(
        result=result,
        reference=f"plain clang {result.options[0]}",
        tests=_test_lines(result),
        training_curve=plots.training_curve(history),
        costs=_costs(result),
        usage=usage(result),
        **values,
    )


def _size_page(result: SizeResult) -> dict[str, Any]:
    shown = result.main[:_MAX_BARS]
    smaller = sum(target.change < 0 for target in result.main)
    return {
        "template": "optimized_size.html",
        "title": f"{result.program}: {change_text(result.change)} linked text",
        "headline": change_headline(result.program, result.change, ("smaller", "bigger"), "plain clang -Oz"),
        "lead": _lead(result),
        "cards": [
            ("Linked text", Change(result.change), "main targets together"),
            ("Targets smaller", f"{smaller} of {len(result.main)}", "main targets"),
            ("Modules", f"{result.num_modules:,}", f"{result.num_decisions:,} decisions"),
            ("Time", duration_text(result.cost.wall_s), "all steps"),
            ("CPU", duration_text(result.cost.cpu_s), "all processes"),
            ("Compilations", f"{result.cost.compiles:,}", "all steps"),
        ],
        "plot": plots.change_bars(
            [target.name for target in shown], [target.change for target in shown], "change of linked text"
        ),
        "targets": _targets(result),
        "function_options": _function_options(result.function_options, "bytes of these"),
        "changes": _change_lines(result),
    }


def _benchmark_page(result: BenchmarkResult) -> dict[str, Any]:
    total = METRICS[result.metric]
    profiled, optimized = (
        relative_change(total(result.default.counts), total(build.counts))
        for build in (result.profiled, result.optimized)
    )
    reference = f"plain clang {result.options[0]}"
    title, headline = (
        f"{result.program}: {change_text(optimized)} {result.metric}",
        change_headline(
            f"{result.program}: the benchmark's cost in {result.metric}", optimized, ("lower", "higher"), reference
        ),
    )
    if isinstance(result, SizeAtSpeedResult):
        title = f"{result.program}: {change_text(result.change)} linked text at the same speed"
        headline = change_headline(result.program, result.change, ("smaller", "bigger"), reference)
    lead = [_outcome(result), *([_tests_sentence(result)] if result.tests.runs else [])]
    names = cxx_names(result.functions)
    changes = {names[name]: round(change) for name, change in result.functions.items()}
    functions = [[name, signed_bytes_text(change)] for name, change in changes.items() if change]
    wall = [f"{change_text(times.ratio.value - 1)}" for times in result.wall[-1:]]
    return {
        "template": "optimized_speed.html",
        "title": title,
        "headline": headline,
        "lead": " ".join(lead),
        "cards": [
            (result.metric.capitalize(), Change(optimized), "the whole benchmark"),
            ("With the profile alone", Change(profiled), result.metric),
            ("Linked text", Change(relative_change(result.default.text_bytes, result.optimized.text_bytes)), "main"),
            ("Wall time", wall[0] if wall else "not measured", "median of ratios" if wall else "nothing is kept"),
            ("Time", duration_text(result.cost.wall_s), "all steps"),
            ("Compilations", f"{result.cost.compiles:,}", "all steps"),
        ],
        "builds": _builds(result),
        "lines": [*_wall_lines(result)],
        **(_steps_values(result) if isinstance(result, SizeAtSpeedResult) else {"steps": None}),
        **(_tried_values(result) if isinstance(result, SpeedResult) else {"tried": None}),
        "functions": Table(["function", result.metric], functions, wrapped=frozenset({0})),
        "targets": _targets(result),
    }


def _tried_values(result: SpeedResult) -> dict[str, Any]:
    chosen = _function_options(result.function_options, f"{result.metric} of these")
    return {"tried": _tried(result), "function_options": chosen}


def _steps_values(result: SizeAtSpeedResult) -> dict[str, Any]:
    default, builds = result.default, [step.measured for step in result.steps]
    plot = plots.trade_off(
        [f"{100 * step.cold:g}%" for step in result.steps],
        [relative_change(default.text_bytes, build.text_bytes) for build in builds],
        [relative_change(default.counts.instructions, build.counts.instructions) for build in builds],
        ("change of linked text", "change of instructions"),
    )
    return {"steps": _steps(result), "plot": plot}


def _lead(result: SizeResult) -> str:
    main = result.main
    sentences = [
        f"{count_text(len(main), 'target')} {'takes' if len(main) == 1 else 'take'} "
        f"{bytes_text(result.optimized_bytes)} bytes of linked text with the policy instead of "
        f"{bytes_text(result.default_bytes)} with plain clang.",
        *_nothing(result),
    ]
    if result.tests.runs:
        sentences.append(_tests_sentence(result))
    return " ".join(sentences)


def _tests_sentence(result: Result) -> str:
    verdict = result.tests.verdict
    if verdict is None:
        return f"The project's own tests {'pass' if all(run.passed for run in result.tests.runs) else 'fail'}."
    if result.tests_broken:
        return f"The policy BREAKS {count_text(len(verdict.broken), 'test')} of the project: do not use this build."
    return "The policy breaks none of the project's own tests: those that fail are flaky, or fail without it, too."


def _function_options(sets: tuple[ChosenSet, ...], of_these: str) -> Table | None:
    if not sets:
        return None
    rows = [[each.options, f"{each.functions:,}", signed_bytes_text(-each.saved)] for each in sets]
    return Table(["options", "functions", of_these], rows)


def _costs(result: Result) -> Table:
    def row(cost: Cost) -> list[Cell]:
        return [cost.step, duration_text(cost.wall_s), f"{cost.cpu_s:,.0f}", f"{cost.compiles:,}"]

    return Table(["step", "time", "CPU s", "compilations"], [row(cost) for cost in result.costs], row(result.cost))
