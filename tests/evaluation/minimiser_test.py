"""The search for the items to blame, on predicates that need no compiler."""

import itertools
import math
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from compiler_opt.evaluation.minimiser import minimised

_ITEMS = range(40)
_SETS = st.frozensets(st.sampled_from(_ITEMS), min_size=1, max_size=3)


@given(st.lists(_SETS, min_size=1, max_size=5))
def test_no_item_too_many(faults: list[frozenset[int]]) -> None:
    """Each fault of a build needs the policy in all of its modules; compiling one of them plainly mends it."""
    num_trials = 0

    def holds(some: Sequence[int]) -> bool:
        nonlocal num_trials
        num_trials += 1
        return all(fault & set(some) for fault in faults)

    found, suffices = minimised(_ITEMS, holds, is_monotone=True)
    assert suffices and holds(found)
    assert not any(holds(some) for some in itertools.combinations(found, len(found) - 1))
    assert num_trials <= len(found) * (math.ceil(math.log2(len(_ITEMS))) + 2) + 1


@given(st.lists(_SETS, min_size=1, max_size=3), _SETS)
def test_more_items_may_hide_the_effect(alternatives: list[frozenset[int]], hiding: frozenset[int]) -> None:
    def holds(some: Sequence[int]) -> bool:
        left = set(some)
        return any(each <= left for each in alternatives) and not (hiding <= left and len(left) < len(_ITEMS))

    found, suffices = minimised(_ITEMS, holds)
    assert suffices and holds(found)
    assert not any(holds(some) for some in itertools.combinations(found, len(found) - 1))


def test_not_every_item_is_named() -> None:
    found, suffices = minimised(_ITEMS, lambda some: len(some) >= 20, most=8, is_monotone=True)
    assert not suffices and len(found) == 8


def test_one_item() -> None:
    assert minimised(["m"], bool) == (["m"], True)
