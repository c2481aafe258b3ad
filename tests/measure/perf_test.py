import os
import stat
from pathlib import Path

import pytest

from compiler_opt.errors import ToolchainError
from compiler_opt.measure import perf
from compiler_opt.measure.perf import EVENTS

_PERF = """#!/bin/sh
while [ "$1" != -- ]; do
  [ "$1" = -o ] && output=$2
  shift
done
shift
"$@" >/dev/null
cat > "$output" <<'END'
# started on Mon
{content}
END
"""


def line(event: str, value: str) -> str:
    return f'{{"counter-value" : "{value}", "unit" : "", "event" : "{event}", "event-runtime" : 0}}'


def installed(folder: Path, content: str) -> str:
    """A perf that runs its command and reports these lines, since few machines have counters; returns a PATH."""
    path = folder / "perf"
    path.write_text(_PERF.format(content=content))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def test_says_what_this_machine_counts() -> None:
    """Whatever it is, the probe agrees with a run."""
    counters = perf.probe()
    if counters.perf is None:
        assert counters.reason
        assert counters.events == ()
        with pytest.raises(ToolchainError, match="perf"):
            perf.count(["true"], counters)
    else:
        run = perf.count(["true"], counters)
        assert run.result.ok
        assert run.counts["instructions:u"] > 1000


def test_counts_where_there_are_counters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = "\n".join(line(event, f"{1000 + number}.000000") for number, event in enumerate(EVENTS))
    monkeypatch.setenv("PATH", installed(tmp_path, content))
    counters = perf.probe()
    assert (counters.perf, counters.events, counters.reason) == (tmp_path / "perf", EVENTS, "")
    assert perf.count(["true"], counters).counts == {event: 1000 + number for number, event in enumerate(EVENTS)}


def test_names_the_events_that_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = "\n".join([line(EVENTS[0], "5"), line(EVENTS[1], "6"), line(EVENTS[2], "<not supported>")])
    monkeypatch.setenv("PATH", installed(tmp_path, content))
    counters = perf.probe()
    assert counters.events == EVENTS[:2]
    assert counters.reason == "perf: cannot count branch-misses:u, cache-misses:u"


@pytest.mark.parametrize("value", ["<not supported>", "<not counted>", "0", ""])
def test_says_that_there_are_no_counters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("PATH", installed(tmp_path, line(EVENTS[0], value)))
    counters = perf.probe()
    assert counters.perf is None
    assert "no PMU" in counters.reason


def test_says_that_there_is_no_perf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert perf.probe().reason.startswith("perf: not found; install the package")
