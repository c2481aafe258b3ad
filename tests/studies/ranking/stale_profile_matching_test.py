"""The profile of a base build, matched to other builds, with numbers that follow from it."""

import numpy as np

from studies.ranking.stale_profile_matching import match_profile
from tests.cost_models.samples import block
from tests.studies.ranking.samples import build

MAIN = block("main", 0, 1)


def test_the_base_build_is_what_was_measured() -> None:
    base = build(
        [MAIN, block("f", 0, 10), block("f", 1, 200, 8), block("g", 0, 270, misses=3)], [(0, 1), (2, 2), (1, 1)]
    )
    found = match_profile(base, base)
    assert found.counts.tolist() == [1, 10, 200, 270]
    assert found.annotations[3].tolist() == [0, 3, 0, 0]
    assert found.is_measured.all() and not found.is_lost.any()


def test_another_register_allocation_keeps_counts_and_annotations() -> None:
    loop = [block("f", number, 200, 8, misses=2) for number in range(1, 6)]
    base = build([block("f", 0, 10), *loop])
    after = [block("f", number, 0, 8) for number in range(1, 6)]
    found = match_profile(base, build([block("f", 0, 0), *after, block("f", 9, 0, 2)]))
    assert found.counts[:6].tolist() == [10, 200, 200, 200, 200, 200]
    assert found.annotations[1].tolist() == [0, 2, 0, 0]
    # A block that was added runs twice per call by estimate. For the function, estimates are too low by the factor
    # (10 + 5 * 200) / (10 * (1 + 5 * 8)).
    assert found.counts[6] == 10 * 2 * (10 + 5 * 200) / (10 * (1 + 5 * 8))
    assert np.isnan(found.annotations[6]).all()
    assert found.is_measured.tolist() == [True] * 6 + [False]


def test_an_added_block_runs_like_those_of_its_frequency() -> None:
    entry, first, second = block("f", 0, 10), block("f", 1, 200, 8), block("f", 2, 100, 8)
    others = [block("f", number, 10) for number in range(3, 9)]
    base = build([entry, first, second, *others, block("f", 9, 50, 4)])
    found = match_profile(base, build([entry, first, second, *others, block("f", 9, 0, 8)]))
    # What is number 9 is another block here: it is as frequent as the first and the second.
    assert found.counts[-1] == (200 + 100) / 2
    assert not found.is_measured[-1] and found.is_lost.tolist() == [False] * 9 + [True]


def test_other_frequencies_mean_other_code() -> None:
    base = build([block("f", 0, 10), block("f", 1, 300, 8), block("f", 2, 10, 1)])
    found = match_profile(base, build([block("f", 0, 0), block("f", 1, 0, 2), block("f", 2, 0, 1)]))
    # Estimates are too low by (10 + 300 + 10) / (10 * (1 + 8 + 1)) = 3.2.
    assert found.counts.tolist() == [10 * 3.2 * 1, 10 * 3.2 * 2, 10 * 3.2 * 1]
    assert np.isnan(found.annotations).all() and found.is_lost.all() and not found.is_measured.any()


def test_a_function_that_is_inlined_is_called_less() -> None:
    # `g` runs 70 times: 40 and 20 by two direct calls, which are estimated as 4 and 2, and 10 through a pointer.
    callers = [block("f", 0, 1), block("f", 1, 40, 4), block("f", 2, 20, 2)]
    base = build([*callers, block("g", 0, 70)], [(1, 1), (2, 1)])
    inlined = build([*callers, block("g", 0, 0)], [(2, 1)])
    assert match_profile(base, inlined).counts[3] == 10 + (40 + 20) * 2 / (4 + 2)
    assert match_profile(base, build([*callers, block("g", 0, 0)])).counts[3] == 10


def test_a_function_that_is_no_longer_inlined_is_called_by_its_callers() -> None:
    base = build([block("f", 0, 5), block("f", 1, 100, 4)])
    found = match_profile(
        base, build([block("f", 0, 0), block("f", 1, 0, 4), block("new", 0, 0), block("new", 1, 0, 3)], [(1, 1)])
    )
    assert found.counts.tolist() == [5, 100, 100, 300]


def test_estimates_of_callers_cancel() -> None:
    """Between `f` and `g`, a function comes that was inlined: calls of `g` are estimated the same, and stay."""
    base = build([block("f", 0, 1), block("f", 1, 5000, 10), block("g", 0, 5000)], [(1, 1)])
    blocks = [
        block("f", 0, 0),
        block("f", 2, 0, 5),
        block("between", 0, 0),
        block("between", 1, 0, 2),
        block("g", 0, 0),
    ]
    assert match_profile(base, build(blocks, [(1, 1), (3, 2)])).counts[4] == 5000


def test_recursion_stays_as_it_was_measured() -> None:
    base = build([MAIN, block("f", 0, 100), block("f", 1, 99, 2)], [(0, 1), (2, 1)])
    assert match_profile(base, base).counts.tolist() == [1, 100, 99]
    # Two functions that call each other, in the other build only.
    other = build([MAIN, block("f", 0, 0), block("f", 1, 0, 3), block("h", 0, 0)], [(0, 1), (2, 2), (3, 1)])
    assert np.isfinite(match_profile(base, other).counts).all()


def test_functions_of_one_name_keep_their_order() -> None:
    base = build([block("f", 0, 3), block("f", 0, 4), block("f", 1, 8)])
    assert base.names() == [("f", 0), ("f", 1)] and base.entries.tolist() == [0, 1]
    assert match_profile(base, base).counts.tolist() == [3, 4, 8]


def test_what_did_not_run_does_not_run() -> None:
    base = build([block("f", 0, 0, misses=np.nan), block("g", 0, 2)])
    other = build([block("f", 0, 0), block("f", 1, 0), block("g", 0, 0)])
    assert match_profile(base, other).counts.tolist() == [0, 0, 2]
