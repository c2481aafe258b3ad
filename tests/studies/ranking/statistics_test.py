"""Tau and accuracy by hand, and against scipy; what is resampled."""

import math

import numpy as np
import pytest
from scipy.stats import kendalltau

from studies.ranking.statistics import Truth, agreement, kendall_and_accuracy


def both(costs: list[float], truth: Truth) -> tuple[float, float]:
    tau, accuracy = kendall_and_accuracy(np.array([costs]), truth, np.ones((1, len(costs))))
    return float(tau[0, 0]), float(accuracy[0, 0])


def test_by_hand() -> None:
    truth = Truth.exact([1, 2, 3, 4])
    assert truth.num_decided == 6
    # Of six pairs, one is the wrong way round.
    assert both([1, 2, 4, 3], truth) == pytest.approx(((5 - 1) / 6, 5 / 6))
    # Two pairs are equal: the model tells four apart, the truth six.
    assert both([1, 1, 2, 2], truth) == pytest.approx((4 / math.sqrt(4 * 6), (4 + 0.5 * 2) / 6))
    assert both([4, 3, 2, 1], truth) == (-1, 0)
    assert both([7, 7, 7, 7], truth) == (0, 0.5)


def test_pairs_whose_intervals_overlap_are_not_decided() -> None:
    # The first two overlap; the third touches the second, which is no difference; the fourth is apart.
    truth = Truth(np.array([1.0, 1.1, 1.3, 2.0]), np.array([0.9, 1.0, 1.2, 1.9]), np.array([1.05, 1.2, 1.4, 2.1]))
    expected = {(0, 2), (0, 3), (1, 3), (2, 3)}
    assert {(i, j) for i, j in np.argwhere(truth.decided()).tolist() if i < j} == expected
    assert truth.num_decided == 4
    # Wrong about (0, 1), which does not count, and about (2, 3). All six pairs count for tau.
    assert both([2, 1, 4, 3], truth) == pytest.approx(((4 - 2) / 6, 3 / 4))


def test_nothing_can_be_said_where_all_builds_are_equal() -> None:
    tau, accuracy = both([1, 2], Truth.exact([5, 5]))
    assert math.isnan(tau) and math.isnan(accuracy)
    found = agreement([np.array([[1.0, 2.0]])], [Truth.exact([5, 5])])
    assert math.isnan(found.tau[0].value) and math.isnan(found.accuracy[0].low)


def test_weights_are_repeated_builds() -> None:
    """Against scipy, with each build repeated; a pair of a build with itself is equal in both, so tau-b drops it."""
    rng = np.random.default_rng(1)
    for _ in range(50):
        costs, truth = rng.integers(0, 4, (2, 7)).astype(float)
        weights = rng.integers(0, 3, 7)
        tau, accuracy = kendall_and_accuracy(costs[None], Truth.exact(truth), weights[None].astype(float))
        one, other = np.repeat(costs, weights), np.repeat(truth, weights)
        if len(set(one)) < 2 or len(set(other)) < 2:
            continue
        assert tau[0, 0] == pytest.approx(kendalltau(one, other).statistic)
        pairs = [(i, j) for i in range(len(one)) for j in range(i) if other[i] != other[j]]
        right = sum((one[i] < one[j]) == (other[i] < other[j]) if one[i] != one[j] else 0.5 for i, j in pairs)
        assert accuracy[0, 0] == pytest.approx(right / len(pairs))


def test_programs_are_resampled() -> None:
    truth = Truth.exact([1, 2, 3])
    # The first model is right in one program and wrong in the other, the last one always right.
    costs = [np.array([[1.0, 2, 3], [1, 2, 3]]), np.array([[3.0, 2, 1], [1, 2, 3]])]
    found = agreement(costs, [truth, truth], resamples=1000)
    assert (found.accuracy[0].value, found.accuracy[0].low, found.accuracy[0].high) == (0.5, 0, 1)
    assert (found.tau[0].value, found.tau[0].low, found.tau[0].high) == (0, -1, 1)
    assert (found.accuracy[1].value, found.accuracy[1].low, found.accuracy[1].high) == (1, 1, 1)
    difference = found.accuracy_differences[0]
    assert (difference.value, difference.low, difference.high) == (0.5, 0, 1)
    assert found.by_program[:, 1, 0].tolist() == [1, 0]


def test_builds_of_a_single_program_are_resampled() -> None:
    truth = Truth.exact(list(range(12)))
    rng = np.random.default_rng(2)
    costs = np.stack([np.arange(12) + rng.normal(0, 4, 12), np.arange(12.0)])
    found = agreement([costs], [truth], resamples=1000)
    assert found.accuracy[0].low < found.accuracy[0].value < found.accuracy[0].high < 1
    assert [found.tau[1].value, found.tau[1].low] == pytest.approx([1, 1])
    # A program in which nothing is decided changes nothing.
    again = agreement([costs, costs], [truth, Truth.exact([3] * 12)], resamples=1000)
    assert again.accuracy == found.accuracy and again.tau == found.tau
