"""Reports an explanation: `decisions.csv`, `functions.csv`, `summary.json`, `report.html`, and the terminal's text."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from compiler_opt.evaluation.attribution import DecisionChange
from compiler_opt.evaluation.explain import Explanation, ProjectExplanation
from compiler_opt.evaluation.report_parts import write_report
from compiler_opt.evaluation.statistics import relative_change
from compiler_opt.report import page
from compiler_opt.report.formatting import bytes_text, change_text, count_text, signed_bytes_text
from compiler_opt.report.table import Cell, Change, Table, size_cells

_MAX_ROWS = 20
_MAX_PAGE_ROWS = 200
_MAX_NAME = 60


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
            "linked_bytes": "" if decision.linked_bytes is None else decision.linked_bytes,
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
                "linked_bytes": project.linked_bytes,
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
    change = _linked_change(explanation.projects)
    return page.render(
        "explanation.html",
        title=f"{second} against {first}: {change_text(change)} linked text",
        explanation=explanation,
        first=first,
        second=second,
        cards=_cards(explanation, change),
        projects=_projects(explanation),
        functions=_functions(explanation, _MAX_PAGE_ROWS),
        decisions=_decisions(explanation, _MAX_PAGE_ROWS),
        has_measured=any(decision.linked_bytes is not None for _, decision in explanation.decisions()),
        failures=Table(["where", "reason"], list(explanation.failures.items()), num_text_columns=2),
    )


def _cards(explanation: Explanation, change: float | None) -> list[tuple[str, Cell, str]]:
    attributions = [project.attribution for project in explanation.projects]
    differing = sum(attribution.num_differing for attribution in attributions)
    num_decisions = sum(project.num_decisions for project in explanation.projects)
    num_functions = sum(len(attribution.functions) for attribution in attributions)
    return [
        ("Linked text", Change(change), "all projects together"),
        ("Decisions that differ", f"{differing:,}", f"of {num_decisions:,}"),
        ("Functions that differ", f"{num_functions:,}", "in size"),
    ]


def _linked_change(projects: Iterable[ProjectExplanation]) -> float | None:
    linked = [project.linked_bytes for project in projects if project.linked_bytes is not None]
    if not linked:
        return None
    return relative_change(sum(before for before, _ in linked), sum(after for _, after in linked))


def _projects(explanation: Explanation) -> Table:
    first, second = explanation.policies
    rows: list[list[Cell]] = []
    for project in explanation.projects:
        sizes: list[Cell] = ["", "", "", Change(None)]
        if project.linked_bytes is not None:
            sizes = size_cells(*project.linked_bytes, relative_change(*project.linked_bytes))
        functions = _rounded(project.attribution.change)
        unattributed = _rounded(project.attribution.unattributed_bytes)
        differing = f"{project.attribution.num_differing:,} of {project.num_decisions:,}"
        rows.append([project.name, *sizes, functions, unattributed, differing])
    head = ["project", first, second, "bytes", "change", "in functions", "unattributed", "decisions that differ"]
    return Table(head, rows)


def _functions(explanation: Explanation, limit: int) -> Table:
    first, second = explanation.policies
    rows = [
        [
            _cut(explanation.name(function.name)),
            project,
            bytes_text(function.first_bytes),
            bytes_text(function.second_bytes),
            _rounded(function.change),
            str(len(function.decisions)),
        ]
        for project, function in explanation.functions()[:limit]
    ]
    return Table(["function", "project", first, second, "bytes", "decisions"], rows, num_text_columns=2)


def _decisions(explanation: Explanation, limit: int) -> Table:
    decisions = explanation.decisions()
    measured = any(decision.linked_bytes is not None for _, decision in decisions)
    rows = []
    for project, decision in decisions[:limit]:
        row = [
            f"{_cut(explanation.name(decision.site.callee))} into {_cut(explanation.name(decision.site.caller))}"
            + (f" (call {decision.site.ordinal + 1})" if decision.site.ordinal else ""),
            project,
            f"{_action(decision.first)} -> {_action(decision.second)}",
            decision.kind,
            _modules_text(decision),
            _rounded(decision.change),
        ]
        if measured:
            row.append("" if decision.linked_bytes is None else signed_bytes_text(decision.linked_bytes))
        rows.append(row)
    head = ["callee into caller", "project", "decision", "attribution", "where", "bytes"]
    return Table(head + (["measured"] if measured else []), rows, num_text_columns=5, wrapped=frozenset({0, 4}))


def _modules_text(decision: DecisionChange) -> str:
    first, more = decision.modules[0], len(decision.modules) - 1
    return first + (f" and {count_text(more, 'module')} more" if more else "")


def _action(inlined: bool | None) -> str:
    return {True: "inlined", False: "kept", None: "no such call"}[inlined]


def _rounded(num_bytes: float) -> str:
    return signed_bytes_text(round(num_bytes))


def _cut(name: str) -> str:
    return name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 3]}..."
