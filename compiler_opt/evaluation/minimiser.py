"""Finds the few of many items that are to blame."""

import itertools
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def minimised(
    items: Sequence[T], holds: Callable[[Sequence[T]], bool], *, most: int | None = None, is_monotone: bool = False
) -> tuple[list[T], bool]:
    """Items for which `holds` is true, but no longer if any single one of them is left out; and whether they suffice.

    Binary search finds one after the other, each in log2(len(items)) trials (Hemery, Lecoutre, Sais and Boussemart,
    "Extracting MUCs from Constraint Networks", 2006): the last item of the shortest beginning that suffices together
    with what was found before.

    Args:
      items: at least one; `holds` is true of all of them and false of none.
      holds: of some items, the found ones first.
      most: stops when so many are found.
      is_monotone: whether `holds` stays true when items are added; otherwise halves that suffice alone are taken
        first, and single items are left out in the end.
    """
    found: list[T] = []
    rest = list(items)
    while not is_monotone and len(rest) > 1:
        halves = rest[: len(rest) // 2], rest[len(rest) // 2 :]
        alone = next((half for half in halves if holds(half)), None)
        if alone is None:
            break
        rest = alone
    while rest and (not found or not holds(found)):
        if len(found) == most:
            return found, False
        fails, suffices = 0, len(rest)  # numbers of items of `rest` in addition to `found`
        while suffices - fails > 1:
            middle = (fails + suffices) // 2
            if holds([*found, *rest[:middle]]):
                suffices = middle
            else:
                fails = middle
        found.append(rest[suffices - 1])
        rest = rest[: suffices - 1]
    while not is_monotone:
        fewer = map(list, itertools.combinations(found, len(found) - 1))
        smaller = next((some for some in fewer if some and holds(some)), None)
        if smaller is None:
            break
        found = smaller
    return found, True
