"""What entry points print: names in it may hold anything."""

from collections.abc import Sequence

from compiler_opt.files import printable
from compiler_opt.tools.entry_point import one_line


def say(text: str) -> None:
    """Prints lines at once, also into a file; what cannot be printed in them is escaped."""
    print("\n".join(map(printable, text.split("\n"))), flush=True)


def first_of(heading: str, reasons: Sequence[str], shown: int = 10, *, remedy: str = "") -> list[str]:
    """A line for each of the first of some reasons, and one that says how many more there are.

    Args:
      heading: what each line begins with.
      reasons: all of them.
      shown: how many get a line.
      remedy: what the last line adds, such as where the others are.
    """
    lines = [one_line(f"{heading}: {reason}") for reason in reasons[:shown]]
    if len(reasons) > shown:
        lines.append(f"{heading}: {len(reasons) - shown} more{remedy}")
    return lines
