"""Where the time of a training went: of its workers, and of the learner's process.

    stopwatch = Stopwatch()
    with stopwatch.measure("learn"):
        with stopwatch.measure("credit"):    # does not count as learning
            ...
    stopwatch.take()    # {"learn": seconds, "credit": seconds}

Each iteration's are in the history, as `worker_s` and `host_s`, and so in TensorBoard; `profile_table` and
`write_picture` show those of all iterations.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from compiler_opt.collect.groups import RolloutBatch
from compiler_opt.errors import OutputError
from compiler_opt.evaluation.history import number
from compiler_opt.report.drawing import new_figure
from compiler_opt.report.table import Table

PICTURE_FILE = "profile.svg"

_WORKERS = {
    "compile": "the compiler",
    "decide": "decisions outside of the compiler, and reading them from its log",
    "read": "reading objects",
    "wait": "idle, or waiting for a CPU or the disk",
}
_HOST = {
    "collect": "waiting for rollouts",
    "credit": "advantages, and the batch",
    "learn": "gradient steps",
    "other": "choosing modules, scores",
    "validate": "evaluating on the validation corpus",
}


class Stopwatch:
    """Adds up the wall-clock seconds of activities of one thread; those of an inner one count for that alone."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._seconds: dict[str, float] = {}
        self._inner_s = 0.0

    @contextlib.contextmanager
    def measure(self, activity: str) -> Iterator[None]:
        """Measures this context."""
        outer_s, self._inner_s = self._inner_s, 0.0
        start_s = self._clock()
        try:
            yield
        finally:
            elapsed_s = self._clock() - start_s
            self._seconds[activity] = self._seconds.get(activity, 0.0) + elapsed_s - self._inner_s
            self._inner_s = outer_s + elapsed_s

    def take(self) -> dict[str, float]:
        """Seconds by activity since the last call."""
        taken, self._seconds = self._seconds, {}
        return taken


def profile_entry(
    batch: RolloutBatch, num_workers: int, iteration_s: float, measured: Mapping[str, float]
) -> dict[str, dict[str, float]]:
    """What the history records of an iteration, in seconds: `worker_s` of all workers together, `host_s` of the host.

    Args:
      batch: its rollouts.
      num_workers: how many there are.
      iteration_s: wall-clock seconds that it took, without validation.
      measured: what a `Stopwatch` has measured in the host.
    """
    busy = {"compile": batch.compile_cpu_s, "decide": batch.decide_cpu_s, "read": batch.read_cpu_s}
    waited_s = max(0.0, num_workers * iteration_s - sum(busy.values()))
    in_loop = {name: measured.get(name, 0.0) for name in ("collect", "credit", "learn")}
    host = {**in_loop, "other": max(0.0, iteration_s - sum(in_loop.values()))}
    return {"worker_s": {**busy, "wait": waited_s}, "host_s": {**host, "validate": measured.get("validate", 0.0)}}


def profile_table(entries: Sequence[Mapping[str, Any]]) -> Table:
    """The mean of the iterations of a history that have a profile."""
    rows = []
    for key, who, activities in (("worker_s", "workers", _WORKERS), ("host_s", "learner", _HOST)):
        found = [entry[key] for entry in entries if isinstance(entry.get(key), dict)]
        sums = {name: sum(number(each, name) or 0.0 for each in found) for name in activities}
        total_s = sum(sums.values())
        for name, what in activities.items():
            mean_s = sums[name] / max(1, len(found))
            rows.append((who, name, what, f"{mean_s:.2f}", f"{sums[name] / total_s:.1%}" if total_s else "-"))
    return Table(("who", "activity", "what", "s / iteration", "share"), rows, num_text_columns=3)


def write_picture(entries: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draws the shares of the activities over the iterations, as SVG.

    Raises:
      OutputError: the file cannot be written.
    """
    figure = new_figure(9, 6)
    entries = [entry for entry in entries if all(isinstance(entry.get(key), dict) for key in ("worker_s", "host_s"))]
    iterations = [entry["iteration"] for entry in entries]
    titles = (("worker_s", "workers", _WORKERS), ("host_s", "the learner's process", _HOST))
    for axes, (key, title, activities) in zip(figure.subplots(2, 1, sharex=True), titles, strict=True):
        seconds = np.array([[number(entry[key], name) or 0.0 for entry in entries] for name in activities])
        seconds = seconds.reshape(len(activities), len(entries))
        shares = 100 * seconds / np.maximum(seconds.sum(0), 1e-9)
        bottom = np.zeros(len(entries))
        for name, share in zip(activities, shares, strict=True):
            axes.bar(iterations, share, 1.0, bottom, label=name)
            bottom += share
        axes.set(title=f"Time of {title}", ylabel="%", ylim=(0, 100))
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    axes.set_xlabel("iteration")
    try:
        figure.savefig(path, format="svg")
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror or error}") from error
