"""The samples of a run on disk: a file for each iteration, so that an interrupted run has what it had learned from."""

import logging
from pathlib import Path

from compiler_opt.array_files import load_arrays, save_arrays
from compiler_opt.files import set_aside, sweep_temporaries
from compiler_opt.rl.algorithms.counterfactuals.samples import Samples

_LOG = logging.getLogger(__name__)

_MAX_BYTES = 1 << 32


class SampleFiles:
    """`DIRECTORY/000123.npz`, of iterations that had any."""

    def __init__(self, directory: Path):
        self._directory = directory

    def save(self, iteration: int, samples: Samples) -> None:
        """Raises OutputError: it cannot be written."""
        self._directory.mkdir(parents=True, exist_ok=True)
        save_arrays(self._path(iteration), {"positions": samples.positions, "gains": samples.gains})

    def load(self, last: int) -> list[Samples]:
        """Those of all iterations up to `last`; removes what came later, which is going to be done again.

        One that is damaged is set aside, and said to be lost.
        """
        found = []
        sweep_temporaries(self._directory)
        for path in sorted(self._directory.glob("*.npz")):
            if path.stem > self._path(last).stem:
                path.unlink()
                continue
            try:
                arrays = load_arrays(path, _MAX_BYTES)
                positions, gains = arrays["positions"], arrays["gains"]
                if positions.ndim != 3 or gains.shape != positions.shape[:1]:
                    raise ValueError(f"arrays of shapes {positions.shape} and {gains.shape}")
                found.append(Samples(positions, gains))
            except (OSError, ValueError, KeyError) as error:
                _LOG.warning("%s: no samples of this run (%s); kept as %s, lost", path, error, set_aside(path).name)
        return found

    def _path(self, iteration: int) -> Path:
        return self._directory / f"{iteration:06d}.npz"
