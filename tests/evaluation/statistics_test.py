"""Comparisons by visible arithmetic, and intervals against all possible resamples."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler_opt.evaluation.statistics import CONFIDENCE, compare, compare_projects, relative_change


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
    comparison = compare([100, 100], [50, 100], ["p", "q"])
    assert comparison.total.low == comparison.total.high == pytest.approx(-0.25)


def test_projects_are_resampled_themselves() -> None:
    """Five linked projects: 5**5 = 3,125 equally likely resamples, in which the change of a large one weighs more."""
    before, after = [100.0, 200.0, 700.0, 30.0, 410.0], [90.0, 204.0, 693.0, 29.0, 416.0]
    comparison = compare_projects(before, after, resamples=100_000)
    drawn = list(itertools.product(range(5), repeat=5))
    means = [sum(after[i] / before[i] - 1 for i in each) / 5 for each in drawn]
    totals = [sum(after[i] for i in each) / sum(before[i] for i in each) - 1 for each in drawn]
    assert comparison.total.value == pytest.approx((90 + 204 + 693 + 29 + 416) / 1440 - 1)
    assert comparison.mean.value == pytest.approx((-10 / 100 + 4 / 200 - 7 / 700 - 1 / 30 + 6 / 410) / 5)
    assert (comparison.mean.low, comparison.mean.high) == pytest.approx(exact_quantiles(means), abs=1e-3)
    assert (comparison.total.low, comparison.total.high) == pytest.approx(exact_quantiles(totals), abs=1e-3)
    assert compare_projects([100], [90]).total.low == pytest.approx(-0.1)


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
        assert np.isfinite([estimate.value, estimate.low, estimate.high]).all()
        assert estimate.low <= estimate.high
