"""How far predictions are off: the error of a block or function is |predicted - actual| / actual. N of them."""

import numpy as np

from compiler_opt.evaluation.statistics import PROJECTS, Estimate, percentile_interval

_RESAMPLES = 200


def relative_errors(predicted: np.ndarray, actual: np.ndarray) -> np.ndarray:
    """`[N]` of predictions `[N]`; NaN where nothing is actually there."""
    return np.abs(predicted - actual) / np.where(actual > 0, actual, np.nan)


def median_error(errors: np.ndarray, groups: np.ndarray, rng: np.random.Generator) -> Estimate:
    """The median of errors `[N]`, with an interval over errors that are resampled within groups `[N]`."""
    members = [errors[groups == group] for group in np.unique(groups)]
    resampled = [
        float(np.median(np.concatenate([rng.choice(each, len(each)) for each in members]))) for _ in range(_RESAMPLES)
    ]
    return percentile_interval(float(np.median(errors)), np.array(resampled))


def shown(estimate: Estimate, sign: str = "", sample: str = PROJECTS) -> str:
    """As percentages, with the interval, or why there is none."""
    if not estimate.has_interval:
        return f"{estimate.value:{sign}.1%} (no interval: {sample})"
    return f"{estimate.value:{sign}.1%} ({estimate.low:{sign}.1%} to {estimate.high:{sign}.1%})"
