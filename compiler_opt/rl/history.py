"""What happened in each iteration, one JSON object a line, and the same for TensorBoard."""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from compiler_opt.errors import OutputError
from compiler_opt.files import set_aside, write_atomically

_LOG = logging.getLogger(__name__)

HISTORY_FILE = "history.jsonl"


class History:
    """Appends to `history.jsonl` and to TensorBoard's event files in a run's folder."""

    def __init__(self, root_dir: Path, last_iteration: int):
        """Forgets what an interrupted run wrote after its last checkpoint, iteration `last_iteration`.

        What is damaged is set aside; its intact lines are kept.

        Raises:
          OutputError: it cannot be written.
        """
        self._path = root_dir / HISTORY_FILE
        entries, num_damaged = _read(self._path)
        if num_damaged:
            aside = set_aside(self._path)
            _LOG.warning("%s: %d lines are damaged; kept as %s", self._path, num_damaged, aside.name)
        lines = [json.dumps(entry) + "\n" for entry in entries if entry["iteration"] <= last_iteration]
        write_atomically(self._path, "".join(lines).encode())
        try:
            self._writer = tf.summary.create_file_writer(str(root_dir / "summaries"))
        except tf.errors.OpError as error:
            raise OutputError(
                f"{root_dir / 'summaries'}: cannot be written: {error.message.splitlines()[0]}"
            ) from error

    def add(self, entry: Mapping[str, Any], rewards: np.ndarray | None = None) -> None:
        """Adds an iteration.

        Args:
          entry: numbers by name, `iteration` among them; a dictionary inside becomes one curve per key.
          rewards: `[G]` of all rollouts, for the distribution; None when there are none.

        Raises:
          OutputError: it cannot be written.
        """
        try:
            with self._path.open("a") as file:
                file.write(json.dumps(entry) + "\n")
        except OSError as error:
            raise OutputError(f"{self._path}: cannot be written: {error.strerror}") from error
        step = entry["iteration"]
        with self._writer.as_default(step=step):
            if rewards is not None:
                tf.summary.histogram("reward/distribution", rewards)
            for name, value in entry.items():
                if isinstance(value, Mapping):
                    for key, part in value.items():
                        tf.summary.scalar(f"{name}/{key}", part)
                else:
                    tf.summary.scalar(name, value)
        self._writer.flush()


def read_history(path: Path) -> list[dict[str, Any]]:
    """The iterations of a run so far; lines that are damaged, or that a killed run left unfinished, are left out."""
    return _read(path)[0]


def _read(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The intact entries, and how many lines are damaged; an unfinished last one is not counted."""
    try:
        *lines, last = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return [], 0
    except OSError:
        # A folder, or what the disk cannot give back.
        return [], 1
    found = [_entry(line) for line in lines]
    unfinished = _entry(last)
    entries = [entry for entry in (*found, unfinished) if entry is not None]
    return entries, found.count(None)


def _entry(line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) and isinstance(entry.get("iteration"), int) else None
