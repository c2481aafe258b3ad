"""Prints text that may contain names with control characters or bytes that are not UTF-8."""

from collections.abc import Sequence

from compiler_opt.files import one_line, printable


def echo(text: str) -> None:
    """Prints lines and flushes stdout; escapes unprintable characters."""
    print("\n".join(map(printable, text.split("\n"))), flush=True)


def first_of(heading: str, reasons: Sequence[str], max_shown: int = 10, *, remedy: str = "") -> list[str]:
    """A line for each of the first reasons, and one with the number of the others.

    Args:
      heading: the start of each line.
      reasons: all of them.
      max_shown: the number of reasons that get a line.
      remedy: appended to the last line, such as where to find the other reasons.
    """
    lines = [one_line(f"{heading}: {reason}") for reason in reasons[:max_shown]]
    if len(reasons) > max_shown:
        lines.append(f"{heading}: {len(reasons) - max_shown} more{remedy}")
    return lines
