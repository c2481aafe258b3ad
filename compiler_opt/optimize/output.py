"""Writes the results of an optimisation: `targets.csv`, `summary.json`, terminal table, and a page for size."""

import dataclasses
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from compiler_opt.evaluation import plots
from compiler_opt.evaluation.history import History
from compiler_opt.evaluation.report_parts import change_headline, write_report
from compiler_opt.evaluation.statistics import relative_change
from compiler_opt.optimize.results import Measured, Result, SizeResult, SpeedResult, TargetSize
from compiler_opt.optimize.state import Cost
from compiler_opt.report import page
from compiler_opt.report.formatting import bytes_text, change_text, count_text, duration_text, signed_bytes_text
from compiler_opt.report.table import Cell, Change, Table, size_cells

_MAX_BARS = 40
_MAX_NAMED = 8


def write(result: Result, folder: Path, drivers: Path, history: History | None = None) -> Path:
    """Writes all files into a folder, see `report_parts.write_report`; returns the page's path, or the summary's.

    The page, for size only, shows how to use the drivers in the folder `drivers`, and a plot of the training if its
    history is given.
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
    html = None
    if isinstance(result, SizeResult):
        html = render(result, drivers, history)
    elif isinstance(result, SpeedResult):
        changes = result.functions.items()
        tables["functions.csv"] = [{"function": name, "change": round(change)} for name, change in changes]
    return write_report(folder, tables, result.to_json(), html)


def terminal_table(result: Result) -> str:
    """The result as plain text."""
    if isinstance(result, SpeedResult):
        table, more = _builds(result), [*_wall_lines(result), *_test_lines(result), *_search_lines(result)]
    else:
        table, more = _targets(result), _test_lines(result)
    cost = (
        f"cost: {duration_text(result.cost.wall_s)}, {result.cost.cpu_s:,.0f} CPU seconds, "
        f"{count_text(result.cost.compiles, 'compilation')}"
    )
    changes = _change_lines(result) if isinstance(result, SizeResult) else []
    return "\n".join([*table.lines(), "", *more, cost, *changes, *result.notes[1:]])


def _builds(result: SpeedResult) -> Table:
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


def _wall_lines(result: SpeedResult) -> Iterator[str]:
    for name, times in zip(("plain", "profile", "optimized"), result.wall, strict=False):
        change, low, high = (change_text(each - 1) for each in dataclasses.astuple(times.ratio))
        yield f"wall time, {name}: {times.seconds.value:.3f} s, {change} ({low} to {high}, 95%)"


def _search_lines(result: SpeedResult) -> Iterator[str]:
    yield (
        f"the build replays {count_text(result.num_decisions, 'decision')}; "
        f"hot: {count_text(result.hot_functions, 'function')}; "
        f"the search took {count_text(result.compiles, 'compilation')}"
    )
    if not result.kept:
        yield (
            "nothing is kept: no decisions were found that are better than the profile alone; no compilers are deployed"
        )


def _targets(result: Result) -> Table:
    sizes = size_cells(result.default_bytes, result.optimized_bytes, result.change)
    return Table(
        ["target", "kind", "-Oz", "optimized", "bytes", "change", "code"],
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
    """Sentences about a reused policy: what is new to it, and whether to retrain; empty for a newly trained one."""
    lines = []
    changes = result.changes
    if changes is not None:
        lines.append(
            f"{changes.decisions_new:.1%} of {count_text(changes.num_decisions, 'decision')} are new to the policy; of "
            f"{count_text(changes.num_modules, 'module')}, {len(changes.modules_added)} are new and "
            f"{len(changes.modules_changed)} have changed since training; {len(changes.modules_removed)} are gone."
        )
        if changes.modules_added:
            more = len(changes.modules_added) - _MAX_NAMED
            names = ", ".join(changes.modules_added[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
            lines.append(f"New: {names}.")
    if result.trained_change is not None:
        lines.append(f"When the policy was trained, the main targets changed by {change_text(result.trained_change)}.")
    if changes is not None or result.trained_change is not None or result.change >= 0:
        reason = result.retraining()
        lines.append(f"Retraining is advisable: {reason}." if reason else "The policy still holds.")
    return lines


def usage(drivers: Path) -> list[str]:
    """How to build with the policy."""
    c, cxx = (shlex.quote(str(drivers / name)) for name in ("mlgo-clang", "mlgo-clang++"))
    return [
        f"cmake -S SOURCE -B BUILD -DCMAKE_BUILD_TYPE=MinSizeRel -DCMAKE_C_COMPILER={c} -DCMAKE_CXX_COMPILER={cxx} "
        '-DCMAKE_C_FLAGS_MINSIZEREL="-Oz -DNDEBUG" -DCMAKE_CXX_FLAGS_MINSIZEREL="-Oz -DNDEBUG"',
        f"make CC={c} CXX={cxx} CFLAGS=-Oz CXXFLAGS=-Oz",
    ]


def render(result: SizeResult, drivers: Path, history: History | None = None) -> str:
    """The page; see `write`."""
    shown = result.main[:_MAX_BARS]
    smaller = sum(target.change < 0 for target in result.main)
    return page.render(
        "optimization.html",
        result=result,
        title=f"{result.program}: {change_text(result.change)} linked text",
        headline=change_headline(result.program, result.change, ("smaller", "bigger")),
        lead=_lead(result),
        cards=[
            ("Linked text", Change(result.change), "main targets together"),
            ("Targets smaller", f"{smaller} of {len(result.main)}", "main targets"),
            ("Modules", f"{result.num_modules:,}", f"{result.num_decisions:,} decisions"),
            ("Time", duration_text(result.cost.wall_s), "all steps"),
            ("CPU", duration_text(result.cost.cpu_s), "all processes"),
            ("Compilations", f"{result.cost.compiles:,}", "all steps"),
        ],
        plot=plots.change_bars(
            [target.name for target in shown], [target.change for target in shown], "change of linked text"
        ),
        targets=_targets(result),
        function_options=_function_options(result),
        tests=_test_lines(result),
        changes=_change_lines(result),
        training_curve=plots.training_curve(history),
        costs=_costs(result),
        drivers=drivers,
        usage=usage(drivers),
    )


def _lead(result: SizeResult) -> str:
    main = result.main
    sentences = [
        f"{count_text(len(main), 'target')} {'takes' if len(main) == 1 else 'take'} "
        f"{bytes_text(result.optimized_bytes)} bytes of linked text with the policy instead of "
        f"{bytes_text(result.default_bytes)}."
    ]
    if result.tests.runs:
        sentences.append(_tests_sentence(result))
    return " ".join(sentences)


def _tests_sentence(result: SizeResult) -> str:
    verdict = result.tests.verdict
    if verdict is None:
        return f"The project's own tests {'pass' if all(run.passed for run in result.tests.runs) else 'fail'}."
    if result.tests_broken:
        return f"The policy BREAKS {count_text(len(verdict.broken), 'test')} of the project: do not use this build."
    return "The policy breaks none of the project's own tests: those that fail are flaky, or fail without it, too."


def _function_options(result: SizeResult) -> Table | None:
    if not result.function_options:
        return None
    rows = [
        [each.options, f"{each.functions:,}", signed_bytes_text(-each.saved_bytes)] for each in result.function_options
    ]
    return Table(["options", "functions", "bytes of these"], rows)


def _costs(result: Result) -> Table:
    def row(cost: Cost) -> list[Cell]:
        return [cost.step, duration_text(cost.wall_s), f"{cost.cpu_s:,.0f}", f"{cost.compiles:,}"]

    return Table(["step", "time", "CPU s", "compilations"], [row(cost) for cost in result.costs], row(result.cost))
