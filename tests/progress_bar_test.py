"""Long work shows how far it is, on a terminal and in a log."""

import logging
import os
import sys
from collections.abc import Iterator

import pytest

from compiler_opt import progress_bar as module
from compiler_opt.progress_bar import progress_bar
from tests.machine import open_terminal


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The seconds that the bars see; a test changes the only element."""
    now_s = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now_s[0])
    yield now_s


def test_a_log_of_long_work_gets_a_line_every_half_minute(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in progress_bar(range(100), "compiling", unit="module"):
        clock[0] += 1
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("[")[0].strip() for line in lines] == [
        f"compiling:  {done}% {done}/100" for done in (30, 60, 90)
    ]
    assert all("module/s" in line for line in lines)


def test_changed_descriptions_and_totals_add_no_lines(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar(unit="module") as bar:
        for number in range(100):
            bar.set_description(f"project {number}")
            bar.set_postfix_str("all is well")
            bar.refresh()
        clock[0] += 31
        bar.total, bar.n = 4, 1
        bar.refresh()
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("project 99:  25% 1/4")
    assert "all is well" in line


def test_a_log_of_short_work_gets_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(progress_bar(iter("abc"), "reading", 3, unit="letter")) == ["a", "b", "c"]
    assert capsys.readouterr() == ("", "")


def test_hidden_bars_still_count(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger(module.__name__)
    module.hide_bars()
    try:
        with progress_bar(total=100, unit="module") as bar:
            for number in progress_bar(range(100)):
                clock[0] += 31
                bar.set_postfix(number=number)
                bar.update()
    finally:
        logger.setLevel(logging.NOTSET)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_shows_a_bar_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = open_terminal()
    with os.fdopen(ours, "rb", buffering=0) as shown, os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with progress_bar(total=4, description="compiling", unit="module") as bar:
            bar.update(4)
        terminal.flush()
        text = b""
        # A terminal passes on what is written to it in pieces.
        while not text.endswith(b"\n"):
            text += shown.read(10_000)
    assert b"compiling: 100%" in text
    assert b"4/4" in text
