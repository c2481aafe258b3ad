"""Tables and files about searches."""

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from compiler_opt.files import write_text
from compiler_opt.report.formatting import bytes_text, count_text
from compiler_opt.report.table import Cell, Change, Table, csv_text
from compiler_opt.search.program_search import SearchResult

DECISIONS_FILE, MODULES_FILE, CURVE_FILE = "decisions.json", "modules.csv", "curve.csv"
_HISTORY_STEPS = 40


def write(result: SearchResult, folder: Path) -> None:
    """Writes a search's decision file, its modules and its curve into a folder; raises OutputError if it cannot."""
    result.decisions.save(folder / DECISIONS_FILE)
    write_text(folder / MODULES_FILE, csv_text(_module_rows(result)))
    write_text(folder / CURVE_FILE, csv_text(_curve_rows(result)))


def history(results: Sequence[SearchResult]) -> list[dict[str, Any]]:
    """How the linked text of a corpus's projects changes over the compiles of all of them, in the form of a training's.

    Each entry has the projects after the same share of their compiles: the first one before any, the last one at the
    end. The last one's sizes are linked, and its compiles have those that confirmed them; on the way, sizes are what
    the searches had confirmed by compiling. `failures` is the number of modules of which a compile failed;
    `collect_cpu_s` is of the compiler, since the last entry.
    """
    cpu_s = sum(result.cpu_s for result in results) / _HISTORY_STEPS
    entries: list[dict[str, Any]] = []
    for step in range(_HISTORY_STEPS + 1):
        is_last = step == _HISTORY_STEPS
        base_bytes, changes, compiles = [], [], 0
        for result in results:
            before, after = linked(result)
            reached = result.compiles * step // _HISTORY_STEPS
            base_bytes.append(before)
            changes.append((after / before - 1 if before else 0.0) if is_last else result.after(reached))
            compiles += reached
        saved = sum(before * change for before, change in zip(base_bytes, changes, strict=True))
        entries.append(
            {
                "iteration": step,
                "compiles": compiles,
                "failures": sum(len(result.outcome.failures) for result in results) if is_last else 0,
                "collect_cpu_s": round(cpu_s, 3) if step else 0.0,
                "validation_mean": statistics.fmean(changes),
                "validation_total": saved / sum(base_bytes) if any(base_bytes) else 0.0,
            }
        )
    return entries


def terminal_table(results: Sequence[SearchResult]) -> Table:
    """A row for each program: linked text before and after, and what it took."""
    rows: list[list[Cell]] = []
    for result in results:
        before, after = linked(result)
        rows.append(
            [
                result.name,
                str(len(result.outcome.base.builds)),
                str(result.num_decisions),
                str(len(result.decisions)),
                bytes_text(before),
                bytes_text(after),
                Change(after / before - 1 if before else None),
                str(result.compiles),
                f"{result.cpu_s:.0f}",
            ]
        )
    head = ["program", "modules", "decisions", "changed", "linked", "with search", "change", "compiles", "CPU s"]
    before, after = (sum(linked(result)[k] for result in results) for k in (0, 1))
    total: list[Cell] = [
        "together",
        *(str(sum(int(str(row[k])) for row in rows)) for k in (1, 2, 3)),
        bytes_text(before),
        bytes_text(after),
        Change(after / before - 1 if before else None),
        *(str(sum(int(str(row[k])) for row in rows)) for k in (7, 8)),
    ]
    return Table(head, rows, total if len(rows) > 1 else None)


def remarks(result: SearchResult) -> list[str]:
    """What the user should know about a search besides its figures, one line each."""
    lines = [f"{result.name}: left out: {reason}" for _, reason in sorted(result.outcome.failures.items())]
    if result.confirmed.dropped:
        dropped = count_text(len(result.confirmed.dropped), "module")
        lines.append(f"{result.name}: the decisions of {dropped} were dropped, as they made no linked target smaller")
    return lines


def headroom_table(results: Iterable[tuple[SearchResult, str]], budgets: Sequence[int]) -> Table:
    """What searches win after so many compiles a module; each is given with its project's language."""
    rows: list[list[Cell]] = []
    for result, language in results:
        before, after = linked(result)
        num_modules = len(result.outcome.base.builds)
        rows.append(
            [
                result.name,
                language,
                str(num_modules),
                str(result.num_decisions),
                *(Change(result.after(budget * num_modules)) for budget in budgets),
                Change(after / before - 1 if before else None),
                f"{result.compiles / num_modules:.0f}",
            ]
        )
    head = ["project", "language", "modules", "decisions", *map(str, budgets), "linked", "compiles a module"]
    return Table(head, rows, num_text_columns=2)


def linked(result: SearchResult) -> tuple[int, int]:
    """Linked text of all targets, under the base policy and with the decisions."""
    return sum(result.confirmed.base_linked_bytes.values()), sum(result.confirmed.linked_bytes.values())


def _module_rows(result: SearchResult) -> Iterable[dict[str, Any]]:
    for number, name in enumerate(result.modules):
        if number in result.outcome.base.builds:
            yield {
                "module": name,
                "base_text_bytes": result.confirmed.base_object_bytes.get(number, ""),
                "text_bytes": result.confirmed.object_bytes.get(number, ""),
                "compiles": result.outcome.compiles.get(number, 0),
            }


def _curve_rows(result: SearchResult) -> Iterable[dict[str, Any]]:
    for each in result.outcome.curve:
        yield {
            "compiles": each.compiles,
            "cpu_s": round(each.cpu_s, 1),
            "change": round(each.change, 6),
            "change_composed": round(each.composed_change, 6),
        }
