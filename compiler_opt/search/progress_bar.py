"""The progress bars of searches."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import NoReturn

from tqdm import tqdm

from compiler_opt.progress_bar import progress_bar
from compiler_opt.report.formatting import change_text, duration_text, signed_bytes_text
from compiler_opt.search.search_outcome import Progress


class SearchBar:
    """Shows compiles out of a budget, what has been won so far, and how long it may take yet."""

    def __init__(self, bar: "tqdm[NoReturn]", minutes: float | None = None):
        """`minutes` is the limit of all searches together, from now on; None for none."""
        self._bar = bar
        self._left = _TimeLeft(minutes)
        self._done = 0
        self._before = 0

    def begin(self, name: str) -> None:
        """Begins the search of a program."""
        self._done += self._before
        self._before = 0
        self._bar.set_description_str(name)  # To which tqdm adds a colon, also without a total.

    def show(self, progress: Progress) -> None:
        """Shows the progress of the current search, against plain clang as `search` reports it."""
        self._before = progress.compiles
        difference = signed_bytes_text(round(progress.confirmed_bytes - progress.base_bytes))
        text = f"{difference} bytes, {change_text(progress.change)}, against plain clang{self._left}"
        self._bar.set_postfix_str(text, refresh=False)
        self._bar.update(self._done + progress.compiles - self._bar.n)


@contextlib.contextmanager
def search_bar(total: int | None, minutes: float | None = None) -> Iterator[SearchBar]:
    """A bar on stderr for so many compiles in all, or so many minutes, if these are known."""
    with progress_bar(total=total, unit="compile") as bar:
        yield SearchBar(bar, minutes)


@contextlib.contextmanager
def weighted_bar(
    name: str, what: str, bytes_per_percent: float, minutes: float | None = None
) -> Iterator[Callable[[Progress], None]]:
    """A bar of one search in which a percent of `what` counts as bytes; yields what shows its progress."""
    left = _TimeLeft(minutes)
    with progress_bar(unit="compile", description=name) as bar:

        def show(progress: Progress) -> None:
            percent = (progress.confirmed_bytes - progress.base_bytes) / bytes_per_percent
            bar.set_postfix_str(f"{what} and text {percent:+.2f}%{left}", refresh=False)
            bar.update(progress.compiles - bar.n)

        yield show


class _TimeLeft:
    """`, at most 3 min 5 s left`; empty without a limit."""

    def __init__(self, minutes: float | None):
        self._deadline_s = None if minutes is None else time.monotonic() + 60 * minutes

    def __str__(self) -> str:
        if self._deadline_s is None:
            return ""
        return f", at most {duration_text(max(0.0, self._deadline_s - time.monotonic()))} left"
