"""A search shows what it has won against plain clang, and how long it may still take."""

import time
from collections.abc import Iterator

import pytest

from compiler_opt.report.formatting import MINUS
from compiler_opt.search.progress_bar import search_bar, weighted_bar
from compiler_opt.search.search_outcome import Progress


@pytest.fixture(name="clock")
def clock_fixture(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The seconds that bars see; a test changes the only element."""
    now_s = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    yield now_s


def test_what_is_won_and_the_time_left(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with search_bar(None, minutes=10) as bar:
        for name, compiles in (("one", 40), ("two", 60)):
            bar.begin(name)
            clock[0] += 40
            bar.show(Progress(compiles, 8.0, 2000, 1900, 1940))
    one, two = capsys.readouterr().err.splitlines()
    won = f"{MINUS}60 bytes, {MINUS}3.00%, against plain clang, at most"
    assert one.startswith("one: 40compile ") and f"{won} 9 min 20 s left" in one
    assert two.startswith("two: 100compile ") and f"{won} 8 min 40 s left" in two


def test_without_a_limit_or_after_it(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    for minutes in (None, 0.5):
        with weighted_bar("app", "cycles", 20.0, minutes) as show:
            clock[0] += 40
            show(Progress(40, 8.0, 2000, 1900, 1940))
    unlimited, late = capsys.readouterr().err.splitlines()
    assert "cycles and text -3.00%" in unlimited and "left" not in unlimited
    assert "cycles and text -3.00%, at most 0.0 s left" in late
