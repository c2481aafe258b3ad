"""The search for the modules that break tests, on programs that need no compiler."""

import math
from collections.abc import Collection

import hypothesis
from hypothesis import strategies as st

from compiler_opt.optimize.bisection import MAX_MODULES, smallest_fix

MODULES = [f"m{number}.o" for number in range(40)]


@hypothesis.given(st.lists(st.frozensets(st.sampled_from(MODULES), min_size=1, max_size=3), min_size=1, max_size=5))
def test_no_module_too_many(faults: list[frozenset[str]]) -> None:
    """Each fault needs the policy in all of its modules; it is fixed by compiling one of them plainly."""
    num_builds = 0

    def passes(plain: Collection[str]) -> bool:
        nonlocal num_builds
        num_builds += 1
        return all(fault & set(plain) for fault in faults)

    found, complete = smallest_fix(MODULES, passes)
    assert complete and passes(found)
    assert not any(passes(set(found) - {module}) for module in found)
    assert num_builds <= len(found) * (math.ceil(math.log2(len(MODULES))) + 2) + 1


def test_not_every_module_is_named() -> None:
    def passes(plain: Collection[str]) -> bool:
        return len(set(plain)) >= 20

    found, complete = smallest_fix(MODULES, passes)
    assert not complete and len(found) == MAX_MODULES


def test_one_module() -> None:
    assert smallest_fix(["m"], bool) == (["m"], True)
