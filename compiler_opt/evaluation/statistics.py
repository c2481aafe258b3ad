"""Paired comparisons of sizes, of modules or of linked projects, with bootstrap intervals.

Legend: N modules or projects, R resamples.

Modules (`compare`) are resampled with replacement within their project: the interval estimates the variation over other
modules of the same projects. Linked projects (`compare_projects`) are resampled themselves: the interval estimates the
variation over other projects like these. It is wide, as projects are few; of a single project it is empty. Both sizes
of a module or project stay together. Intervals are percentile bootstrap intervals (Efron 1979).
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

NUM_RESAMPLES = 10_000
CONFIDENCE = 0.95

_MAX_DRAWS_AT_ONCE = 1 << 22
"""Bounds the memory of the bootstrap to tens of megabytes for any corpus."""


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A number and its bootstrap interval of confidence `CONFIDENCE`."""

    value: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Sizes of the same N modules or projects under two compilers; changes are relative, negative is smaller.

    Attributes:
      total: change of the sum of the sizes: large ones count more.
      mean: mean of their changes: all count the same.
      median: median of their changes.
      wins: how many got smaller.
      losses: how many got bigger.
      ties: how many have the same size.
    """

    total: Estimate
    mean: Estimate
    median: float
    wins: int
    losses: int
    ties: int


def relative_change(baseline: float, other: float) -> float:
    """`other / baseline - 1`: -0.01 is one percent smaller; 0 if the baseline is 0."""
    return other / baseline - 1 if baseline > 0 else 0.0


def compare(
    baseline: Sequence[float],
    other: Sequence[float],
    groups: Sequence[str],
    *,
    seed: int = 0,
    resamples: int = NUM_RESAMPLES,
) -> Comparison:
    """Compares two sizes of each module.

    Args:
      baseline: `[N]` sizes under the default.
      other: `[N]` sizes of the same modules.
      groups: `[N]` names of their projects.
      seed: seed of the resampling.
      resamples: R.
    """
    before, after = np.asarray(baseline, np.float64), np.asarray(other, np.float64)
    if not len(before) == len(after) == len(groups):
        raise ValueError(f"expected sizes of the same modules, found {len(before)}, {len(after)} and {len(groups)}")
    changes = np.divide(after, before, out=np.ones_like(after), where=before > 0) - 1  # [N]
    columns = np.stack([before, after, changes], axis=1)  # [N, 3]
    sums = _resampled_sums(columns, np.asarray(groups), np.random.default_rng(seed), resamples)  # [R, 3]
    totals = np.divide(sums[:, 1], sums[:, 0], out=np.ones(resamples), where=sums[:, 0] > 0) - 1.0
    means = sums[:, 2] / float(max(1, len(before)))
    return Comparison(
        total=percentile_interval(relative_change(before.sum(), after.sum()), totals),
        mean=percentile_interval(float(changes.mean()) if len(changes) else 0.0, means),
        median=float(np.median(changes)) if len(changes) else 0.0,
        wins=int((after < before).sum()),
        losses=int((after > before).sum()),
        ties=int((after == before).sum()),
    )


def compare_projects(
    baseline: Sequence[float], other: Sequence[float], *, seed: int = 0, resamples: int = NUM_RESAMPLES
) -> Comparison:
    """Compares two sizes of each of N projects, `[N]` under the default and under another policy."""
    # As if the projects were the modules of one project.
    return compare(baseline, other, [""] * len(baseline), seed=seed, resamples=resamples)


def percentile_interval(value: float, resampled: NDArray[np.float64]) -> Estimate:
    """A number, and the interval that holds `CONFIDENCE` of its resamples `[R]`, as much of them below as above."""
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(resampled, [tail, 1 - tail])
    return Estimate(float(value), float(low), float(high))


def _resampled_sums(
    columns: NDArray[np.float64], groups: NDArray[np.str_], rng: np.random.Generator, resamples: int
) -> NDArray[np.float64]:
    """Sums over each resample's modules: columns `[N, C]` -> `[R, C]`."""
    sums = np.zeros((resamples, columns.shape[1]))
    for group in np.unique(groups):
        members = columns[groups == group]  # [M, C]
        step = max(1, _MAX_DRAWS_AT_ONCE // len(members))
        for start in range(0, resamples, step):
            count = min(step, resamples - start)
            drawn = rng.integers(0, len(members), (count, len(members)))  # [step, M]
            for column in range(columns.shape[1]):
                sums[start : start + count, column] += members[:, column][drawn].sum(axis=1)
    return sums
