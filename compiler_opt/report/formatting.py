"""Numbers and text as reports and the terminal show them."""

from collections.abc import Sequence

from compiler_opt.files import printable

MINUS = "\N{MINUS SIGN}"

_MAX_LABEL = 60


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


def plot_label(name: str) -> str:
    """A name without characters that Matplotlib cannot draw or takes for mathematics."""
    text = printable(name)
    return (text if len(text) <= _MAX_LABEL else f"{text[:_MAX_LABEL]}...").replace("$", r"\$")


def aligned(rows: Sequence[Sequence[str]], num_text_columns: int, rules: Sequence[int]) -> list[str]:
    """Aligns columns, text to the left and numbers to the right, with rules before the rows numbered `rules`."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for number, row in enumerate(rows):
        if number in rules:
            lines.append("  ".join("-" * width for width in widths))
        cells = (
            cell.ljust(width) if column < num_text_columns else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join(cells).rstrip())
    return lines
