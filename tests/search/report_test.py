"""The course of searches over all compiles, in the form of a training's history."""

import pytest

from compiler_opt.policies.decisions import Decisions
from compiler_opt.report.formatting import MINUS
from compiler_opt.search.confirmation import Confirmed
from compiler_opt.search.program import Program
from compiler_opt.search.program_search import SearchResult
from compiler_opt.search.report import history, terminal_table
from compiler_opt.search.search_outcome import Progress, SearchOutcome


def _result(
    curve: list[Progress],
    linked: tuple[int, int],
    confirming: int,
    failures: dict[int, str] | None = None,
    plain_bytes: int | None = None,
) -> SearchResult:
    base, last = Program(()), curve[-1]
    found = SearchOutcome(base, base, [], {0: last.compiles}, last.cpu_s, curve, failures or {})
    plain = {"all": plain_bytes or linked[0]}
    confirmed = Confirmed({}, plain, {"all": linked[0]}, {"all": linked[1]}, {}, {}, frozenset(), confirming, 4.0)
    return SearchResult("project", [], Decisions({}), found, confirmed, 0, 1.0)


def test_projects_after_the_same_share_of_their_compiles() -> None:
    one = _result([Progress(40, 8.0, 1000, 940, 950), Progress(80, 16.0, 1000, 880, 890)], (2000, 1800), 20)
    other = _result([Progress(8, 2.0, 500, 500, 500)], (1000, 1000), 2, {3: "does not compile"})
    entries = history([one, other])
    assert entries[0] == {
        "iteration": 0,
        "compiles": 0,
        "failures": 0,
        "collect_cpu_s": 0.0,
        "validation_mean": 0.0,
        "validation_total": 0.0,
    }
    half = entries[len(entries) // 2]
    # 50 of the 100 compiles, after which 5% were confirmed; and 5 of the 10, before anything was.
    assert (half["compiles"], half["failures"]) == (50 + 5, 0)
    assert half["validation_mean"] == pytest.approx((-0.05 + 0) / 2)
    assert half["validation_total"] == pytest.approx(-0.05 * 2000 / 3000)
    last = entries[-1]
    # What is linked counts in the end: 10% instead of 11%.
    assert (last["compiles"], last["failures"]) == (80 + 20 + 8 + 2, 1)
    assert last["validation_mean"] == pytest.approx((-0.1 + 0) / 2)
    assert last["validation_total"] == pytest.approx(-200 / 3000)
    assert sum(entry["collect_cpu_s"] for entry in entries) == pytest.approx(16 + 4 + 2 + 4)


def test_a_program_without_text_has_not_changed() -> None:
    (*_, last) = history([_result([Progress(4, 0.0, 0, 0, 0)], (0, 0), 2)])
    assert (last["validation_mean"], last["validation_total"]) == (0.0, 0.0)


def test_changes_are_against_plain_clang_wherever_a_search_starts() -> None:
    # A policy saves 10% of plain clang's 2,000 bytes; after 40 compiles, the search has saved 5% of what is left.
    result = _result([Progress(40, 8.0, 900, 855, 855)], (1800, 1700), 20, plain_bytes=2000)
    assert (result.after(0), result.after(40)) == pytest.approx((-0.1, -0.145))
    assert result.change == pytest.approx(-0.15)
    table = terminal_table([result])
    assert list(table.head[4:8]) == ["plain clang", "before search", "with search", "change"]
    assert list(map(str, table.rows[0][4:8])) == ["2,000", "1,800", "1,700", f"{MINUS}15.00%"]
    entries = history([result])
    assert entries[0]["validation_mean"] == entries[0]["validation_total"] == pytest.approx(-0.1)
    assert entries[-1]["validation_total"] == pytest.approx(-0.15)
    # From plain clang, there is nothing before the search.
    assert "before search" not in terminal_table([_result([Progress(4, 0.0, 9, 9, 9)], (10, 9), 2)]).head
