"""Checkpoints of a training run: one directory per iteration, complete or absent.

variables.*        TensorFlow variables
state.json         all other state
checksums.json     size and SHA-256 of each of these files; a mismatch means that the checkpoint is damaged
"""

import contextlib
import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import msgspec
import tensorflow as tf

from compiler_opt.checked_values import convert
from compiler_opt.errors import ConfigError, OutputError
from compiler_opt.files import (
    parse_json,
    read_checked_json,
    read_regular,
    replaced_folder,
    set_aside,
    size_and_sha256,
    sweep_temporaries,
    write_checked_json,
)

_LOG = logging.getLogger(__name__)

_STATE = "state.json"
_VARIABLES = "variables"
_CHECKSUMS = "checksums.json"
_FileName = Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9.-]*$")]
_NUM_KEPT = 2


class Checkpoints:
    """The checkpoints of a run, `DIRECTORY/000123/`, of which the last two are kept."""

    def __init__(self, directory: Path, **tracked: Any):
        """Saves and restores the variables of the TensorFlow objects `tracked`."""
        self._directory = directory
        self._checkpoint = tf.train.Checkpoint(**tracked)

    def save(self, iteration: int, state: dict[str, Any]) -> None:
        """Writes an iteration's checkpoint and removes old ones. If it cannot, raises OutputError and removes none."""
        path = self._directory / f"{iteration:06d}"
        try:
            with replaced_folder(path) as partial:
                self._checkpoint.write(str(partial / _VARIABLES))
                (partial / _STATE).write_text(json.dumps(state))
                sums = {file.name: list(size_and_sha256(file)) for file in sorted(partial.iterdir())}
                write_checked_json(partial / _CHECKSUMS, sums)
        except (OSError, tf.errors.OpError) as error:
            reason = str(getattr(error, "strerror", None) or getattr(error, "message", error))
            raise OutputError(
                f"{path}: the checkpoint cannot be written: {reason.splitlines()[0]}; the previous one is good: free "
                "space and run the same command again"
            ) from error
        for old in self._found()[:-_NUM_KEPT]:
            shutil.rmtree(old, ignore_errors=True)

    def restore(self, check: Callable[[dict[str, Any]], object] = lambda _state: None) -> dict[str, Any] | None:
        """Restores the newest intact checkpoint and returns its state; None if there is no checkpoint.

        `check` is called with the state before anything is restored, and raises if it does not match this run. Damaged
        checkpoints that are newer are set aside.

        Raises:
          ConfigError: another configuration wrote it, or all checkpoints are damaged.
        """
        sweep_temporaries(self._directory)
        damaged: dict[Path, str] = {}
        for path in reversed(self._found()):
            try:
                state = _read_state(path)
            except (OSError, ValueError) as error:
                damaged[path] = str(getattr(error, "strerror", None) or error)
                continue
            check(state)
            self._read_variables(path)
            for newer, reason in damaged.items():
                _LOG.warning(
                    "%s: damaged (%s); kept as %s; resuming after iteration %d, what was learned since is lost",
                    newer,
                    reason,
                    set_aside(newer).name,
                    int(path.name),
                )
            return state
        if damaged:
            reasons = "; ".join(f"{path.name}: {reason}" for path, reason in reversed(damaged.items()))
            raise ConfigError(
                f"{self._directory}: all checkpoints are damaged ({reasons}); restore one from a backup, or remove "
                "that folder to start again from the first iteration"
            )
        return None

    def latest_state(self) -> dict[str, Any] | None:
        """The state that `restore` would return, without restoring anything."""
        for path in reversed(self._found()):
            with contextlib.suppress(OSError, ValueError):
                return _read_state(path)
        return None

    def _read_variables(self, path: Path) -> None:
        try:
            self._checkpoint.read(str(path / _VARIABLES)).assert_existing_objects_matched()
        except (AssertionError, ValueError, tf.errors.OpError) as error:
            raise ConfigError(
                f"{path}: was written by another configuration ({str(error).splitlines()[0]}); "
                "use that, or another --output_dir"
            ) from error

    def _found(self) -> list[Path]:
        """Paths of all checkpoints, oldest first."""
        if not self._directory.exists():
            return []
        if not self._directory.is_dir():
            raise ConfigError(f"{self._directory}: expected a folder, found something else; give another --output_dir")
        return sorted((path for path in self._directory.iterdir() if path.name.isdecimal()), key=lambda p: int(p.name))


def _read_state(path: Path) -> dict[str, Any]:
    """The state of an intact checkpoint. Raises OSError or ValueError if a file is damaged."""
    try:
        checksums = convert(read_checked_json(path / _CHECKSUMS), dict[_FileName, tuple[int, str]])
    except (OSError, ValueError) as error:
        raise ValueError(f"{_CHECKSUMS}: {getattr(error, 'strerror', None) or error}") from None
    if _STATE not in checksums:
        raise ValueError(f"{_CHECKSUMS}: expected a checksum of {_STATE}")
    for name, expected in checksums.items():
        try:
            found = size_and_sha256(path / name)
        except OSError as error:
            raise ValueError(f"{name}: {error.strerror}") from None
        if found[0] != expected[0]:
            raise ValueError(f"{name}: expected {expected[0]} bytes, found {found[0]}")
        if found != expected:
            raise ValueError(f"{name}: its contents have changed")
    return convert(parse_json(read_regular(path / _STATE, checksums[_STATE][0])), dict[str, Any])
