"""Reads the history of a training, `history.jsonl`, and its curves for reports.

Each line is a JSON object about one iteration. Reports read

    iteration, compiles (so far), reward_mean, reward_by_project {project: reward}
    validation_mean, validation_total          changes on the validation corpus, in some iterations

and ignore other keys. An incomplete last line, which a killed training leaves, is skipped.
"""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

from compiler_opt.errors import ConfigError

HISTORY_FILE = "history.jsonl"
MAX_HISTORY_BYTES = 1 << 28


@dataclasses.dataclass(frozen=True)
class Curve:
    """A curve: values over the number of compilations so far, in order."""

    name: str
    compiles: tuple[float, ...]
    values: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class History:
    """The course of a training.

    Attributes:
      reward: mean over the modules of each iteration.
      projects: the same for each training project.
      validation: changes on the validation corpus, negative is better: the mean of its projects, and all together;
        empty without validation.
    """

    reward: Curve
    projects: tuple[Curve, ...]
    validation: tuple[Curve, ...] = ()


def read_entries(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The intact entries of a history, and the number of damaged lines.

    An incomplete last line is not counted.
    """
    try:
        *lines, last = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return [], 0
    except OSError:
        # The path is a folder, or the disk fails.
        return [], 1
    found = [_entry(line) for line in lines]
    entries = [entry for entry in (*found, _entry(last)) if entry is not None]
    return entries, found.count(None)


def load_history(path: Path) -> History:
    """Reads the intact entries of a history.

    Args:
      path: the file, or the folder of the training.

    Raises:
      ConfigError: there is no such file, or it is not a history.
    """
    if path.is_dir():
        path = path / HISTORY_FILE
    try:
        if path.stat().st_size > MAX_HISTORY_BYTES:
            raise ConfigError(f"{path}: larger than any training log ({MAX_HISTORY_BYTES} bytes)")
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot read the training log: {error.strerror}; give the trainer's folder"
        ) from None
    found, num_damaged = read_entries(path)
    entries = [entry for entry in found if _is_number(entry.get("compiles"))]
    if (found or num_damaged) and not entries:
        raise ConfigError(f"{path}: expected JSON objects with the numbers 'iteration' and 'compiles', found none")
    rewards = [by_project if isinstance(by_project := e.get("reward_by_project"), dict) else {} for e in entries]
    compiles = [entry["compiles"] for entry in entries]
    validation = (
        _curve(name, compiles, [entry.get(key) for entry in entries])
        for name, key in (("mean of projects", "validation_mean"), ("together", "validation_total"))
    )
    return History(
        reward=_curve("mean", compiles, [entry.get("reward_mean") for entry in entries]),
        projects=tuple(
            _curve(name, compiles, [by_project.get(name) for by_project in rewards])
            for name in dict.fromkeys(name for by_project in rewards for name in by_project)
        ),
        validation=tuple(curve for curve in validation if curve.values),
    )


def _entry(line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) and isinstance(entry.get("iteration"), int) else None


def smoothed(curve: Curve, window: int) -> Curve:
    """A moving average over the last `window` points (fewer at the start)."""
    values = curve.values
    windows = (values[max(0, end - window) : end] for end in range(1, len(values) + 1))
    return dataclasses.replace(curve, values=tuple(sum(points) / len(points) for points in windows))


def _curve(name: str, compiles: list[float], values: list[Any]) -> Curve:
    points = [(x, y) for x, y in zip(compiles, values, strict=True) if _is_number(y)]
    return Curve(name, tuple(x for x, _ in points), tuple(y for _, y in points))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
