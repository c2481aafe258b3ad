"""Simulated cycles of blocks, corrected by what was counted when they ran; see `runtime_annotations`."""

import numpy as np
from sklearn.linear_model import LinearRegression

from compiler_opt.cost_models.throughput.blocks import ANNOTATIONS


class SimulationWithPenalties:
    """Simulated cycles, and a penalty for each event that the simulation leaves out: a sum with factors of at least 0.

    An event that nobody has counted for a block is taken to occur as often as on average where it was counted.

    Attributes:
      scale: the factor of the simulated cycles; also converts units, if the measurements are e.g. in nanoseconds.
      penalties: of each of `ANNOTATIONS`, in the unit of the measurements.
    """

    def __init__(self, simulated: np.ndarray, annotations: np.ndarray, measured: np.ndarray):
        """Fits it by least squares of errors relative to what was measured.

        Args:
          simulated: `[N]` cycles, e.g. labels of llvm-mca.
          annotations: `[N, A]` events per execution, in the order of `ANNOTATIONS`; NaN if unknown.
          measured: `[N]` per execution, positive, in any unit.
        """
        known = np.isfinite(annotations)
        self._usual = np.where(known, annotations, 0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
        inputs = self._inputs(simulated, annotations) / measured[:, None]
        # Columns of similar size: a last-level miss is a thousand times as rare as a cycle.
        sizes = np.sqrt(np.mean(inputs**2, axis=0))
        sizes[sizes == 0] = 1
        regression = LinearRegression(positive=True, fit_intercept=False)
        regression.fit(inputs / sizes, np.ones(len(measured)))
        self._factors = regression.coef_ / sizes
        self.scale = float(self._factors[0])
        self.penalties = dict(zip(ANNOTATIONS, self._factors[1:].tolist(), strict=True))

    def predict(self, simulated: np.ndarray, annotations: np.ndarray) -> np.ndarray:
        """`[N]`, in the unit of the measurements, from simulated cycles `[N]` and annotations `[N, A]`."""
        return self._inputs(simulated, annotations) @ self._factors

    def _inputs(self, simulated: np.ndarray, annotations: np.ndarray) -> np.ndarray:
        return np.column_stack([simulated, np.where(np.isfinite(annotations), annotations, self._usual)])
