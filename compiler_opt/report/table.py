"""Tables for the terminal (`Table.lines`), pages (the macro `table`), Markdown and CSV files, and pandas."""

import csv
import dataclasses
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from compiler_opt.errors import MissingPackageError
from compiler_opt.files import one_line
from compiler_opt.report.formatting import aligned, bytes_text, change_text, signed_bytes_text, terminal_columns


@dataclasses.dataclass(frozen=True)
class Change:
    """A relative change in a table; pages colour it.

    Attributes:
      value: -0.01 is one percent less; None if unknown.
      digits: number of decimals of the percentage.
      detail: what pages show below it, such as its interval.
    """

    value: float | None
    digits: int = 2
    detail: str = ""

    def __str__(self) -> str:
        return change_text(self.value, self.digits)


Cell = str | Change


def size_cells(before: int, after: int, change: float) -> list[Cell]:
    """Four cells: bytes before and after, their difference, and the relative change."""
    return [bytes_text(before), bytes_text(after), signed_bytes_text(after - before), Change(change)]


_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


@dataclasses.dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
      head: names of the columns.
      rows: rows with a cell for each column.
      total: a row that sums up `rows`; None for none.
      extra: rows below the total that it does not include.
      num_text_columns: number of columns, from the left, that hold text; the others hold numbers.
      wrapped: columns that may take several lines on a page.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    total: Sequence[Cell] | None = None
    extra: Sequence[Sequence[Cell]] = ()
    num_text_columns: int = 1
    wrapped: frozenset[int] = frozenset()

    def lines(self, width: int | None = None) -> list[str]:
        """The table as aligned plain text, with rules under the head and around the total.

        It is at most as wide as `width`, by default the terminal, where words are not longer; see `aligned`.
        """
        rows = [self.head, *self.rows]
        rules = [1]
        if self.total is not None:
            rules.append(len(rows))
            rows.append(self.total)
        if self.extra:
            rules.append(len(rows))
            rows += self.extra
        cells = [[str(cell) for cell in row] for row in rows]
        return aligned(cells, self.num_text_columns, rules, terminal_columns() if width is None else width)

    def records(self) -> list[dict[str, str]]:
        """The cells of each of `rows`, as text, by the names of their columns."""
        return [dict(zip(self.head, map(str, row), strict=True)) for row in self.rows]

    def markdown(self) -> list[str]:
        """The table as lines of Markdown; text from outside cannot break out of its cell."""
        rows = [*self.rows, *([self.total] if self.total is not None else []), *self.extra]
        rule = ["---" if column < self.num_text_columns else "---:" for column in range(len(self.head))]
        lines = [list(self.head), rule, *([_markdown_cell(str(cell)) for cell in row] for row in rows)]
        return [f"| {' | '.join(line)} |" for line in lines]


def csv_text(rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows with the same keys, as CSV with a header.

    Text that a spreadsheet would evaluate as a formula, such as a module named `=HYPERLINK(...)`, gets an apostrophe in
    front.
    """
    rows = [{name: _escaped(value) for name, value in row.items()} for row in rows]
    buffer = io.StringIO()
    if rows:
        writer = csv.DictWriter(buffer, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return buffer.getvalue()


def data_frame(rows: Iterable[Mapping[str, Any]]) -> Any:
    """Rows with the same keys, as a `pandas.DataFrame`; numbers stay numbers, and None is unknown.

    Raises:
      MissingPackageError: pandas is not installed.
    """
    try:
        import pandas
    except ImportError:
        message = "to_dataframe: needs the package pandas, which is not installed; pip install pandas"
        raise MissingPackageError(message) from None
    return pandas.DataFrame([dict(row) for row in rows])


def _markdown_cell(text: str) -> str:
    for special in "\\|<`[*_":
        text = text.replace(special, f"\\{special}")
    return one_line(text)


def _escaped(value: Any) -> Any:
    if not isinstance(value, str) or not value.startswith(_FORMULA_STARTS):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value
