"""Numbers and text as reports and the terminal show them."""

import collections
import itertools
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Collection, Iterable, Iterator, Sequence

from compiler_opt.files import printable

MINUS = "\N{MINUS SIGN}"

_MAX_LABEL = 60
_PIPED_COLUMNS = 120
_MIN_COLUMNS = 60
_MIN_TEXT = 20
"""Text columns are not made narrower."""

_GAP = "  "
_BRACKET = re.compile(r"operator *(?:\(\)|<=>|<<=|>>=|->\*|->|<<|>>|<=|>=|<|>)|[<>()]")
"""A bracket, or an operator's name, whose characters are none."""

_RETURN_TYPE = re.compile(r"(?:[^\s()<>]|<[^\s()<>]{0,3}>|\(anonymous namespace\))*(?<!operator) ")
"""A word before a name, with little but `...` in its brackets."""


def change_text(change: float | None, digits: int = 2) -> str:
    """A relative change in percent with its sign; without a sign if it rounds to zero; a dash for None."""
    if change is None:
        return "\N{EN DASH}"
    text = f"{abs(100 * change):.{digits}f}%"
    if float(text[:-1]) == 0:
        return text
    return (MINUS if change < 0 else "+") + text


def interval_text(low: float, high: float) -> str:
    """The bounds of a relative change."""
    return f"{change_text(low)} to {change_text(high)}"


def bytes_text(count: float) -> str:
    """A number of bytes with thousands separators."""
    return f"{round(count):,}"


def signed_bytes_text(count: int) -> str:
    """A difference of bytes with its sign."""
    return f"{MINUS if count < 0 else '+' if count > 0 else ''}{abs(count):,}"


def duration_text(seconds: float) -> str:
    """A duration: `42 s`, `3 min 5 s`, `2 h 10 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def count_text(count: int, noun: str) -> str:
    """`1 module`, `2 modules`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def plot_label(name: str, limit: int = _MAX_LABEL) -> str:
    """A name, with `...` instead of its middle if it is longer, without what Matplotlib takes for mathematics."""
    text = printable(name)
    if len(text) > limit:
        start = (limit - 3) // 2
        text = f"{text[:start]}...{text[len(text) - (limit - 3 - start) :]}"
    return text.replace("$", r"\$")


def command_text(start: str, words: Iterable[str]) -> str:
    """A shell command to copy, with a line for each of the words after its start."""
    return " \\\n  ".join([start, *map(shlex.quote, words)])


def cxx_name(name: str, limit: int = _MAX_LABEL) -> str:
    """A C++ name in at most `limit` characters, with `...` for arguments of templates and calls, the innermost first.

    A name that is still too long loses its return type, then its beginning, so its member remains.
    """
    while len(name) > limit and (found := [each for each in _brackets(name) if each[1] - each[0] > len("...")]):
        deepest = max(depth for _, _, depth in found)
        name = _without(name, [(start, end) for start, end, depth in found if depth == deepest], limit)
    while len(name) > limit and (return_type := _RETURN_TYPE.match(name)):
        name = name[return_type.end() :]
    if len(name) <= limit:
        return name
    end = name[len(name) - limit + len("...") :]
    scope = end.find("::")
    return f"...{end[scope:] if 0 <= scope < len(end) // 2 else end}"


def cxx_names(names: Iterable[str], limit: int = _MAX_LABEL) -> dict[str, str]:
    """C++ names, shortened; those that would look the same are longer than `limit`, until they differ."""
    left, shown = set(names), dict[str, str]()
    while left:
        short = {name: cxx_name(name, limit) for name in left}
        counts = collections.Counter(short.values())
        shown |= {name: text for name, text in short.items() if counts[text] == 1 or text == name}
        left -= shown.keys()
        limit *= 2
    return shown


def _without(name: str, arguments: list[tuple[int, int]], limit: int) -> str:
    """The name with `...` for as many of these arguments, the longest first, as it takes to reach the limit."""
    left, elided = len(name), []
    for start, end in sorted(arguments, key=lambda each: each[0] - each[1]):
        if left <= limit:
            break
        left -= end - start - len("...")
        elided.append((start, end))
    for start, end in sorted(elided, reverse=True):
        name = f"{name[:start]}...{name[end:]}"
    return name


def _brackets(name: str) -> Iterator[tuple[int, int, int]]:
    """Start, end and depth, from 1, of what is in pairs of `<>` and `()`."""
    opened: list[int] = []
    for match in _BRACKET.finditer(name):
        if match[0] in ("<", "("):
            opened.append(match.start())
        elif match[0] in (">", ")") and opened:
            yield opened.pop() + 1, match.start(), len(opened) + 1


def terminal_columns() -> int:
    """The width of the terminal, at least 60 columns; 120 if the output is no terminal."""
    if not sys.stdout.isatty():
        return _PIPED_COLUMNS
    return max(_MIN_COLUMNS, shutil.get_terminal_size((_PIPED_COLUMNS, 0)).columns)


def aligned(
    rows: Sequence[Sequence[str]], num_text_columns: int, rules: Sequence[int], width: int | None = None
) -> list[str]:
    """Aligns columns, text to the left and numbers to the right, with rules before the rows numbered `rules`.

    If there is a `width` that they exceed, long cells take several lines, and if that is not enough, the columns are
    shown in several parts, each of which begins with the first one.
    """
    full = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    # Names, in columns of text, break anywhere, others between words.
    least = [
        min(full[column], _MIN_TEXT)
        if column < num_text_columns
        else max((len(word) for row in rows for word in row[column].split()), default=0)
        for column in range(len(full))
    ]
    lines: list[str] = []
    for part in _parts(least, width or _line_width(full)):
        widths = {column: full[column] for column in part}
        while width and _line_width(widths.values()) > width and any(widths[k] > least[k] for k in part):
            widths[max((k for k in part if widths[k] > least[k]), key=widths.__getitem__)] -= 1
        lines += [""] if lines else []
        for number, row in enumerate(rows):
            if number in rules:
                lines.append(_GAP.join("-" * each for each in widths.values()))
            cells = [_wrapped(row[column], each) for column, each in widths.items()]
            for texts in itertools.zip_longest(*cells, fillvalue=""):
                padded = (
                    text.ljust(each) if column < num_text_columns else text.rjust(each)
                    for text, (column, each) in zip(texts, widths.items(), strict=True)
                )
                lines.append(_GAP.join(padded).rstrip())
    return lines


def _wrapped(cell: str, width: int) -> list[str]:
    return [cell] if len(cell) <= width else textwrap.wrap(cell, width, break_on_hyphens=False)


def _line_width(widths: Collection[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _parts(widths: Sequence[int], limit: int) -> list[list[int]]:
    """Columns by parts of a table, as many in each as there is room for; all parts have the first column."""
    parts = [[0]]
    for column in range(1, len(widths)):
        if len(parts[-1]) > 1 and _line_width([widths[k] for k in (*parts[-1], column)]) > limit:
            parts.append([0])
        parts[-1].append(column)
    return parts
