"""Shared parts of the reports on evaluations, for size and for other scores, and on optimisations."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from compiler_opt.checked_values import Json, fact_text
from compiler_opt.evaluation import plots
from compiler_opt.evaluation.history import History
from compiler_opt.evaluation.results import (
    DEFAULT,
    NEVER_WORSE,
    PARTS,
    Evaluation,
    ModuleResult,
    Output,
    ProjectResult,
)
from compiler_opt.evaluation.statistics import CONFIDENCE, PROJECTS, Estimate
from compiler_opt.files import write_text
from compiler_opt.llvm.object_file import TextParts
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.report import page
from compiler_opt.report.formatting import change_text, count_text, interval_text
from compiler_opt.report.table import Cell, Change, Table, csv_text

SUMMARY_FILE = "summary.json"

_MAX_MODULES_NAMED = 10
_MAX_FAILURES_SHOWN = 200

Card = tuple[str, Cell, str]
"""Name, value and detail of a number at the top of a page."""


def write_report(
    folder: Path, tables: Mapping[str, Iterable[Mapping[str, Any]]], summary: Mapping[str, Any], html: str | None
) -> Path:
    """Writes CSV files (name -> rows), `summary.json` and `report.html`, each atomically; returns the last one's path.

    Raises:
      OutputError: a file cannot be written; existing files are untouched.
    """
    files = {name: csv_text(rows) for name, rows in tables.items()}
    files[SUMMARY_FILE] = json.dumps(summary, indent=2) + "\n"
    if html is not None:
        files["report.html"] = html
    for name, contents in files.items():
        write_text(folder / name, contents)
    return folder / name


def module_rows(evaluation: Evaluation) -> Iterable[dict[str, Any]]:
    """Rows of `modules.csv`; cells of failed compilations are empty."""
    for module in evaluation.modules:
        row: dict[str, Any] = {"module": module.name, "project": module.project, "language": module.language}
        for who in (DEFAULT, *evaluation.policies):
            output: Output | None = module.outputs.get(who)
            row[f"{who}_text_bytes"] = output.text_bytes if output else ""
            row |= {f"{who}_{part}_bytes": getattr(output.text, part) if output else "" for part in PARTS}
            row[f"{who}_score"] = f"{output.score:.3f}" if output else ""
            row[f"{who}_decisions"] = output.num_decisions if output else ""
            row[f"{who}_cpu_s"] = f"{output.cpu_s:.4f}" if output else ""
            if who != DEFAULT:
                row[f"{who}_failure"] = module.failures.get(who, "")
        yield row


def project_rows(evaluation: Evaluation) -> Iterable[dict[str, Any]]:
    """Rows of `projects.csv`."""
    for project in evaluation.projects:
        row: dict[str, Any] = {
            "project": project.name,
            "languages": project.languages,
            "language": project.language,
            "modules": len(project.modules),
            "excluded": len(project.excluded),
        }
        for who in (DEFAULT, *evaluation.policies):
            row |= linked_cells(project.linked.get(who), f"{who}_linked")
            row[f"{who}_object_bytes"] = project.object_bytes(who)
            row[f"{who}_score"] = f"{project.score(who):.3f}"
            if who != DEFAULT:
                row[f"{who}_failures"] = project.num_substituted(who)
        yield row | linked_cells(project.linked.get(NEVER_WORSE), "never_worse_linked")


def linked_cells(linked: TextParts | None, column: str) -> dict[str, Any]:
    """Linked bytes, together and of each part, empty if there are none; `column` begins the columns' names."""
    sizes = {"": linked.total, **{f"_{part}": getattr(linked, part) for part in PARTS}} if linked is not None else {}
    return {f"{column}{part}_bytes": sizes.get(part, "") for part in ("", *(f"_{part}" for part in PARTS))}


def evaluation_page(
    template: str, evaluation: Evaluation, history: History | None, *, cards: Sequence[Card], **values: object
) -> str:
    """Renders the page of an evaluation by a template that extends `evaluation.html`, with other values for it.

    The history of the training is plotted if it is given; a card with the failures is added to `cards`.
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
        training_curve=plots.training_curve(history),
        num_decisions=sum(module.output(policy).num_decisions for module in evaluation.modules),
        failures=Table(["policy", "where", "reason"], rows, num_text_columns=3, wrapped=frozenset({1, 2})),
        num_failures=len(failures),
        **values,
    )


def policy_facts(weights: NetworkWeights) -> dict[str, str]:
    """How a policy was made, for the facts of a page."""
    return {f"Policy: {key.replace('_', ' ')}": fact_text(_named(value)) for key, value in weights.metadata.items()}


def _named(value: Json) -> Json:
    """A value whose fields have names for readers, such as `num modules`; other keys, such as targets, are kept."""
    if not isinstance(value, Mapping):
        return value
    is_field = re.compile("[a-z]+(_[a-z]+)+").fullmatch
    return {name.replace("_", " ") if is_field(name) else name: _named(each) for name, each in value.items()}


def change_headline(what: str, change: float, words: tuple[str, str], reference: str = "the compiler's default") -> str:
    """A relative change as a sentence; the words for less and more are such as `smaller` and `bigger`."""
    if change_text(change) == change_text(0):
        return f"{what} is the same as with {reference}"
    return f"{what} is {change_text(abs(change))[1:]} {words[0 if change < 0 else 1]} than with {reference}"


def estimate_card(name: str, estimate: Estimate, sample: str = PROJECTS) -> Card:
    """A card with a change and its confidence interval, or why there is none."""
    return name, Change(estimate.value), _interval(estimate, sample)


def estimate_text(estimate: Estimate, what: str = f"{CONFIDENCE:.0%} interval: ", sample: str = PROJECTS) -> str:
    """A change with its confidence interval, or why there is none, for the terminal.

    `what` comes before the bounds; without it, as in a column of intervals, only the sample is named if there is none.
    """
    if not estimate.has_interval:
        return f"{change_text(estimate.value)} ({_interval(estimate, sample) if what else sample})"
    return f"{change_text(estimate.value)} ({what}{_interval(estimate, sample)})"


def estimate_cell(estimate: Estimate, sample: str = PROJECTS) -> Change:
    """A change with its confidence interval, or why there is none, for a table."""
    return Change(estimate.value, detail=_interval(estimate, sample))


def _interval(estimate: Estimate, sample: str) -> str:
    if not estimate.has_interval:
        return f"no interval: {sample}"
    if change_text(estimate.low) == change_text(estimate.high):
        return "the same in all"
    return interval_text(estimate.low, estimate.high)


def project_table(
    evaluation: Evaluation, head: Sequence[str], cells: Callable[[ProjectResult], list[Cell]], total: list[Cell]
) -> Table:
    """A row for each project and one for all together, with the columns of `head` after language and modules.

    `cells` returns a project's cells in these columns; `total` has the cells of all projects together.
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
