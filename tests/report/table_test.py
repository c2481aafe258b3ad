"""Tables as text, on a page and as CSV."""

import csv
import io

from compiler_opt.report import page
from compiler_opt.report.formatting import MINUS
from compiler_opt.report.table import Change, Table, csv_text

TABLE = Table(
    ["project", "bytes", "change"],
    [["<b>", "1,000", Change(-0.0123)], ["c", "20", Change(None)]],
    ["together", "1,020", Change(0.5, digits=0, interval=(0.25, 1.0))],
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
    assert name == '<td class="text">&lt;b&gt;</td>'
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
