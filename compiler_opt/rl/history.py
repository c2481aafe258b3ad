"""The metrics of each iteration, as lines of JSON and for TensorBoard."""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from compiler_opt.errors import OutputError
from compiler_opt.evaluation.history import HISTORY_FILE, read_entries
from compiler_opt.files import set_aside, write_atomically

_LOG = logging.getLogger(__name__)


class History:
    """Appends to `history.jsonl` and to TensorBoard's event files in a run's folder."""

    def __init__(self, root_dir: Path, last_iteration: int):
        """Drops the iterations after `last_iteration`, which an interrupted run wrote after its last checkpoint.

        A damaged file is set aside, and its intact lines are kept. Raises OutputError if a file cannot be written.
        """
        self._path = root_dir / HISTORY_FILE
        entries, num_damaged = read_entries(self._path)
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
        """Appends an iteration. Raises OutputError if the history cannot be written.

        Args:
          entry: metrics by name, including `iteration`; a nested dictionary becomes one curve per key.
          rewards: `[G]`, of all rollouts; None to draw no histogram.
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
