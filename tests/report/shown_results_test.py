"""`print(result)` shows the table that its command prints, and `repr(result)` is one line."""

import dataclasses
from typing import Any

import pytest

from compiler_opt.evaluation import report
from compiler_opt.optimize import output
from compiler_opt.report.formatting import MINUS
from compiler_opt.search import report as search_report
from tests.report.sample_pages import (
    sample_comparison,
    sample_evaluation,
    sample_optimization,
    sample_search,
    sample_size_at_speed,
    sample_speed,
)

OF_PROGRAMS: tuple[Any, ...] = (sample_optimization(), sample_speed(), sample_size_at_speed())


def test_what_is_printed_is_the_table_of_the_command() -> None:
    evaluation, comparison, found = sample_evaluation(), sample_comparison(), sample_search("program", 0)
    assert str(evaluation) == report.terminal_table(evaluation)
    assert str(comparison).splitlines() == comparison.summary().lines()
    table = search_report.terminal_table([found]).lines()
    assert str(found).splitlines() == table + search_report.remarks(found) and len(table) < len(str(found).splitlines())
    for result in OF_PROGRAMS:
        assert str(result) == output.terminal_table(result)


@pytest.mark.parametrize("result", OF_PROGRAMS, ids=lambda result: type(result).__name__)
def test_an_optimization_in_one_line(result: Any) -> None:
    shown = repr(dataclasses.replace(result, program="app"))
    assert shown.startswith(f"{type(result).__name__}('app', ")
    assert "main target" in shown and len(shown) < 120 and shown.isprintable()


def test_other_results_in_one_line() -> None:
    evaluation, found = sample_evaluation(), sample_search("program", 0)
    # All projects together, 8,900,000 to 10,400,000 bytes instead of 10,000,000, with 110,000 or 120,000 bytes of data.
    change = sum(9_010_000 + 250_000 * number for number in range(7)) / (7 * 10_120_000) - 1
    percent = f"{MINUS}{-100 * change:.2f}%"
    assert repr(evaluation) == f"Evaluation('policy+options', 7 projects, 28 modules, linked text {percent})"
    assert percent in str(evaluation)
    # 8 instead of 9 MB; 9,000 compiles, and 100 that confirm.
    assert repr(found) == f"SearchResult('program', 2 modules, 9,100 compiles, linked text {MINUS}11.11%)"
    shown = repr(sample_comparison())
    assert shown.startswith("Comparison(ppo, evolution, ") and shown.endswith(": 8 of 13 runs complete)")


def test_what_was_not_linked_has_no_change() -> None:
    evaluation = sample_evaluation()
    project = dataclasses.replace(evaluation.projects[0], linked={})
    shown = repr(dataclasses.replace(evaluation, projects=(project,)))
    assert shown == "Evaluation('policy+options', 1 project, 4 modules, linked text \N{EN DASH})"
