"""Reports an explanation: `decisions.csv`, `functions.csv`, `summary.json`, `report.html`, and the terminal's text."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from compiler_opt.evaluation.attribution import DecisionChange
from compiler_opt.evaluation.explain import Explanation, ProjectExplanation
from compiler_opt.evaluation.report_parts import change_headline, linked_cells, write_report
from compiler_opt.evaluation.results import PARTS
from compiler_opt.evaluation.statistics import relative_change
from compiler_opt.report import page
from compiler_opt.report.formatting import bytes_text, change_text, count_text, cxx_names, signed_bytes_text
from compiler_opt.report.table import Cell, Change, Table, size_cells

_MAX_ROWS = 20
_MAX_PAGE_ROWS = 200


def write(explanation: Explanation, folder: Path) -> Path:
    """Writes all files into a folder, see `report_parts.write_report`; returns the page's path."""
    tables = {"decisions.csv": decision_rows(explanation), "functions.csv": function_rows(explanation)}
    return write_report(folder, tables, to_json(explanation), render(explanation))


def decision_rows(explanation: Explanation) -> Iterable[dict[str, Any]]:
    """Rows of `decisions.csv`, the largest first."""
    for project, decision in explanation.decisions():
        yield {
            "project": project,
            "caller": explanation.name(decision.site.caller),
            "callee": explanation.name(decision.site.callee),
            "ordinal": decision.site.ordinal,
            "first": _action(decision.first),
            "second": _action(decision.second),
            "bytes": f"{decision.change:.2f}",
            "exact_bytes": f"{decision.exact_bytes:.2f}",
            "shared_bytes": f"{decision.shared_bytes:.2f}",
            **linked_cells(decision.linked, "linked"),
            "functions": decision.num_functions,
            "modules": len(decision.modules),
            "module": decision.modules[0],
            "caller_symbol": decision.site.caller,
            "callee_symbol": decision.site.callee,
            "body": f"{decision.site.body:016x}",
        }


def function_rows(explanation: Explanation) -> Iterable[dict[str, Any]]:
    """Rows of `functions.csv`, the largest change first."""
    for project, function in explanation.functions():
        yield {
            "project": project,
            "function": explanation.name(function.name),
            "first_bytes": f"{function.first_bytes:.2f}",
            "second_bytes": f"{function.second_bytes:.2f}",
            "bytes": f"{function.change:.2f}",
            "decisions": len(function.decisions),
            "modules": function.num_modules,
            "symbol": function.name,
        }


def to_json(explanation: Explanation) -> dict[str, Any]:
    """The explanation's totals as JSON values; the tables are in the CSV files."""
    first, second = explanation.policies
    return {
        "first": first,
        "second": second,
        "projects": [
            {
                "project": project.name,
                "modules": project.num_modules,
                "decisions": project.num_decisions,
                "decisions_differing": project.attribution.num_differing,
                "linked_bytes": None if project.linked is None else [parts.total for parts in project.linked],
                "linked_parts": dict(
                    zip(explanation.policies, map(dataclasses.asdict, project.linked or ()), strict=False)
                ),
                "functions_bytes": project.attribution.change,
                "unattributed_bytes": project.attribution.unattributed_bytes,
            }
            for project in explanation.projects
        ],
        "failures": dict(explanation.failures),
        "provenance": dict(explanation.provenance),
    }


def terminal_text(explanation: Explanation) -> str:
    """The explanation as plain text: projects, and the largest functions and decisions."""
    lines = [*_projects(explanation).lines()]
    for table, what in (
        (_functions(explanation, _MAX_ROWS), "functions"),
        (_decisions(explanation, _MAX_ROWS), "decisions"),
    ):
        if table.rows:
            lines += ["", f"{what}, largest change first:", *table.lines()]
    lines += ["", *(f"failed: {name}: {reason}" for name, reason in explanation.failures.items())]
    return "\n".join(lines).rstrip()


def render(explanation: Explanation) -> str:
    """The page."""
    first, second = explanation.policies
    change, code_change = (_linked_change(explanation.projects, part) for part in ("total", "code"))
    return page.render(
        "explanation.html",
        title=f"{second} against {first}: {change_text(change)} linked text",
        explanation=explanation,
        headline=_headline(explanation, change),
        first=first,
        second=second,
        cards=_cards(explanation, change, code_change),
        projects=_projects(explanation),
        functions=_functions(explanation, _MAX_PAGE_ROWS),
        decisions=_decisions(explanation, _MAX_PAGE_ROWS),
        has_measured=any(decision.linked is not None for _, decision in explanation.decisions()),
        failures=Table(["where", "reason"], list(explanation.failures.items()), wrapped=frozenset({0, 1})),
    )


