"""`pytest --cpu`: CPU seconds of test files and of tests, those of the processes that it starts included.

On a busy machine wall-clock times say little. What a worker makes once (imports, a server of programs, fixtures of the
session) counts for the test that happens to come first.
"""

import collections
import contextlib
from collections.abc import Iterator

import psutil
import pytest

_PROPERTY = "cpu_s"
_NUM_SHOWN = 40


class CpuTimes:
    """A plugin of pytest: measures where tests run, and adds up where results are shown."""

    def __init__(self) -> None:
        self._before_s = 0.0
        self._tests: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: "pytest.CallInfo[None]"
    ) -> Iterator[pytest.TestReport]:
        if call.when == "teardown":
            now_s = _cpu_s()
            item.user_properties.append((_PROPERTY, now_s - self._before_s))
            self._before_s = now_s
        return (yield)  # type: ignore[misc]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            cpu_s = dict(report.user_properties)[_PROPERTY]
            assert isinstance(cpu_s, float)
            self._tests[report.nodeid] = cpu_s

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        files: collections.defaultdict[str, float] = collections.defaultdict(float)
        for name, cpu_s in self._tests.items():
            files[name.partition("::")[0]] += cpu_s
        terminalreporter.section(f"CPU time: {sum(self._tests.values()):.0f} s")
        for times in (files, self._tests):
            for name in sorted(times, key=times.__getitem__, reverse=True)[:_NUM_SHOWN]:
                terminalreporter.line(f"{times[name]:8.1f} s {name}")


def _cpu_s() -> float:
    """Of this process and all its descendants, those that have ended included."""
    total_s = 0.0
    this = psutil.Process()
    for process in (this, *this.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            total_s += times.user + times.system + times.children_user + times.children_system
    return total_s
