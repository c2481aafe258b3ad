"""Writes the results of an optimisation for speed: `summary.json`, `functions.csv`, terminal table."""

from collections.abc import Sequence
from pathlib import Path

from compiler_opt.evaluation.statistics import relative_change
from compiler_opt.files import check_folder_writable, write_json, write_text
from compiler_opt.measure.wall_time import Median
from compiler_opt.optimize.speed import SpeedResult
from compiler_opt.report.formatting import change_text, count_text
from compiler_opt.report.table import Cell, Change, Table, csv_text


def write(result: SpeedResult, folder: Path) -> Path:
    """Writes all files into a folder; returns the path of the summary. Raises OutputError if it cannot."""
    check_folder_writable(folder)
    folder.mkdir(parents=True, exist_ok=True)
    rows = ({"function": symbol, "change": round(change)} for symbol, change in result.functions.items())
    write_text(folder / "functions.csv", csv_text(rows))
    summary = folder / "summary.json"
    write_json(summary, result.to_json())
    return summary


def terminal_table(result: SpeedResult) -> str:
    """The result as plain text."""
    builds = (result.default, result.profiled, result.optimized)
    rows = [
        _row("instructions", [build.counts.instructions for build in builds]),
        _row("estimated cycles", [build.counts.cycles for build in builds]),
        _row(f"{result.metric} without libraries", [build.own for build in builds]),
        _row("first-level misses", [build.counts.l1_misses for build in builds]),
        _row("last-level misses", [build.counts.ll_misses for build in builds]),
        _row("mispredicted branches", [build.counts.mispredicts for build in builds]),
        _row("bytes of text", [build.text_bytes for build in builds]),
    ]
    lines = [*Table(["benchmark", "plain", "profile", "change", "optimized", "change"], rows).lines(), ""]
    for name, times in zip(("plain", "profile", "optimized"), result.wall, strict=False):
        ratio = times.ratio
        change = Median(ratio.value - 1, ratio.low - 1, ratio.high - 1)
        lines.append(
            f"wall time, {name}: {times.seconds.value:.3f} s, {change_text(change.value)} "
            f"({change_text(change.low)} to {change_text(change.high)}, 95%)"
        )
    lines += [
        f"tests, {name}: {'passed' if run.passed else 'FAILED'} ({run.summary}; {run.log})"
        for name, run in zip(("plain", "optimized"), result.tests, strict=False)
    ]
    lines += result.verdict.lines() if result.verdict is not None else []
    lines.append(
        f"the build replays {count_text(result.num_decisions, 'decision')}; "
        f"hot: {count_text(result.hot_functions, 'function')}; "
        f"the search took {count_text(result.compiles, 'compilation')}"
    )
    if not result.kept:
        lines.append(
            "nothing is kept: no decisions were found that are better than the profile alone; no compilers are deployed"
        )
    return "\n".join(lines)


def _row(name: str, values: Sequence[int]) -> list[Cell]:
    plain, profiled, optimized = values
    changes = [Change(relative_change(plain, value)) for value in (profiled, optimized)]
    return [name, f"{plain:,}", f"{profiled:,}", changes[0], f"{optimized:,}", changes[1]]
