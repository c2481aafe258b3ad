"""Tables and files about searches."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from compiler_opt.evaluation import plots
from compiler_opt.evaluation.report_parts import change_headline, write_report
from compiler_opt.evaluation.statistics import relative_change
from compiler_opt.files import write_text
from compiler_opt.report import page
from compiler_opt.report.formatting import bytes_text, change_text, command_text, count_text, duration_text
from compiler_opt.report.table import Cell, Change, Table, csv_text
from compiler_opt.search.program_search import SearchResult

DECISIONS_FILE, MODULES_FILE, CURVE_FILE = "decisions.json", "modules.csv", "curve.csv"
_HISTORY_STEPS = 40
_MAX_BARS = 40


def write(result: SearchResult, folder: Path) -> None:
    """Writes a search's decision file, its modules and its curve into a folder; raises OutputError if it cannot."""
    result.decisions.save(folder / DECISIONS_FILE)
    write_text(folder / MODULES_FILE, csv_text(_module_rows(result)))
    write_text(folder / CURVE_FILE, csv_text(_curve_rows(result)))


def write_page(
    results: Sequence[SearchResult], folder: Path, provenance: Mapping[str, str], deploy: Sequence[str]
) -> Path:
    """Writes `summary.json` and `report.html` about the searches of a corpus into a folder; returns the page's path.

    `provenance` has the conditions, as text, in order; `deploy` are flags of a command that deploys the decisions.

    Raises:
      OutputError: a file cannot be written.
    """
    programs = [
        {
            "program": result.name,
            "modules": len(result.outcome.base.builds),
            "decisions": result.num_decisions,
            "changed": len(result.decisions),
            "plain_linked_bytes": result.plain_bytes,
            "base_linked_bytes": result.base_bytes,
            "linked_bytes": result.linked_bytes,
            "compiles": result.compiles,
            "cpu_s": round(result.cpu_s, 3),
        }
        for result in results
    ]
    summary = {"programs": programs, "provenance": dict(provenance)}
    return write_report(folder, {}, summary, _page(results, provenance, deploy))


def _page(results: Sequence[SearchResult], provenance: Mapping[str, str], deploy: Sequence[str]) -> str:
    plain, linked = (sum(getattr(each, what) for each in results) for what in ("plain_bytes", "linked_bytes"))
    change = relative_change(plain, linked)
    changed, decided = sum(len(each.decisions) for each in results), sum(each.num_decisions for each in results)
    num_modules = sum(len(each.outcome.base.builds) for each in results)
    shown = results[:_MAX_BARS]
    programs = count_text(len(results), "program")
    return page.render(
        "search.html",
        title=f"Search: {change_text(change)} linked text",
        headline=change_headline("Linked text", change, ("smaller", "bigger"), "plain clang"),
        lead=(
            f"{programs} of {count_text(num_modules, 'module')} {'takes' if len(results) == 1 else 'take'} "
            f"{bytes_text(linked)} bytes of linked text with the decisions that were found instead of "
            f"{bytes_text(plain)} with plain clang."
        ),
        cards=[
            ("Linked text", Change(change), "all programs together, against plain clang"),
            ("Programs smaller", f"{sum(each.change < 0 for each in results)} of {len(results)}", "linked"),
            ("Decisions in the files", f"{changed:,}", f"of {decided:,}"),
            ("Compilations", f"{sum(each.compiles for each in results):,}", f"of {num_modules:,} modules"),
            ("CPU", duration_text(sum(each.cpu_s for each in results)), "of the compiler"),
            ("Time", duration_text(sum(each.wall_s for each in results)), "of the last call"),
        ],
        plot=plots.change_bars([each.name for each in shown], [each.change for each in shown], "change of linked text"),
        programs=terminal_table(results),
        remarks=[line for each in results for line in remarks(each)],
        deploy=command_text("compiler_opt deploy", deploy),
        provenance=provenance,
    )


