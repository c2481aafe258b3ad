"""Comparisons by visible arithmetic, and intervals against all possible resamples, or against scipy's."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from compiler_opt.evaluation.statistics import (
    CONFIDENCE,
    compare,
    compare_projects,
    mean_interval,
    relative_change,
    t_quantile,
    to_json,
)


def test_relative_change_is_negative_when_smaller() -> None:
    assert relative_change(200, 190) == pytest.approx(-0.05)
    assert relative_change(0, 10) == 0.0


def test_totals_means_and_counts() -> None:
    comparison = compare([100, 300, 50], [90, 330, 50], ["p", "p", "q"], resamples=10)
    assert comparison.total.value == pytest.approx((90 + 330 + 50) / (100 + 300 + 50) - 1)
    assert comparison.mean.value == pytest.approx((-10 / 100 + 30 / 300 + 0) / 3)
    assert comparison.median == 0
    assert (comparison.wins, comparison.losses, comparison.ties) == (1, 1, 1)


def test_equal_sizes_are_ties_with_empty_intervals() -> None:
    comparison = compare([10, 20], [10, 20], ["p", "p"])
    assert (comparison.total.value, comparison.total.low, comparison.total.high) == (0, 0, 0)
    assert comparison.ties == 2


def test_a_size_of_zero_is_no_change() -> None:
    assert compare([0, 10], [0, 10], ["p", "p"]).mean.value == 0


def test_no_modules() -> None:
    comparison = compare([], [], [])
    assert (comparison.total.value, comparison.mean.value, comparison.median) == (0, 0, 0)


def test_sizes_of_different_modules_are_refused() -> None:
    with pytest.raises(ValueError, match="same modules"):
        compare([1, 2], [1], ["p", "p"])


def exact_quantiles(values: list[float]) -> tuple[float, float]:
    """The interval of all resamples, which are equally likely."""
    tail = (1 - CONFIDENCE) / 2
    ordered = sorted(values)
    return ordered[round(tail * (len(ordered) - 1))], ordered[round((1 - tail) * (len(ordered) - 1))]


def test_the_interval_matches_all_possible_resamples() -> None:
    """Four modules of one project and two of another: 4**4 * 2**2 = 1,024 equally likely resamples within projects."""
    before = [100.0, 210.0, 330.0, 460.0, 590.0, 720.0]
    after = [95.0, 230.0, 310.0, 470.0, 540.0, 715.0]
    groups = ["p", "p", "p", "p", "q", "q"]
    totals, means = [], []
    for of_p in itertools.product(range(4), repeat=4):
        for of_q in itertools.product((4, 5), repeat=2):
            drawn = (*of_p, *of_q)
            totals.append(sum(after[i] for i in drawn) / sum(before[i] for i in drawn) - 1)
            means.append(sum(after[i] / before[i] - 1 for i in drawn) / 6)
    comparison = compare(before, after, groups, resamples=100_000)
    assert (comparison.total.low, comparison.total.high) == pytest.approx(exact_quantiles(totals), abs=1e-3)
    assert (comparison.mean.low, comparison.mean.high) == pytest.approx(exact_quantiles(means), abs=1e-3)


def test_projects_keep_their_weight() -> None:
    """A project of one module is in every resample, so it adds no uncertainty."""
    comparison = compare([100, 100, 100], [50, 100, 100], ["p", "q", "q"])
    assert comparison.total.low == comparison.total.high == pytest.approx(-50 / 300)


def test_nothing_is_known_of_other_modules_by_one_in_each_project() -> None:
    comparison = compare([100, 100], [50, 100], ["p", "q"])
    assert (comparison.total.value, comparison.mean.value) == pytest.approx((-0.25, -0.25))
    assert not comparison.total.has_interval and not comparison.mean.has_interval


def test_intervals_over_projects_are_by_students_t() -> None:
    before, after = [100.0, 200.0, 700.0, 30.0, 410.0], [90.0, 204.0, 693.0, 29.0, 416.0]
    comparison = compare_projects(before, after)
    changes = [-10 / 100, 4 / 200, -7 / 700, -1 / 30, 6 / 410]
    assert comparison.total.value == pytest.approx((90 + 204 + 693 + 29 + 416) / 1440 - 1)
    assert comparison.mean.value == pytest.approx(sum(changes) / 5)
    expected = stats.t.interval(CONFIDENCE, 4, np.mean(changes), stats.sem(changes))
    assert (comparison.mean.low, comparison.mean.high) == pytest.approx(expected)
    # Together: what each project has more than all together would have it have, in units of the mean project.
    deviations = [(b - a * 1432 / 1440) / 288 for a, b in zip(before, after, strict=True)]
    expected = stats.t.interval(CONFIDENCE, 4, -8 / 1440, stats.sem(deviations))
    assert (comparison.total.low, comparison.total.high) == pytest.approx(expected)


def test_nothing_is_known_of_other_projects_by_one() -> None:
    of_one = compare_projects([100], [90])
    assert of_one.mean.value == of_one.total.value == pytest.approx(-0.1)
    assert not of_one.mean.has_interval and not of_one.total.has_interval
    assert to_json(of_one)["mean"] == {"value": pytest.approx(-0.1), "low": None, "high": None}
    assert compare_projects([100, 100], [90, 90]).mean.has_interval


def test_intervals_hold_the_mean_as_often_as_they_say() -> None:
    """2,000 samples of seven projects of a population with mean -2%; the percentile bootstrap holds it in 88%."""
    changes = np.random.default_rng(1).normal(-0.02, 0.03, (2000, 7))
    found = [mean_interval(sample) for sample in changes]
    assert sum(each.low <= -0.02 <= each.high for each in found) / 2000 == pytest.approx(0.95, abs=0.015)


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 5, 10, 19, 60, 1001])
def test_quantiles_of_students_t(degrees: int) -> None:
    assert t_quantile(degrees) == pytest.approx(stats.t.ppf((1 + CONFIDENCE) / 2, degrees), rel=1e-9)


def test_the_same_seed_gives_the_same_interval() -> None:
    rng = np.random.default_rng(1)
    before, after = rng.uniform(1, 9, 50).tolist(), rng.uniform(1, 9, 50).tolist()
    groups = ["p"] * 50
    assert compare(before, after, groups, seed=3) == compare(before, after, groups, seed=3)
    assert compare(before, after, groups, seed=3).total != compare(before, after, groups, seed=4).total


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6), st.sampled_from("pqr")), max_size=30))
def test_intervals_are_ordered_and_counts_add_up(modules: list[tuple[int, int, str]]) -> None:
    before, after, groups = [list(column) for column in zip(*modules, strict=True)] if modules else ([], [], [])
    comparison = compare(before, after, groups, resamples=50)
    assert comparison.wins + comparison.losses + comparison.ties == len(modules)
    for estimate in (comparison.total, comparison.mean):
        assert estimate.has_interval == (len(set(groups)) < len(groups)) and np.isfinite(estimate.value)
        assert estimate.low <= estimate.high or not estimate.has_interval
