"""How well numbers order builds: Kendall's tau-b and pairwise accuracy, with bootstrap intervals.

Legend: K builds of a program, M models, P programs, R resamples. All numbers are costs, lower is better.

Two builds are *decided* if the intervals of their true costs do not overlap. Pairwise accuracy is the part of the
decided pairs that a model orders as they are; a pair to which it gives the same number counts as half. Kendall's tau-b
is over all pairs, decided or not: the pairs in the same order minus those in the opposite one, over the geometric mean
of the pairs that the model, and the truth, tell apart. A model that gives all builds the same number has a tau of 0.

Intervals are percentile bootstrap intervals. With several programs, the figure is the mean over programs, and programs
are resampled: the interval estimates the variation over other programs. With one, its builds are resampled: the
interval estimates the variation over other builds of it. A pair of a build with itself is none.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from compiler_opt.evaluation.statistics import NUM_RESAMPLES, Estimate, percentile_interval


@dataclasses.dataclass(frozen=True)
class Truth:
    """What builds really cost.

    Attributes:
      values: `[K]`.
      low: `[K]` lower bounds of their intervals; the values themselves if they are exact.
      high: `[K]` upper bounds.
    """

    values: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @classmethod
    def exact(cls, values: Sequence[float]) -> "Truth":
        """Costs that are known exactly."""
        found = np.array(values, np.float64)
        return cls(found, found, found)

    def decided(self) -> np.ndarray:
        """`[K, K]` whether two builds differ."""
        return (self.low[:, None] > self.high[None, :]) | (self.high[:, None] < self.low[None, :])

    @property
    def num_decided(self) -> int:
        """Pairs of builds that differ."""
        return int(self.decided().sum()) // 2


@dataclasses.dataclass(frozen=True)
class Agreement:
    """How well each of M models orders the builds of P programs; NaN where nothing can be said.

    Attributes:
      tau: `[M]` Kendall's tau-b.
      accuracy: `[M]` pairwise accuracy.
      tau_differences: `[M]` tau of the last model minus that of each model.
      accuracy_differences: `[M]` the same of accuracies.
      by_program: `[P, 2, M]` tau and accuracy of each program.
    """

    tau: list[Estimate]
    accuracy: list[Estimate]
    tau_differences: list[Estimate]
    accuracy_differences: list[Estimate]
    by_program: np.ndarray


def agreement(costs: Sequence[np.ndarray], truths: Sequence[Truth], *, resamples: int = NUM_RESAMPLES) -> Agreement:
    """Compares costs by models, `[M, K]` for each of P programs, with the truths of these programs."""
    whole = [
        np.stack(kendall_and_accuracy(each, truth, np.ones((1, len(truth.values)))))
        for each, truth in zip(costs, truths, strict=True)
    ]
    by_program = np.array([each[:, 0] for each in whole])  # [P, 2, M]
    rng = np.random.default_rng(0)
    columns = []
    for number in range(2):
        # No program decides a model's figure but not another's.
        rows = np.flatnonzero(np.isfinite(by_program[:, number]).all(axis=1))
        if not len(rows):
            values = resampled = np.full((1, by_program.shape[2]), np.nan)
        elif len(rows) == 1:
            (row,) = rows.tolist()
            size = len(truths[row].values)
            weights = rng.multinomial(size, np.full(size, 1 / size), resamples).astype(np.float64)
            values = by_program[rows, number]
            resampled = kendall_and_accuracy(costs[row], truths[row], weights)[number]
            resampled = resampled[np.isfinite(resampled).all(axis=1)]
        else:
            values = by_program[rows, number].mean(axis=0, keepdims=True)
            resampled = by_program[rows, number][rng.integers(len(rows), size=(resamples, len(rows)))].mean(axis=1)
        last = (values[:, -1:] - values, resampled[:, -1:] - resampled)
        columns += [_estimates(values[0], resampled), _estimates(last[0][0], last[1])]
    tau, tau_differences, accuracy, accuracy_differences = columns
    return Agreement(tau, accuracy, tau_differences, accuracy_differences, by_program)


def kendall_and_accuracy(costs: np.ndarray, truth: Truth, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Kendall's tau-b and the pairwise accuracy, each `[R, M]`; NaN where no build differs from another.

    Args:
      costs: `[M, K]`.
      truth: of the builds.
      weights: `[R, K]` how often each build is there.
    """
    true_order = np.sign(truth.values[:, None] - truth.values[None, :])  # [K, K]
    decided = truth.decided().astype(np.float64)
    taus, accuracies = [], []
    with np.errstate(divide="ignore", invalid="ignore"):
        true_pairs, decided_pairs = _pairs(true_order**2, weights), _pairs(decided, weights)
        for each in costs:
            order = np.sign(each[:, None] - each[None, :])
            pairs = _pairs(order**2, weights)
            tau = _pairs(order * true_order, weights) / np.sqrt(pairs * true_pairs)
            taus.append(np.where((pairs == 0) & (true_pairs > 0), 0.0, tau))
            agrees = decided * ((order == true_order) + 0.5 * (order == 0))
            accuracies.append(_pairs(agrees, weights) / decided_pairs)
    return np.stack(taus, axis=1), np.stack(accuracies, axis=1)


def _pairs(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The sum of `values` `[K, K]` over ordered pairs of builds, each as often as it is there: `[R]`."""
    return np.einsum("rk,rk->r", weights @ values, weights)


def _estimates(values: np.ndarray, resampled: np.ndarray) -> list[Estimate]:
    """For values `[M]` and resamples `[R, M]`."""
    return [percentile_interval(float(value), column) for value, column in zip(values, resampled.T, strict=True)]
