"""Writes the results of an optimisation for speed: `summary.json`, `functions.csv`, terminal table."""

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
    before, after = result.default, result.optimized
    rows = [
        _row("instructions", before.instructions, after.instructions),
        _row("estimated cycles", before.cycles, after.cycles),
        _row(f"{result.metric} without libraries", result.default_own, result.optimized_own),
        _row("first-level misses", before.l1_misses, after.l1_misses),
        _row("last-level misses", before.ll_misses, after.ll_misses),
        _row("mispredicted branches", before.mispredicts, after.mispredicts),
        _row("bytes of text", *result.text_bytes),
    ]
    lines = [*Table(["benchmark", "plain", "optimized", "change"], rows).lines(), ""]
    if result.wall is not None:
        ratio, seconds = result.wall[1].ratio, [each.seconds.value for each in result.wall]
        change = Median(ratio.value - 1, ratio.low - 1, ratio.high - 1)
        lines.append(
            f"wall time: {seconds[0]:.3f} s and {seconds[1]:.3f} s, {change_text(change.value)} "
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
        f"the search took {count_text(result.measurements, 'measurement')}"
    )
    if not result.kept:
        lines.append(
            "nothing is kept: no decisions were found that make this program better; no compilers are deployed"
        )
    return "\n".join(lines)


def _row(name: str, before: int, after: int) -> list[Cell]:
    return [name, f"{before:,}", f"{after:,}", Change(relative_change(before, after))]
