"""The files that an evaluation leaves: `modules.csv`, `projects.csv`, `summary.json`, `report.html`; and the table."""

import csv
import io
import json
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from compiler_opt.evaluation import score_report, size_report
from compiler_opt.evaluation.history import History
from compiler_opt.evaluation.results import DEFAULT, NEVER_WORSE, Evaluation, Output
from compiler_opt.files import write_atomically

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def write(evaluation: Evaluation, directory: Path, history: History | None = None) -> Path:
    """Writes all files, each whole or not at all; returns the report's path.

    Raises:
      OutputError: one cannot be written; what stood there before is untouched.
    """
    files = {
        "modules.csv": csv_text(_module_rows(evaluation)),
        "projects.csv": csv_text(_project_rows(evaluation)),
        "summary.json": json.dumps(evaluation.summary(), indent=2) + "\n",
        "report.html": _report(evaluation).render(evaluation, history),
    }
    for name, contents in files.items():
        write_atomically(directory / name, contents.encode("utf-8", "backslashreplace"))
    return directory / "report.html"


def csv_text(rows: Iterable[dict[str, Any]]) -> str:
    """Rows with the same keys, under a header.

    Text that a spreadsheet would take for a formula (`=HYPERLINK(...)` as the name of a module) gets an apostrophe in
    front, which spreadsheets take for text; numbers stay as they are.
    """
    rows = [{name: _no_formula(value) for name, value in row.items()} for row in rows]
    buffer = io.StringIO()
    if rows:
        writer = csv.DictWriter(buffer, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return buffer.getvalue()


def _no_formula(value: Any) -> Any:
    if not isinstance(value, str) or not value.startswith(_FORMULA_STARTS):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def _module_rows(evaluation: Evaluation) -> Iterable[dict[str, Any]]:
    for module in evaluation.modules:
        row: dict[str, Any] = {"module": module.name, "project": module.project, "language": module.language}
        for who in (DEFAULT, *evaluation.policies):
            output: Output | None = module.outputs.get(who)
            row[f"{who}_text_bytes"] = output.text_bytes if output else ""
            row[f"{who}_score"] = f"{output.score:.3f}" if output else ""
            row[f"{who}_decisions"] = output.num_decisions if output else ""
            row[f"{who}_cpu_s"] = f"{output.cpu_s:.4f}" if output else ""
            if who != DEFAULT:
                row[f"{who}_failure"] = module.failures.get(who, "")
        yield row


def _project_rows(evaluation: Evaluation) -> Iterable[dict[str, Any]]:
    for project in evaluation.projects:
        row: dict[str, Any] = {
            "project": project.name,
            "languages": project.languages,
            "modules": len(project.modules),
            "excluded": len(project.excluded),
        }
        for who in (DEFAULT, *evaluation.policies):
            row[f"{who}_linked_bytes"] = project.linked_bytes.get(who, "")
            row[f"{who}_object_bytes"] = project.object_bytes(who)
            row[f"{who}_score"] = f"{project.score(who):.3f}"
            if who != DEFAULT:
                row[f"{who}_failures"] = project.num_substituted(who)
        row["never_worse_linked_bytes"] = project.linked_bytes.get(NEVER_WORSE, "")
        yield row


def _report(evaluation: Evaluation) -> types.ModuleType:
    """The report that puts first what the problem is about."""
    return size_report if evaluation.problem.is_size else score_report


def terminal_table(evaluation: Evaluation) -> str:
    """The result as plain text: a line per project, all together, and what should not be overlooked."""
    return _report(evaluation).terminal_table(evaluation)
