"""The progress bar of searches."""

import contextlib
from collections.abc import Callable, Iterator
from typing import NoReturn

from tqdm import tqdm

from compiler_opt.progress_bar import progress_bar
from compiler_opt.search.search_outcome import Progress


class SearchBar:
    """Shows compiles out of a budget, and what has been won so far."""

    def __init__(self, bar: "tqdm[NoReturn]"):
        self._bar = bar
        self._done = 0
        self._before = 0

    def begin(self, name: str) -> None:
        """Begins the search of a program."""
        self._done += self._before
        self._before = 0
        self._bar.set_description(name)

    def show(self, progress: Progress) -> None:
        """Shows the progress of the current search."""
        self._before = progress.compiles
        saved = progress.base_bytes - progress.confirmed_bytes
        self._bar.set_postfix_str(f"{saved:,.0f} bytes saved, {progress.change:+.2%} of the start", refresh=False)
        self._bar.update(self._done + progress.compiles - self._bar.n)


@contextlib.contextmanager
def search_bar(total: int | None) -> Iterator[SearchBar]:
    """A bar on stderr for so many compiles in all, if that is known."""
    with progress_bar(total=total, unit="compile") as bar:
        yield SearchBar(bar)


@contextlib.contextmanager
def weighted_bar(name: str, what: str, bytes_per_percent: float) -> Iterator[Callable[[Progress], None]]:
    """A bar of one search in which a percent of `what` counts as bytes; yields what shows its progress."""
    with progress_bar(unit="compile", description=name) as bar:

        def show(progress: Progress) -> None:
            percent = (progress.confirmed_bytes - progress.base_bytes) / bytes_per_percent
            bar.set_postfix_str(f"{what} and text {percent:+.2f}%", refresh=False)
            bar.update(progress.compiles - bar.n)

        yield show
