"""Numbers as the report and the terminal show them."""

MINUS = "\N{MINUS SIGN}"


def change_text(change: float | None, digits: int = 2) -> str:
    """A relative change in percent with its sign, a real minus; no sign for what rounds to zero, a dash for None."""
    if change is None:
        return "\N{EN DASH}"
    text = f"{abs(100 * change):.{digits}f}%"
    if float(text[:-1]) == 0:
        return text
    return (MINUS if change < 0 else "+") + text


def bytes_text(count: float) -> str:
    """A number of bytes with thousands separators."""
    return f"{round(count):,}"


def signed_bytes_text(count: int) -> str:
    """A difference of bytes with its sign."""
    return f"{MINUS if count < 0 else '+' if count > 0 else ''}{abs(count):,}"


def duration_text(seconds: float) -> str:
    """A time that a person can grasp: `42 s`, `3 min 5 s`, `2 h 10 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def count_text(count: int, noun: str) -> str:
    """`1 module`, `2 modules`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
