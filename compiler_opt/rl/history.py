"""What happened in each iteration, one JSON object a line, and the same for TensorBoard."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from compiler_opt.errors import OutputError
from compiler_opt.files import write_atomically

HISTORY_FILE = "history.jsonl"


class History:
    """Appends to `history.jsonl` and to TensorBoard's event files in a run's folder."""

    def __init__(self, root_dir: Path, last_iteration: int):
        """Forgets what an interrupted run wrote after its last checkpoint, iteration `last_iteration`."""
        self._path = root_dir / HISTORY_FILE
        entries = [entry for entry in read_history(self._path) if entry["iteration"] <= last_iteration]
        write_atomically(self._path, "".join(json.dumps(entry) + "\n" for entry in entries).encode())
        self._writer = tf.summary.create_file_writer(str(root_dir / "summaries"))

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
    """The iterations of a run so far; a line that a killed run left unfinished is left out."""
    entries = []
    if path.is_file():
        for line in path.read_text().splitlines():
            try:
                entries.append(json.loads(line))
            except ValueError:
                break
    return entries
