"""Writes the results of an evaluation: `modules.csv`, `projects.csv`, `summary.json`, `report.html`, terminal table."""

import json
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from compiler_opt.evaluation import score_report, size_report
from compiler_opt.evaluation.history import History
from compiler_opt.evaluation.results import DEFAULT, NEVER_WORSE, Evaluation, Output
from compiler_opt.files import write_text
from compiler_opt.report.table import csv_text


def write(evaluation: Evaluation, directory: Path, history: History | None = None) -> Path:
    """Writes all files, each atomically; returns the path of the report.

    Raises:
      OutputError: a file cannot be written; existing files are untouched.
    """
    files = {
        "modules.csv": csv_text(_module_rows(evaluation)),
        "projects.csv": csv_text(_project_rows(evaluation)),
        "summary.json": json.dumps(evaluation.summary(), indent=2) + "\n",
        "report.html": _report(evaluation).render(evaluation, history),
    }
    for name, contents in files.items():
        write_text(directory / name, contents)
    return directory / "report.html"


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
    """The report for the problem: size or another score."""
    return size_report if evaluation.problem.is_size else score_report


def terminal_table(evaluation: Evaluation) -> str:
    """The result as plain text: a table of projects and a summary."""
    return _report(evaluation).terminal_table(evaluation)
