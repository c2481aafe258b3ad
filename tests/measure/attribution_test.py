from pathlib import Path

import pytest

from compiler_opt.measure.attribution import Attribution
from compiler_opt.measure.callgrind import Calls, Counts, Function, Profile, run_profiled
from tests.measure.running import built

LIBRARY = Function("/lib.so", "strcmp")


def own(symbol: str) -> Function:
    return Function("/bench", symbol)


def profile(costs: dict[Function, int], calls: dict[tuple[Function, Function], tuple[int, int]]) -> Profile:
    """Own costs by function; number and inclusive cost by call."""
    return Profile(
        Counts(sum(costs.values())),
        {function: Counts(cost) for function, cost in costs.items()},
        {edge: Calls(number, Counts(cost)) for edge, (number, cost) in calls.items()},
    )


def attribution(base: Profile) -> Attribution:
    return Attribution(base, lambda counts: counts.instructions, lambda path: path == "/bench")


START = Function("/libc.so", "start")
BASE = profile(
    {own("main"): 100, own("f"): 50, own("g"): 30, LIBRARY: 20},
    {
        (START, own("main")): (1, 200),
        (own("main"), own("f")): (10, 80),
        (own("main"), own("g")): (5, 10),
        (own("f"), own("g")): (10, 20),
        (own("f"), LIBRARY): (20, 20),
    },
)


def test_nothing_has_changed_in_the_same_build() -> None:
    assert all(abs(change) < 1e-9 for change in attribution(BASE).changes(BASE).values())


def test_charges_the_caller_with_what_was_inlined_into_it() -> None:
    """g is inlined into f: 10 calls of it, at 2 each, are gone, and f has 8 more. Saved: 20 - 8 = 12, by f."""
    after = profile(
        {own("main"): 100, own("f"): 58, own("g"): 10, LIBRARY: 20},
        {
            (START, own("main")): (1, 188),
            (own("main"), own("f")): (10, 78),
            (own("main"), own("g")): (5, 10),
            (own("f"), LIBRARY): (20, 20),
        },
    )
    changes = attribution(BASE).changes(after)
    assert changes == pytest.approx({"main": 0, "f": 58 - 50 - 20, "g": 0})
    assert sum(changes.values()) == pytest.approx(after.total.instructions - BASE.total.instructions)


def test_a_library_that_got_slower_is_nobodys_change() -> None:
    functions = {**BASE.functions, LIBRARY: Counts(500)}
    changes = attribution(BASE).changes(Profile(Counts(680), functions, BASE.calls))
    assert changes == pytest.approx({"main": 0, "f": 0, "g": 0})


def test_a_new_function_is_charged_to_its_callers() -> None:
    """f calls h, which had been inlined into it: 10 calls of 3 instructions, for 20 own instructions less."""
    after = profile(
        {**{f: c.instructions for f, c in BASE.functions.items()}, own("f"): 30, own("h"): 30},
        {**{e: (c.number, c.inclusive.instructions) for e, c in BASE.calls.items()}, (own("f"), own("h")): (10, 30)},
    )
    assert attribution(BASE).changes(after) == pytest.approx({"main": 0, "f": 30 - 50 + 30, "g": 0, "h": 0})


def test_what_is_left_out_of_the_program_costs_nothing() -> None:
    assert attribution(BASE).own_cost(BASE) == 100 + 50 + 30


RECURSIVE = """
#include <stdio.h>
#define INLINE %s
static INLINE int leaf(int x) { int s = 0; for (int i = 0; i < 5; i++) s = s * 31 + (x ^ i); return s; }
static __attribute__((noinline)) int odd(int n);
static __attribute__((noinline)) int even(int n) { return n ? leaf(n) + odd(n - 1) : 0; }
static __attribute__((noinline)) int odd(int n) { return n ? even(n - 1) + (n %% 3 ? odd(n / 2) : 1) : 1; }
int main(void) { int s = 0; for (int i = 0; i < 9; i++) s += even(i * 3); printf("%%d\\n", s); }
"""


@pytest.mark.ci
def test_changes_of_a_recursive_program_add_up(tmp_path: Path) -> None:
    """Mutual recursion in a real program: the only function whose code has changed has all of the change."""
    profiles = []
    for name, attribute in (("call", "__attribute__((noinline))"), ("inline", "__attribute__((always_inline))")):
        program = built(tmp_path / name, RECURSIVE % attribute)
        run = run_profiled([str(program)], scratch=tmp_path)
        assert run.profile is not None
        profiles.append(run.profile)
    base, other = profiles
    attribution = Attribution(base, lambda counts: counts.instructions, lambda file: file.startswith(str(tmp_path)))
    changes = attribution.changes(other)
    saved = attribution.own_cost(other) - attribution.own_cost(base)
    assert saved < -50
    assert changes["even"] == pytest.approx(saved, abs=1)
    assert sum(changes.values()) == pytest.approx(saved, abs=1)
    assert changes["odd"] == pytest.approx(0, abs=1)
