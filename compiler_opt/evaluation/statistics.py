"""Paired comparisons of sizes, of modules or of linked projects, with intervals.

Legend: N modules or projects, R resamples.

Modules (`compare`) are resampled with replacement within their project: the interval estimates the variation over other
modules of the same projects. These are percentile bootstrap intervals (Efron 1979); both sizes of a module stay
together. Projects (`compare_projects`) are few, for which such intervals are too narrow: theirs are by Student's t
(1908), of the mean of the N changes or, of all projects together, of a ratio (Cochran, Sampling Techniques, 1977, 6.3).
They estimate the variation over other projects like these. A single project has none, nor have modules that are the
only ones of their projects.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]

NUM_RESAMPLES = 10_000
CONFIDENCE = 0.95
PROJECTS, MODULES = "one project", "one module in each project"
"""Samples, of projects and of modules, that are too small for an interval."""

_MAX_DRAWS_AT_ONCE = 1 << 22
"""Bounds the memory of the bootstrap to tens of megabytes for any corpus."""


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A number and its interval of confidence `CONFIDENCE`; without bounds (NaN) where nothing is known of it."""

    value: float
    low: float
    high: float

    @property
    def has_interval(self) -> bool:
        return not math.isnan(self.low)


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
    if not len(baseline) == len(other) == len(groups):
        raise ValueError(f"expected sizes of the same modules, found {len(baseline)}, {len(other)} and {len(groups)}")
    before, after, changes = _changes(baseline, other)
    change, mean = relative_change(before.sum(), after.sum()), float(changes.mean()) if len(changes) else 0.0
    if len(set(groups)) == len(groups):
        # All resamples are the same.
        return _comparison(before, after, changes, without_interval(change), without_interval(mean))
    columns = np.stack([before, after, changes], axis=1)  # [N, 3]
    sums = _resampled_sums(columns, np.asarray(groups), np.random.default_rng(seed), resamples)  # [R, 3]
    totals = np.divide(sums[:, 1], sums[:, 0], out=np.ones(resamples), where=sums[:, 0] > 0) - 1.0
    means = sums[:, 2] / float(max(1, len(before)))
    return _comparison(
        before,
        after,
        changes,
        percentile_interval(change, totals),
        percentile_interval(mean, means),
    )


def compare_projects(baseline: Sequence[float], other: Sequence[float]) -> Comparison:
    """Compares two sizes of each of N projects, `[N]` under the default and under another policy."""
    before, after, changes = _changes(baseline, other)
    ratio = 1 + relative_change(before.sum(), after.sum())
    mean_bytes = before.mean() if before.any() else 1.0
    deviations = (after - ratio * before) / mean_bytes  # [N], their mean is 0
    return _comparison(before, after, changes, mean_interval(ratio - 1 + deviations), mean_interval(changes))


def mean_interval(values: Sequence[float] | Floats) -> Estimate:
    """The mean of N numbers, 0 of none, with its interval by Student's t."""
    number = len(values)
    if number < 2:
        return without_interval(float(np.sum(values)))
    mean = float(np.mean(values))
    reach = t_quantile(number - 1) * float(np.std(values, ddof=1)) / math.sqrt(number)
    return Estimate(mean, mean - reach, mean + reach)


def t_quantile(degrees: int) -> float:
    """How far Student's t with that many degrees of freedom is from 0 at most with probability `CONFIDENCE`.

    The probability is a finite sum in the angle arctan(t / sqrt(degrees)) (Abramowitz and Stegun, 26.7.3 and 26.7.4).
    """
    low, high = 0.0, math.pi / 2
    while low < (angle := (low + high) / 2) < high:
        sine, cosine = math.sin(angle), math.cos(angle)
        odd = degrees % 2
        term, total = (sine * cosine if odd else sine), (angle if odd else 0.0)
        for power in range(2 + odd, degrees + 1, 2):
            total += term
            term *= cosine * cosine * (power - 1) / power
        probability = total * 2 / math.pi if odd else total
        low, high = (angle, high) if probability < CONFIDENCE else (low, angle)
    return math.tan(low) * math.sqrt(degrees)


def percentile_interval(value: float, resampled: Floats) -> Estimate:
    """A number, and the interval that holds `CONFIDENCE` of its resamples `[R]`, as much of them below as above."""
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(resampled, [tail, 1 - tail])
    return Estimate(float(value), float(low), float(high))


def without_interval(value: float) -> Estimate:
    """A number of whose interval nothing is known."""
    return Estimate(value, math.nan, math.nan)


def to_json(value: Any) -> Any:
    """A dataclass of results, or a value in it, as JSON values; what is unknown (NaN) is null."""
    if isinstance(value, Mapping):
        return {name: to_json(item) for name, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return to_json(dataclasses.asdict(value))
    return None if isinstance(value, float) and math.isnan(value) else value


def _changes(baseline: Sequence[float], other: Sequence[float]) -> tuple[Floats, Floats, Floats]:
    """Both sizes, and the relative changes, `[N]` each."""
    before, after = np.asarray(baseline, np.float64), np.asarray(other, np.float64)
    return before, after, np.divide(after, before, out=np.ones_like(after), where=before > 0) - 1.0


def _comparison(before: Floats, after: Floats, changes: Floats, total: Estimate, mean: Estimate) -> Comparison:
    return Comparison(
        total=total,
        mean=mean,
        median=float(np.median(changes)) if len(changes) else 0.0,
        wins=int((after < before).sum()),
        losses=int((after > before).sum()),
        ties=int((after == before).sum()),
    )


def _resampled_sums(columns: Floats, groups: NDArray[np.str_], rng: np.random.Generator, resamples: int) -> Floats:
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
