"""The samples of a run on disk: a file for each iteration, so that an interrupted run has what it had learned from."""

import io
import zipfile
from pathlib import Path

import numpy as np

from compiler_opt.errors import ConfigError
from compiler_opt.files import write_atomically
from compiler_opt.rl.deviations import Samples


class SampleFiles:
    """`DIRECTORY/000123.npz`, of iterations that had any."""

    def __init__(self, directory: Path):
        self._directory = directory

    def save(self, iteration: int, samples: Samples) -> None:
        """Raises OutputError: it cannot be written."""
        self._directory.mkdir(parents=True, exist_ok=True)
        buffer = io.BytesIO()
        np.savez(buffer, positions=samples.positions, gains=samples.gains)
        write_atomically(self._path(iteration), buffer.getvalue())

    def load(self, last: int) -> list[Samples]:
        """Those of all iterations up to `last`; removes what came later, which is going to be done again.

        Raises:
          ConfigError: one is damaged.
        """
        found = []
        for path in sorted(self._directory.glob("*.npz")):
            if path.stem > self._path(last).stem:
                path.unlink()
                continue
            try:
                # Opened here: numpy leaves open what it finds to be damaged.
                with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                    found.append(Samples(arrays["positions"], arrays["gains"]))
            except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
                raise ConfigError(f"{path}: expected samples of this run, found: {error}; remove it") from error
        return found

    def _path(self, iteration: int) -> Path:
        return self._directory / f"{iteration:06d}.npz"
