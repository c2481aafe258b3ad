"""Tables of options and what they gain."""

import math
from collections.abc import Callable, Mapping, Sequence

from compiler_opt.pass_options.screening import Measured
from compiler_opt.report.table import Cell, Change, Table


def options_table(measured: Sequence[Measured], languages: Mapping[str, str], top: int | None = None) -> Table:
    """Options, those first that gain most in the mean of the languages; each language is the mean of its projects.

    Args:
      measured: at least one.
      languages: of the projects.
      top: how many to show; None for all.
    """
    names = sorted(set(languages.values()))
    ranked = sorted(measured, key=lambda each: (gain(each, languages), each.option))
    rows: list[list[Cell]] = []
    for each in ranked[:top]:
        changes = [each.text(project) for project in each.projects]
        rows.append(
            [
                each.option,
                *(Change(_mean(each.text, each, languages, name)) for name in names),
                *(Change(_mean(each.code, each, languages, name)) for name in names),
                Change(max(changes)),
                f"{sum(change < 0 for change in changes)}/{sum(change > 0 for change in changes)}",
                Change(each.cpu - 1, 0),
                str(len(each.failures)),
            ]
        )
    head = [
        "option",
        *(f"{name} text" for name in names),
        *(f"{name} code" for name in names),
        "worst",
        "smaller/larger",
        "CPU",
        "failed",
    ]
    return Table(head, rows)


def gain(measured: Measured, languages: Mapping[str, str]) -> float:
    """Relative change of text: the mean over languages of the mean over their projects; negative is smaller."""
    names = set(languages.values())
    return math.fsum(_mean(measured.text, measured, languages, name) for name in names) / len(names)


def _mean(change: Callable[[str], float], measured: Measured, languages: Mapping[str, str], language: str) -> float:
    changes = [change(project) for project in measured.projects if languages[project] == language]
    return math.fsum(changes) / len(changes) if changes else 0.0
