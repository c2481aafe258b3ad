"""Reads the history of a training, `history.jsonl`, and its curves for reports.

Each line is a JSON object about one iteration. Reports read

    iteration, compiles (so far), reward_mean, reward_by_project {project: reward}
    validation_mean, validation_total          changes on the validation corpus, in some iterations

and ignore other keys. An incomplete last line, which a killed training leaves, is skipped.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compiler_opt.errors import ConfigError
from compiler_opt.files import parse_json, read_regular

HISTORY_FILE = "history.jsonl"
MAX_HISTORY_BYTES = 1 << 28
_MAX_ITERATION, _MAX_NUMBER = 1 << 53, 1e100


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
        *lines, last = read_regular(path, MAX_HISTORY_BYTES).split(b"\n")
    except FileNotFoundError:
        return [], 0
    except OSError:
        # It is no file or far too large, or the disk fails.
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
    entries = [entry for entry in found if number(entry, "compiles") is not None]
    if (found or num_damaged) and not entries:
        raise ConfigError(f"{path}: expected JSON objects with the numbers 'iteration' and 'compiles', found none")
    rewards = [by_project if isinstance(by_project := e.get("reward_by_project"), dict) else {} for e in entries]
    compiles = [entry["compiles"] for entry in entries]
    validation = (
        _curve(name, compiles, [number(entry, key) for entry in entries])
        for name, key in (("mean of projects", "validation_mean"), ("together", "validation_total"))
    )
    return History(
        reward=_curve("mean", compiles, [number(entry, "reward_mean") for entry in entries]),
        projects=tuple(
            _curve(name, compiles, [number(by_project, name) for by_project in rewards])
            for name in dict.fromkeys(name for by_project in rewards for name in by_project)
        ),
        validation=tuple(curve for curve in validation if curve.values),
    )


def _entry(line: bytes) -> dict[str, Any] | None:
    try:
        entry = parse_json(line)
    except ValueError:
        return None
    iteration = entry.get("iteration") if isinstance(entry, dict) else None
    return entry if isinstance(iteration, int) and 0 <= iteration < _MAX_ITERATION else None


def number(values: Mapping[str, Any], key: str) -> float | None:
    """A number of an entry, or of a dictionary in it; None if there is none, or none that can be added up and drawn."""
    value = values.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return value if -_MAX_NUMBER < value < _MAX_NUMBER else None


def smoothed(curve: Curve, window: int) -> Curve:
    """A moving average over the last `window` points (fewer at the start)."""
    values = curve.values
    windows = (values[max(0, end - window) : end] for end in range(1, len(values) + 1))
    return dataclasses.replace(curve, values=tuple(sum(points) / len(points) for points in windows))


def _curve(name: str, compiles: list[float], values: list[float | None]) -> Curve:
    points = [(x, y) for x, y in zip(compiles, values, strict=True) if y is not None]
    return Curve(name, tuple(x for x, _ in points), tuple(y for _, y in points))