def history(results: Sequence[SearchResult]) -> list[dict[str, Any]]:
    """How the linked text of a corpus's projects changes, against plain clang, over the compiles of all of them.

    It has the form of a training's history.

    Each entry has the projects after the same share of their compiles: the first one before any, the last one at the
    end. The last one's sizes are linked, and its compiles have those that confirmed them; on the way, sizes are what
    the searches had confirmed by compiling. `failures` is the number of modules of which a compile failed;
    `collect_cpu_s` is of the compiler, since the last entry.
    """
    cpu_s = sum(result.cpu_s for result in results) / _HISTORY_STEPS
    entries: list[dict[str, Any]] = []
    for step in range(_HISTORY_STEPS + 1):
        is_last = step == _HISTORY_STEPS
        changes, compiles = [], 0
        for result in results:
            reached = result.compiles * step // _HISTORY_STEPS
            changes.append(result.change if is_last else result.after(reached))
            compiles += reached
        plain_bytes = sum(result.plain_bytes for result in results)
        saved = sum(result.plain_bytes * change for result, change in zip(results, changes, strict=True))
        entries.append(
            {
                "iteration": step,
                "compiles": compiles,
                "failures": sum(len(result.outcome.failures) for result in results) if is_last else 0,
                "collect_cpu_s": round(cpu_s, 3) if step else 0.0,
                "validation_mean": statistics.fmean(changes),
                "validation_total": saved / plain_bytes if plain_bytes else 0.0,
            }
        )
    return entries


def terminal_table(results: Sequence[SearchResult]) -> Table:
    """A row for each program: linked text by plain clang and with the decisions, and what it took.

    Where a search starts from a policy, or with options, there is a column of the text before it.
    """
    starts = any(result.base_bytes != result.plain_bytes for result in results)

    def row(name: str, of: Sequence[SearchResult]) -> list[Cell]:
        plain, base, linked = (
            sum(getattr(each, what) for each in of) for what in ("plain_bytes", "base_bytes", "linked_bytes")
        )
        return [
            name,
            f"{sum(len(each.outcome.base.builds) for each in of):,}",
            f"{sum(each.num_decisions for each in of):,}",
            f"{sum(len(each.decisions) for each in of):,}",
            bytes_text(plain),
            *([bytes_text(base)] if starts else []),
            bytes_text(linked),
            Change(linked / plain - 1 if plain else None),
            f"{sum(each.compiles for each in of):,}",
            f"{sum(each.cpu_s for each in of):,.0f}",
        ]

    head = ["program", "modules", "decisions", "changed", "plain clang", *(["before search"] if starts else [])]
    head += ["with search", "change", "compiles", "CPU s"]
    rows = [row(result.name, [result]) for result in results]
    return Table(head, rows, row("together", results) if len(rows) > 1 else None)


def remarks(result: SearchResult) -> list[str]:
    """What the user should know about a search besides its figures, one line each."""
    lines = [f"{result.name}: left out: {reason}" for _, reason in sorted(result.outcome.failures.items())]
    if result.confirmed.dropped:
        dropped = count_text(len(result.confirmed.dropped), "module")
        lines.append(f"{result.name}: the decisions of {dropped} were dropped, as they made no linked target smaller")
    return lines


def headroom_table(results: Iterable[tuple[SearchResult, str]], budgets: Sequence[int]) -> Table:
    """What searches win against plain clang after so many compiles a module; each is given with its language."""
    rows: list[list[Cell]] = []
    for result, language in results:
        num_modules = len(result.outcome.base.builds)
        rows.append(
            [
                result.name,
                language,
                str(num_modules),
                str(result.num_decisions),
                *(Change(result.after(budget * num_modules)) for budget in budgets),
                Change(result.change),
                f"{result.compiles / num_modules:.0f}",
            ]
        )
    head = ["project", "language", "modules", "decisions", *map(str, budgets), "linked", "compiles a module"]
    return Table(head, rows, num_text_columns=2)


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
