"""What our HTML pages are made of: one file that needs nothing else; no script, no font, no image from anywhere."""

import html
import string
from collections.abc import Iterable, Sequence
from pathlib import Path

from compiler_opt.evaluation.formatting import change_text

_TEMPLATE = Path(__file__).with_name("page.html")

escape = html.escape


def whole(title: str, body: str) -> str:
    """A page.

    Args:
      title: plain text.
      body: HTML.
    """
    return string.Template(_TEMPLATE.read_text()).substitute(title=escape(title), body=body)


def colored(change: float | None, digits: int = 2) -> str:
    """A relative change, good when it is smaller."""
    text = change_text(change, digits)
    side = "good" if text.startswith("\N{MINUS SIGN}") else "bad" if text.startswith("+") else "muted"
    return f'<span class="{side}">{text}</span>'


def cards(values: Iterable[tuple[str, str, str]]) -> str:
    """Large numbers side by side: name (plain text), value and detail (HTML)."""
    return "".join(
        f'<div class="card"><div class="name">{escape(name)}</div><div class="value">{value}</div>'
        f'<div class="detail">{detail}</div></div>'
        for name, value, detail in values
    )


def table(head: Sequence[str], rows: Sequence[str], foot: str = "") -> str:
    """A table of rows of cells."""
    return (
        f'<div class="scroll"><table><thead>{"".join(f"<tr>{row}</tr>" for row in head)}</thead>'
        f"<tbody>{''.join(f'<tr>{row}</tr>' for row in rows)}</tbody>"
        f"{f'<tfoot><tr>{foot}</tr></tfoot>' if foot else ''}</table></div>"
    )


def cells(*values: str) -> str:
    """Table cells; the first is text."""
    return f'<td class="text">{values[0]}</td>' + "".join(f"<td>{value}</td>" for value in values[1:])
