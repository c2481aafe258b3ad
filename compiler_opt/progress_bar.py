"""Shows how far long work is: by a bar on a terminal, by lines in a log."""

import logging
import sys
import time
from collections.abc import Iterable
from typing import Any, NoReturn, TypeVar, overload

from tqdm import tqdm

T = TypeVar("T")

_INTERVAL_S = 30.0
_LOG = logging.getLogger(__name__)
"""Has no messages: its level says whether to show bars."""


def hide_bars() -> None:
    """From now on, `progress_bar` shows nothing."""
    _LOG.setLevel(logging.CRITICAL)


@overload
def progress_bar(*, description: str = "", total: int | None = None, **options: Any) -> "tqdm[NoReturn]": ...


@overload
def progress_bar(
    iterable: Iterable[T], description: str = "", total: int | None = None, **options: Any
) -> "tqdm[T]": ...


def progress_bar(
    iterable: Iterable[T] | None = None, description: str = "", total: int | None = None, **options: Any
) -> "tqdm[Any]":
    """Tqdm's bar on stderr; where that is no terminal, a line every half minute, so none for short work.

    `options` are tqdm's, such as `unit`.
    """
    if not _LOG.isEnabledFor(logging.WARNING):
        options["disable"] = True
    if sys.stderr.isatty():
        return tqdm(iterable, description, total, dynamic_ncols=True, **options)
    return _Lines(iterable, description, total, **options)


class _Lines(tqdm):
    """Numbers without a bar, each time in a line of its own."""

    def __init__(self, *args: Any, **options: Any):
        self._next_s = time.monotonic() + _INTERVAL_S
        # `display` alone decides when to show something.
        super().__init__(*args, **{**options, "ncols": 0, "mininterval": 0, "miniters": 1, "leave": False})

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        del pos
        now_s = time.monotonic()
        # At the end, there is an empty message.
        if msg is None and now_s >= self._next_s:
            self._next_s = now_s + _INTERVAL_S
            self.fp.write(f"{self}\n")
