"""A factor that makes sums of predicted sizes unbiased.

A model that is fitted for the least relative error predicts something like a median, and the sum of medians is not the
sum. The factor is that with which the sums of projects, predicted by models that were not fitted to them, are right in
the mean of projects. Functions that vanish after the cut count as 0 bytes. P projects, N functions.
"""

from collections.abc import Sequence

import numpy as np

from compiler_opt.errors import ConfigError


def project_sums(values: np.ndarray, projects: np.ndarray) -> tuple[list[str], np.ndarray]:
    """The P projects of values `[N]`, whose projects are `[N]`, and their sums `[P]`."""
    names, index = np.unique(projects, return_inverse=True)
    return [str(name) for name in names], np.bincount(index, weights=values, minlength=len(names))


def calibration_factor(predicted: np.ndarray, actual: np.ndarray) -> float:
    """The factor that makes the mean over projects of predicted over actual sums, `[P]` each, one.

    Raises:
      ConfigError: no project has any bytes.
    """
    has_bytes = (actual > 0) & (predicted > 0)
    if not has_bytes.any():
        raise ConfigError("calibration: expected projects with functions, found none")
    return 1.0 / float((predicted[has_bytes] / actual[has_bytes]).mean())


def folds(projects: Sequence[str], count: int, seed: int) -> list[set[str]]:
    """The projects in `count` parts, or fewer if there are fewer projects, at random."""
    names = sorted(set(projects))
    order = np.random.default_rng(seed).permutation(len(names))
    parts = [{names[index] for index in order[number::count]} for number in range(count)]
    return [part for part in parts if part]
