"""Tables as text, on a page and as CSV; names and facts as text."""

import csv
import io
import re

import pytest

from compiler_opt.checked_values import fact_text
from compiler_opt.report import page
from compiler_opt.report.formatting import MINUS, cxx_name, cxx_names
from compiler_opt.report.table import Change, Table, csv_text

TABLE = Table(
    ["project", "bytes", "change"],
    [["<b>", "1,000", Change(-0.0123)], ["c", "20", Change(None)]],
    ["together", "1,020", Change(0.5, digits=0, detail="+25.00% to +100.00%")],
    extra=[["left out", "1", Change(0.0)]],
)


def test_lines_are_aligned_with_rules_around_the_total() -> None:
    assert TABLE.lines() == [
        "project   bytes  change",
        "--------  -----  ------",
        f"<b>       1,000  {MINUS}1.23%",
        "c            20       \N{EN DASH}",
        "--------  -----  ------",
        "together  1,020    +50%",
        "--------  -----  ------",
        "left out      1   0.00%",
    ]


def test_markdown_keeps_its_columns() -> None:
    table = Table(["name", "bytes"], [["a|b\n*c* <d>", "1"]], ["together", "1"])
    assert table.markdown() == [
        "| name | bytes |",
        "| --- | ---: |",
        r"| a\|b \*c\* \<d> | 1 |",
        "| together | 1 |",
    ]


def test_a_page_escapes_text_and_colours_changes() -> None:
    name, size, change = (str(page.cell(value, column, TABLE)) for column, value in enumerate(TABLE.rows[0]))
    assert name == '<td class="text"><span class="fit">&lt;b&gt;</span></td>'
    assert size == "<td>1,000</td>"
    assert change == f'<td><span class="good">{MINUS}1.23%</span></td>'
    assert TABLE.total is not None
    assert str(page.cell(TABLE.total[2], 2, TABLE)) == (
        '<td><span class="bad">+50%</span><span class="range">+25.00% to +100.00%</span></td>'
    )


def test_text_that_is_a_formula_for_spreadsheets() -> None:
    values = ["=1+1", "+a", "-a", "@a", "\ta", "-1.5", "+3", -1.5, "a=1", ""]
    rows = csv.reader(io.StringIO(csv_text({"value": value, "more": 0} for value in values)))
    assert [row[0] for row in rows] == [
        "value",
        *("'=1+1", "'+a", "'-a", "'@a", "'\ta"),
        *("-1.5", "+3", "-1.5", "a=1", ""),
    ]


WIDE = Table(
    ["callee into caller", "where", "bytes", "decisions that differ"],
    [["clamp<...> into sum<...>", "src/" + 60 * "x", "1,000", "301 of 3,157"], ["f into g", "a.o", "20", "7 of 9"]],
    num_text_columns=2,
)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_wide_table_fits_and_loses_nothing(width: int) -> None:
    lines = WIDE.lines(width)
    assert max(map(len, lines)) <= width
    letters = sorted("".join("".join(map(str, row)) for row in [WIDE.head, *WIDE.rows]).replace(" ", ""))
    assert sorted("".join(line for line in lines if "--" not in line).replace(" ", "")) == letters


def test_columns_without_room_come_in_a_second_part() -> None:
    table = Table(["project", "before", "after"], [["shapes", "1,000,000,000", "2,000,000,000"]])
    assert table.lines(25) == [
        "project         before",
        "-------  -------------",
        "shapes   1,000,000,000",
        "",
        "project          after",
        "-------  -------------",
        "shapes   2,000,000,000",
    ]


def test_a_table_that_goes_to_no_terminal_has_120_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert 100 < max(map(len, Table(["name"], [[500 * "x"]]).lines())) <= 120


@pytest.mark.parametrize(
    ("name", "limit", "expected"),
    [
        ("int clamp<int>(int, int, int)", 60, "int clamp<int>(int, int, int)"),
        # The innermost arguments go first.
        ("std::vector<std::basic_string<char, traits>>::at(int)", 50, "std::vector<std::basic_string<...>>::at(int)"),
        ("a<b<c, dddddd>>::operator<<(int, long)", 30, "a<b<...>>::operator<<(...)"),
        ("a<b, c>::operator->(std::pair<int, long> const&) const", 40, "a<b, c>::operator->(...) const"),
        (40 * "x" + "::member", 20, "..." + 9 * "x" + "::member"),
        # Before a part of the member's own name goes, the return type does.
        ("std::enable_if<is<A>::value>::type std::swap<A, A>(A&, A&)", 24, "std::swap<...>(...)"),
        ("std::pair<int, long> (anonymous namespace)::" + 20 * "y" + "::f(int)", 34, "...::" + 20 * "y" + "::f(int)"),
    ],
)
def test_a_long_cxx_name_keeps_its_member(name: str, limit: int, expected: str) -> None:
    assert cxx_name(name, limit) == expected


def test_two_members_of_a_template_differ() -> None:
    template = "std::map<std::string, std::vector<std::pair<int, long>>, std::less<void>>"
    assert cxx_name(f"{template}::find(int)") != cxx_name(f"{template}::erase(int)")


def test_names_that_differ_look_different() -> None:
    template = (
        "std::map<std::vector<a<b>, VALUE>, c<d<e, f>, g<h>>>::find(std::map<std::string, i<j>>, k<m, n<o>, p<q>>)"
    )
    names = [template.replace("VALUE", value) for value in ("int", "long", "std::pair<int, long>")]
    shown = cxx_names([*names, "main"])
    assert len(set(shown.values())) == 4 and shown["main"] == "main"
    assert "int" in shown[names[0]] and "long" in shown[names[1]]
    assert len(cxx_names(names[:1])[names[0]]) <= 60


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("with --never_worse, or -Oz (-x=1)", ["--never_worse", "-Oz", "-x=1"]),
        ("well-known names-with-hyphens and - alone, \N{MINUS SIGN}5%", []),
    ],
)
def test_options_stay_whole(text: str, kept: list[str]) -> None:
    shown = str(page.options(text))
    assert re.findall('<span class="option">(.*?)</span>', shown) == kept
    assert re.sub("<.*?>", "", shown) == text
    assert "<b>" not in page.options("<b> --flag")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (
            {"seed-1": {"seed": 1, "iterations": 40}, "seed-2": {"seed": 2}},
            "seed-1 (seed 1, iterations 40), seed-2 seed 2",
        ),
        (["a", "b"], "a, b"),
        ({"projects": ["a", "b"], "trained": True, "margin": 0.1 + 0.2}, "projects (a, b), trained yes, margin 0.3"),
        (None, "none"),
        ("-Oz", "-Oz"),
    ],
)
def test_facts_are_no_python(value: object, text: str) -> None:
    assert fact_text(value) == text
