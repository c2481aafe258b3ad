"""A table, described once and shown on the terminal (`lines`) and on a page (the macro `table`)."""

import dataclasses
from collections.abc import Sequence

from compiler_opt.report.formatting import aligned, change_text


@dataclasses.dataclass(frozen=True)
class Change:
    """A relative change in a table; pages colour it.

    Attributes:
      value: -0.01 is one percent less; None where there is none.
      digits: of the percentage after the point.
      interval: its bounds, which pages show below it.
    """

    value: float | None
    digits: int = 2
    interval: tuple[float, float] | None = None

    def __str__(self) -> str:
        return change_text(self.value, self.digits)


Cell = str | Change


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of cells under a head.

    Attributes:
      head: names of the columns.
      rows: one cell for each column.
      total: the last row, set apart; None for a table without one.
      extra: rows below the total, which it leaves out.
      num_text_columns: how many columns from the left hold text; the others hold numbers.
      wrapped: which columns may take several lines on a page.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    total: Sequence[Cell] | None = None
    extra: Sequence[Sequence[Cell]] = ()
    num_text_columns: int = 1
    wrapped: frozenset[int] = frozenset()

    def lines(self) -> list[str]:
        """The table as aligned plain text, with rules under the head and around the total."""
        rows = [self.head, *self.rows]
        rules = [1]
        if self.total is not None:
            rules.append(len(rows))
            rows.append(self.total)
        if self.extra:
            rules.append(len(rows))
            rows += self.extra
        return aligned([[str(cell) for cell in row] for row in rows], self.num_text_columns, rules)