def _headline(explanation: Explanation, change: float | None) -> str:
    first, second = explanation.policies
    if change is None:
        return f"{second} against {first}: nothing could be linked"
    return change_headline("Linked text", change, ("smaller", "bigger"), first)


def _cards(explanation: Explanation, change: float | None, code_change: float | None) -> list[tuple[str, Cell, str]]:
    attributions = [project.attribution for project in explanation.projects]
    differing = sum(attribution.num_differing for attribution in attributions)
    num_decisions = sum(project.num_decisions for project in explanation.projects)
    num_functions = sum(len(attribution.functions) for attribution in attributions)
    return [
        ("Linked text", Change(change), "all projects together"),
        ("Code among it", Change(code_change), "without constants and tables"),
        ("Decisions that differ", f"{differing:,}", f"of {num_decisions:,}"),
        ("Functions that differ", f"{num_functions:,}", "in size"),
    ]


def _linked_change(projects: Iterable[ProjectExplanation], part: str) -> float | None:
    """Change of a part of linked text, all projects together; None if none was linked."""
    linked = [[getattr(parts, part) for parts in project.linked] for project in projects if project.linked is not None]
    if not linked:
        return None
    return relative_change(sum(before for before, _ in linked), sum(after for _, after in linked))


def _projects(explanation: Explanation) -> Table:
    first, second = explanation.policies
    rows: list[list[Cell]] = []
    for project in explanation.projects:
        sizes: list[Cell] = ["", "", "", Change(None), *("" for _ in PARTS)]
        if project.linked is not None:
            before, after = (parts.total for parts in project.linked)
            changes = dataclasses.astuple(project.linked[1] - project.linked[0])
            sizes = [*size_cells(before, after, relative_change(before, after)), *map(signed_bytes_text, changes)]
        functions = _rounded(project.attribution.change)
        unattributed = _rounded(project.attribution.unattributed_bytes)
        differing = f"{project.attribution.num_differing:,} of {project.num_decisions:,}"
        rows.append([project.name, *sizes, functions, unattributed, differing])
    sizes_head = [first, second, "bytes", "change", *PARTS]
    return Table(["project", *sizes_head, "in functions", "unattributed", "decisions that differ"], rows)


def _functions(explanation: Explanation, limit: int) -> Table:
    first, second = explanation.policies
    shown = explanation.functions()[:limit]
    names = cxx_names(explanation.name(function.name) for _, function in shown)
    rows = [
        [
            names[explanation.name(function.name)],
            project,
            bytes_text(function.first_bytes),
            bytes_text(function.second_bytes),
            _rounded(function.change),
            str(len(function.decisions)),
        ]
        for project, function in shown
    ]
    return Table(
        ["function", "project", first, second, "bytes", "decisions"], rows, num_text_columns=2, wrapped=frozenset({0})
    )


def _decisions(explanation: Explanation, limit: int) -> Table:
    decisions = explanation.decisions()
    measured = any(decision.linked is not None for _, decision in decisions)
    shown = decisions[:limit]
    names = cxx_names(explanation.name(who) for _, each in shown for who in (each.site.callee, each.site.caller))
    rows = []
    for project, decision in shown:
        row = [
            " into ".join(names[explanation.name(who)] for who in (decision.site.callee, decision.site.caller))
            + (f" (call {decision.site.ordinal + 1})" if decision.site.ordinal else ""),
            project,
            f"{_action(decision.first)} -> {_action(decision.second)}",
            decision.kind,
            _modules_text(decision),
            _rounded(decision.change),
        ]
        if measured:
            added = decision.linked
            row += ["", ""] if added is None else [signed_bytes_text(count) for count in (added.total, added.code)]
        rows.append(row)
    head = ["callee into caller", "project", "decision", "attribution", "where", "bytes"]
    return Table(head + (["measured", "code"] if measured else []), rows, num_text_columns=5, wrapped=frozenset({0, 4}))


def _modules_text(decision: DecisionChange) -> str:
    first, more = decision.modules[0], len(decision.modules) - 1
    return first + (f" and {count_text(more, 'module')} more" if more else "")


def _action(inlined: bool | None) -> str:
    return {True: "inlined", False: "kept", None: "no such call"}[inlined]


def _rounded(num_bytes: float) -> str:
    return signed_bytes_text(round(num_bytes))
