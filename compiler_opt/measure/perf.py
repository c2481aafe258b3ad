"""Counts of a processor's own counters (PMU), by `perf stat`, where there are any.

Whether there are any shows only by trying: virtual machines and containers often have none, or may not use them.
"""

import dataclasses
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from compiler_opt.errors import ToolchainError
from compiler_opt.llvm import processes
from compiler_opt.llvm.processes import ProcessResult
from compiler_opt.llvm.scratch import scratch_directory

EVENTS = ("instructions:u", "cycles:u", "branch-misses:u", "cache-misses:u")
"""Of the program only, not of the kernel."""

_MAX_OUTPUT_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True)
class Counters:
    """What this machine can count.

    Attributes:
      perf: the program; None if nothing can be counted.
      events: those of `EVENTS` that it counts.
      reason: why nothing, or not all, can be counted, in one line; empty if all can be.
    """

    perf: Path | None
    events: tuple[str, ...]
    reason: str


@dataclasses.dataclass(frozen=True)
class CountedRun:
    """A run: how it ended and what it printed, and its counts by event, as far as there are any."""

    result: ProcessResult
    counts: Mapping[str, int]


def installed() -> Path:
    """The installed perf.

    Raises:
      ToolchainError: there is none; the message names the package.
    """
    path = shutil.which("perf")
    if path is None:
        raise ToolchainError("perf: not found; install the package linux-perf (Debian) or linux-tools-generic")
    return Path(path)


def probe() -> Counters:
    """Finds out what can be counted, by counting a short run of a program."""
    try:
        perf = installed()
    except ToolchainError as error:
        return Counters(None, (), str(error))
    run = count([str(perf), "--version"], Counters(perf, EVENTS, ""))
    # A counter of a processor that exists never counts 0 instructions or cycles.
    counted = tuple(event for event in EVENTS if run.counts.get(event) is not None)
    if not run.result.ok or "instructions:u" not in counted or not run.counts["instructions:u"]:
        message = "" if run.result.ok else f": {run.result.describe()}"
        return Counters(None, (), f"perf: this machine lets nothing be counted (no PMU, or no permission){message}")
    missing = [event for event in EVENTS if event not in counted]
    return Counters(perf, counted, f"perf: cannot count {', '.join(missing)}" if missing else "")


def count(
    command: Sequence[str],
    counters: Counters,
    *,
    timeout_s: float = processes.DEFAULT_TIMEOUT_S,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> CountedRun:
    """Runs a command, and counts.

    Raises:
      ToolchainError: `counters` counts nothing.
    """
    if counters.perf is None:
        raise ToolchainError(counters.reason)
    with scratch_directory() as scratch:
        output = scratch / "perf.json"
        tool = [str(counters.perf), "stat", "-j", "-e", ",".join(counters.events), "-o", str(output), "--"]
        result = processes.run([*tool, *command], timeout_s=timeout_s, cwd=cwd, environment=environment)
        try:
            text = output.read_bytes()[:_MAX_OUTPUT_BYTES].decode(errors="replace")
        except FileNotFoundError:
            text = ""
    return CountedRun(result, parse(text))


def parse(text: str) -> dict[str, int]:
    """Counts by event of `perf stat -j`, a JSON object a line; events that it could not count are left out."""
    counts = {}
    for line in text.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue  # Comments, and the output of other programs.
        if isinstance(value, dict) and isinstance(value.get("event"), str):
            number = str(value.get("counter-value", ""))
            try:
                counts[value["event"]] = int(float(number))
            except (ValueError, OverflowError):
                continue  # `<not supported>`, `<not counted>`
    return counts
