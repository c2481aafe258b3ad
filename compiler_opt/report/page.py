"""Renders HTML pages from Jinja2 templates; everything that is not `Markup` is escaped.

A page is self-contained: it has no scripts and needs no other files.
"""

import itertools
import re
from pathlib import Path

import jinja2
from markupsafe import Markup

from compiler_opt.report import formatting
from compiler_opt.report.table import Cell, Change, Table

_OPTION = re.compile(r"((?<![^\s(])--?[a-zA-Z][^\s,;)]*)")


def render(template: str, **values: object) -> str:
    """Renders a template that extends `base.html`, with these values."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "bytes": formatting.bytes_text,
        "cell": cell,
        "count": formatting.count_text,
        "duration": formatting.duration_text,
        "options": options,
        "shown": _shown,
    }
    return environment.get_template(template).render(values)


def _change(value: float | None, digits: int) -> Markup:
    """A relative change, green if it is negative."""
    text = formatting.change_text(value, digits)
    side = "good" if text.startswith(formatting.MINUS) else "bad" if text.startswith("+") else "muted"
    return Markup('<span class="{}">{}</span>').format(side, text)


def _shown(value: Cell) -> Markup:
    """The content of a cell or card, with changes coloured."""
    return _change(value.value, value.digits) if isinstance(value, Change) else options(value)


def cell(value: Cell, column: int, table: Table) -> Markup:
    """A table's cell."""
    content = _shown(value)
    if isinstance(value, Change) and value.detail:
        content += Markup('<span class="range">{}</span>').format(value.detail)
    if column in table.wrapped:
        # Long text is a path or a compiler's message.
        return Markup('<td class="text"><code class="fit">{}</code></td>').format(content)
    if column < table.num_text_columns:
        return Markup('<td class="text"><span class="fit">{}</span></td>').format(content)
    return Markup("<td>{}</td>").format(content)


def options(text: str) -> Markup:
    """Text whose options, such as `--never_worse`, are not broken at hyphens."""
    words = _OPTION.split(text)  # every second one is an option
    shown = (Markup('<span class="option">{}</span>').format(word) for word in words[1::2])
    return Markup("").join(itertools.chain(*itertools.zip_longest(map(Markup.escape, words[::2]), shown, fillvalue="")))
