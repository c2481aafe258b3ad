"""A bounded memory of what was observed, from which later iterations learn, too.

    DIRECTORY/000123.npz    the rows that iteration 123 added, `[N, ...]` by column

Legend: N rows.
"""

import logging
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from compiler_opt.array_files import load_arrays, save_arrays
from compiler_opt.files import set_aside, sweep_temporaries

_LOG = logging.getLogger(__name__)

_MAX_BYTES = 1 << 32
_KEPT_ITERATIONS = 3
"""Iterations for which forgotten rows stay on disk: a run may resume from the checkpoint before the last."""


class Replay:
    """The latest rows of a run, which a resumed run reads again."""

    def __init__(self, directory: Path, empty: Mapping[str, np.ndarray], max_rows: int):
        """Is empty; reads nothing.

        Args:
          directory: of the files, which nothing else uses; made when the first rows are added.
          empty: the columns, by name, each with 0 rows.
          max_rows: most rows to keep.
        """
        self._directory = directory
        self._empty = empty
        self._max_rows = max_rows
        self._parts: dict[int, Mapping[str, np.ndarray]] = {}
        self._forgotten: dict[int, int] = {}  # when the rows of an iteration were forgotten

    def __len__(self) -> int:
        return min(self._max_rows, sum(map(_count, self._parts.values())))

    def add(self, iteration: int, rows: Mapping[str, np.ndarray]) -> None:
        """Adds the rows `[N, ...]` of an iteration, and forgets the oldest. Raises OutputError if a file fails."""
        self._directory.mkdir(parents=True, exist_ok=True)
        save_arrays(self._path(iteration), rows)
        self._parts[iteration] = rows
        self._forget(iteration)

    def restore(self, last_iteration: int) -> None:
        """Reads the rows of all iterations up to the last, and removes those of later ones.

        A damaged file is set aside and logged.
        """
        self._parts, self._forgotten = {}, {}
        sweep_temporaries(self._directory)
        for path in sorted(self._directory.glob("*.npz")):
            if path.stem > f"{last_iteration:06d}":
                path.unlink()
                continue
            try:
                self._parts[int(path.stem)] = self._read(path)
            except (OSError, ValueError) as error:
                _LOG.warning("%s: no samples of this run (%s); kept as %s, lost", path, error, set_aside(path).name)
        self._forget(last_iteration)

    def rows(self) -> dict[str, np.ndarray]:
        """All rows by column, `[N, ...]`, oldest first."""
        parts = [self._empty, *self._parts.values()]
        return {name: np.concatenate([part[name] for part in parts])[-self._max_rows :] for name in self._empty}

    def _read(self, path: Path) -> Mapping[str, np.ndarray]:
        """Raises OSError or ValueError if the file does not have these columns."""
        arrays = load_arrays(path, _MAX_BYTES)
        for name, empty in self._empty.items():
            if name not in arrays:
                raise ValueError(f"has no {name}")
            found = arrays[name]
            if (found.dtype, found.ndim, found.shape[1:]) != (empty.dtype, empty.ndim, empty.shape[1:]):
                raise ValueError(f"{name} of type {found.dtype} and shape {found.shape}")
        if len({len(arrays[name]) for name in self._empty}) > 1:
            raise ValueError("columns of different lengths")
        return {name: arrays[name] for name in self._empty}

    def _forget(self, iteration: int) -> None:
        """Forgets rows that are not among the latest, and removes the files of those that were forgotten long ago."""
        while sum(map(_count, list(self._parts.values())[1:])) >= self._max_rows:
            oldest = next(iter(self._parts))
            del self._parts[oldest]
            self._forgotten[oldest] = iteration
        for old in [old for old, when in self._forgotten.items() if when + _KEPT_ITERATIONS <= iteration]:
            self._path(old).unlink(missing_ok=True)
            del self._forgotten[old]

    def _path(self, iteration: int) -> Path:
        return self._directory / f"{iteration:06d}.npz"


def _count(rows: Mapping[str, np.ndarray]) -> int:
    return len(next(iter(rows.values())))
