"""The files that an evaluation leaves: `modules.csv`, `projects.csv`, `summary.json`, `report.html`; and the table."""

import csv
import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from compiler_opt.evaluation import score_report
from compiler_opt.evaluation.formatting import aligned, bytes_text, change_text, count_text
from compiler_opt.evaluation.history import History
from compiler_opt.evaluation.report import never_worse, render, score_name, worst_modules
from compiler_opt.evaluation.results import DEFAULT, NEVER_WORSE, Evaluation, Output
from compiler_opt.files import write_atomically
from compiler_opt.problems import problem as problems


def write(evaluation: Evaluation, directory: Path, history: History | None = None) -> Path:
    """Writes all files, each whole or not at all; returns the report's path.

    Raises:
      OutputError: one cannot be written; what stood there before is untouched.
    """
    files = {
        "modules.csv": csv_text(_module_rows(evaluation)),
        "projects.csv": csv_text(_project_rows(evaluation)),
        "summary.json": json.dumps(evaluation.summary(), indent=2) + "\n",
        "report.html": (render if _is_size(evaluation) else score_report.render)(evaluation, history),
    }
    for name, contents in files.items():
        write_atomically(directory / name, contents.encode("utf-8", "backslashreplace"))
    return directory / "report.html"


def csv_text(rows: Iterable[dict[str, Any]]) -> str:
    """Rows with the same keys, under a header."""
    rows = list(rows)
    buffer = io.StringIO()
    if rows:
        writer = csv.DictWriter(buffer, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return buffer.getvalue()


def _module_rows(evaluation: Evaluation) -> Iterable[dict[str, Any]]:
    for module in evaluation.modules:
        row: dict[str, Any] = {"module": module.name, "project": module.project, "language": module.language}
        for who in (DEFAULT, *evaluation.contenders):
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
        for who in (DEFAULT, *evaluation.contenders):
            row[f"{who}_linked_bytes"] = project.linked_bytes.get(who, "")
            row[f"{who}_object_bytes"] = project.object_bytes(who)
            row[f"{who}_score"] = f"{project.score(who):.3f}"
            if who != DEFAULT:
                row[f"{who}_failures"] = project.num_substituted(who)
        row["never_worse_linked_bytes"] = project.linked_bytes.get(NEVER_WORSE, "")
        yield row


def _is_size(evaluation: Evaluation) -> bool:
    return problems.load(evaluation.problem).is_size


def terminal_table(evaluation: Evaluation) -> str:
    """The result as plain text: a line per project, all together, and what should not be overlooked."""
    return _size_table(evaluation) if _is_size(evaluation) else score_report.terminal_table(evaluation)


def _size_table(evaluation: Evaluation) -> str:
    policy, baselines = evaluation.policy, evaluation.baselines
    header = ["project", "language", "modules", "default", policy, "linked", "objects", *baselines]
    rows = [
        [
            project.name,
            project.languages,
            str(len(project.modules)),
            *(
                bytes_text(project.linked_bytes[who]) if who in project.linked_bytes else "-"
                for who in (DEFAULT, policy)
            ),
            change_text(project.linked_change(policy)),
            change_text(project.object_change(policy)),
            *(change_text(project.linked_change(name), 1) for name in baselines),
        ]
        for project in evaluation.projects
    ]
    total = evaluation.totals[policy]
    together = [
        "together",
        "",
        str(len(evaluation.modules)),
        bytes_text(total.default_linked_bytes),
        bytes_text(total.linked_bytes),
        change_text(total.linked_change),
        change_text(total.objects.total.value),
        *(change_text(evaluation.totals[name].linked_change, 1) for name in baselines),
    ]
    scores, objects = total.scores, total.objects
    lines = aligned([header, *rows, together], num_text_columns=2, rules=(1, len(rows) + 1))
    lines += [
        "",
        f"{score_name(evaluation.problem)}: {change_text(scores.total.value)} "
        f"(95%: {change_text(scores.total.low)} to {change_text(scores.total.high)}); modules: {objects.wins} smaller, "
        f"{objects.ties} same, {objects.losses} bigger; {count_text(len(evaluation.failures()), 'failure')}",
    ]
    if smaller := never_worse(evaluation):
        lines.append(smaller)
    worst = worst_modules(evaluation)
    if worst:
        named = ", ".join(f"{module.name} {change_text(module.change(policy))}" for module in worst[:3])
        lines.append(f"grew most: {named}")
    return "\n".join(lines)
