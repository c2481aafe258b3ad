"""What an interrupted run continues from: everything of one iteration in one directory, complete or absent."""

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import tensorflow as tf

from compiler_opt.errors import ConfigError, OutputError

_STATE = "state.json"
_VARIABLES = "variables"


class Checkpoints:
    """The checkpoints of a run, `DIRECTORY/000123/`; the last few are kept."""

    def __init__(self, directory: Path, keep: int = 2, **tracked: Any):
        """`tracked` are TensorFlow objects whose variables are saved and restored."""
        self._directory = directory
        self._keep = keep
        self._checkpoint = tf.train.Checkpoint(**tracked)

    def save(self, iteration: int, state: dict[str, Any]) -> None:
        """Adds the checkpoint of an iteration.

        Raises:
          OutputError: it cannot be written; the earlier ones are untouched.
        """
        path = self._directory / f"{iteration:06d}"
        partial: Path | None = None
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._sweep()
            partial = Path(tempfile.mkdtemp(suffix=".partial", dir=self._directory))
            self._checkpoint.write(str(partial / _VARIABLES))
            (partial / _STATE).write_text(json.dumps(state))
            for file in partial.iterdir():
                _flush(file)
            if path.exists():
                shutil.rmtree(path)
            partial.rename(path)
            _flush(self._directory)
        except (OSError, tf.errors.OpError) as error:
            if partial is not None:
                shutil.rmtree(partial, ignore_errors=True)
            reason = str(getattr(error, "strerror", None) or getattr(error, "message", error))
            raise OutputError(
                f"{path}: the checkpoint cannot be written: {reason.splitlines()[0]}; the previous one is good: free "
                "space and run the same command again"
            ) from error
        for old in self._complete()[: -self._keep]:
            shutil.rmtree(old, ignore_errors=True)

    def restore(self) -> tuple[int, dict[str, Any]] | None:
        """Brings back the newest checkpoint; returns its iteration and state, or None when there is none.

        Raises:
          ConfigError: it was made by another configuration.
        """
        complete = self._complete()
        if not complete:
            return None
        path = complete[-1]
        state = json.loads((path / _STATE).read_text())
        try:
            self._checkpoint.read(str(path / _VARIABLES)).assert_existing_objects_matched()
        except (AssertionError, ValueError, tf.errors.OpError) as error:
            raise ConfigError(
                f"{path}: was made by another configuration ({str(error).splitlines()[0]}); "
                "use that, or another --root_dir"
            ) from error
        return int(path.name), state

    def _complete(self) -> list[Path]:
        if not self._directory.is_dir():
            return []
        return sorted(path for path in self._directory.iterdir() if path.name.isdecimal())

    def _sweep(self) -> None:
        """Removes what killed runs left half-written. A run's folder has one writer at a time."""
        for path in self._directory.glob("*.partial"):
            shutil.rmtree(path, ignore_errors=True)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
