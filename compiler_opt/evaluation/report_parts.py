"""Shared parts of the reports on evaluations, for size and for other scores, and on optimisations."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from compiler_opt.evaluation import plots
from compiler_opt.evaluation.history import History
from compiler_opt.evaluation.results import Evaluation, ModuleResult, ProjectResult
from compiler_opt.evaluation.statistics import CONFIDENCE, Estimate
from compiler_opt.files import write_text
from compiler_opt.report import page
from compiler_opt.report.formatting import change_text, count_text, interval_text
from compiler_opt.report.table import Cell, Change, Table, csv_text

_MAX_MODULES_NAMED = 10
_MAX_FAILURES_SHOWN = 200

Card = tuple[str, Cell, str]
"""Name, value and detail of a number at the top of a page."""


def write_report(
    folder: Path, tables: Mapping[str, Iterable[Mapping[str, Any]]], summary: Mapping[str, Any], html: str
) -> Path:
    """Writes CSV files, `summary.json` and `report.html`, each atomically; returns the path of the page.

    Args:
      folder: the folder to write into.
      tables: name of a CSV file -> its rows.
      summary: JSON values.
      html: the page.

    Raises:
      OutputError: a file cannot be written; existing files are untouched.
    """
    files = {name: csv_text(rows) for name, rows in tables.items()}
    files |= {"summary.json": json.dumps(summary, indent=2) + "\n", "report.html": html}
    for name, contents in files.items():
        write_text(folder / name, contents)
    return folder / "report.html"


def evaluation_page(
    template: str, evaluation: Evaluation, history: History | None, *, cards: Sequence[Card], **values: object
) -> str:
    """Renders the page of an evaluation.

    Args:
      template: a template that extends `evaluation.html`.
      evaluation: the results.
      history: the history of the training, to plot it.
      cards: the numbers at the top; failures are added.
      **values: other values of the template.
    """
    policy = evaluation.policy
    failures = evaluation.failures()
    rows = [[failure.policy, failure.where, failure.reason] for failure in failures[:_MAX_FAILURES_SHOWN]]
    num_failed = f"{evaluation.totals[policy].num_failures:,}"
    return page.render(
        template,
        evaluation=evaluation,
        confidence=f"{CONFIDENCE:.0%}",
        cards=[*cards, ("Failed compilations", num_failed, f"of {count_text(len(evaluation.modules), 'module')}")],
        training_curve=training_curve(history),
        num_decisions=sum(module.output(policy).num_decisions for module in evaluation.modules),
        failures=Table(["policy", "where", "reason"], rows, num_text_columns=3, wrapped=frozenset({1, 2})),
        num_failures=len(failures),
        **values,
    )


def training_curve(history: History | None) -> Markup | None:
    """The plot of a training's rewards; None if there are none."""
    return None if history is None or not history.reward.values else Markup(plots.training_curve(history))


def change_headline(what: str, change: float, words: tuple[str, str]) -> str:
    """A change as a sentence.

    Args:
      what: the subject, such as `Linked text`.
      change: the relative change.
      words: for less and more, such as `smaller` and `bigger`.
    """
    if change_text(change) == change_text(0):
        return f"{what} is the same as with the compiler's default"
    return f"{what} is {change_text(abs(change))[1:]} {words[0 if change < 0 else 1]} than with the default"


def estimate_card(name: str, estimate: Estimate) -> Card:
    """A card with a change and its confidence interval."""
    return name, Change(estimate.value), interval_text(estimate.low, estimate.high)


def estimate_text(estimate: Estimate) -> str:
    """A change with its confidence interval, for the terminal."""
    return f"{change_text(estimate.value)} ({CONFIDENCE:.0%} interval: {interval_text(estimate.low, estimate.high)})"


def project_table(
    evaluation: Evaluation, head: Sequence[str], cells: Callable[[ProjectResult], list[Cell]], total: list[Cell]
) -> Table:
    """A row for each project and one for all together.

    Args:
      evaluation: the results.
      head: names of further columns; the first are project, language and modules.
      cells: the cells of a project in these columns.
      total: the cells of all projects together.
    """
    rows = [
        [project.name, project.languages, str(len(project.modules)), *cells(project)] for project in evaluation.projects
    ]
    together = ["together", "", str(len(evaluation.modules)), *total]
    return Table(["project", "language", "modules", *head], rows, together, num_text_columns=2)


def most_changed(evaluation: Evaluation, amount: Callable[[ModuleResult], float]) -> list[ModuleResult]:
    """The ten modules with the largest amounts above 0, the largest first."""
    changed = [module for module in evaluation.modules if amount(module) > 0]
    return sorted(changed, key=lambda module: (-amount(module), module.name))[:_MAX_MODULES_NAMED]
