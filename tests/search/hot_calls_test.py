"""Which calls a profile says to inline."""

from compiler_opt.policies.decisions import Site
from compiler_opt.search.builds import Compiled, build_of
from compiler_opt.search.hot_calls import decisions_for, hot_pairs
from compiler_opt.search.moves import Hotness
from tests.search.simulator import Function, Simulator

SIZES = {"main": 100, "f": 50, "g": 40, "h": 30}
HOTNESS = Hotness(
    frozenset(SIZES),
    {("main", "f"): 60.0, ("f", "g"): 30.0, ("main", "g"): 15.0, ("g", "h"): 10.0, ("f", "f"): 1000.0},
)


def test_calls_that_save_their_size_are_inlined() -> None:
    # `f` saves 60 of 50 bytes; main then also has f's calls of `g`: 15 + 60 / 1060 of f's calls times 30, below 40.
    assert hot_pairs(HOTNESS, SIZES, 1.0) == {("main", "f")}


def test_more_of_them_with_a_larger_ratio() -> None:
    # Of `g`: (f, g) saves 30 of 40 bytes; twice that is enough. Of `h`: 10 of 30 bytes.
    assert hot_pairs(HOTNESS, SIZES, 2.0) == {("main", "f"), ("f", "g")}
    assert hot_pairs(HOTNESS, SIZES, 3.0) == {("main", "f"), ("f", "g"), ("main", "g"), ("g", "h")}


def test_calls_that_appear_by_inlining_count_for_their_share() -> None:
    """Nine of ten calls of `f` are in `main`, so nine of ten of its calls of `g` would be."""
    hotness = Hotness(frozenset(SIZES), {("main", "f"): 90.0, ("h", "f"): 10.0, ("f", "g"): 50.0})
    assert ("main", "g") in hot_pairs(hotness, {**SIZES, "g": 45}, 1.0)
    assert ("main", "g") not in hot_pairs(hotness, {**SIZES, "g": 46}, 1.0)


def test_functions_of_unknown_size_are_left_alone() -> None:
    assert hot_pairs(HOTNESS, {}, 100.0) == set()


def test_decides_on_the_known_calls_and_on_some_that_may_appear() -> None:
    main = Function("main", 100, ("f", "f", "g"))
    module = (Function("g", 60), Function("f", 50, ("g",)), main)
    compiled = Simulator([module]).compile({0: {}})[0]
    assert isinstance(compiled, Compiled)
    build = build_of(compiled, 0, {})
    decisions = decisions_for({("main", "f"), ("elsewhere", "g")}, build)
    assert set(decisions.values()) == {1}
    assert {Site("main", main.body, "f", ordinal) for ordinal in (0, 1)} <= decisions.keys()
    assert {(site.caller, site.callee) for site in decisions} == {("main", "f")}
    again = Simulator([module]).compile({0: decisions})[0]
    assert isinstance(again, Compiled)
    inlined = {(s.caller, s.callee): done for s, done in zip(again.sites, again.inlined, strict=True)}
    assert inlined["main", "f"] and not inlined["f", "g"]
