"""Changes of functions, attributed to the decisions at which two builds differ."""

from collections.abc import Mapping

import hypothesis
import pytest
from hypothesis import strategies as st

from compiler_opt.evaluation.attribution import CompiledModule, DecisionChange, attribute
from compiler_opt.llvm.object_file import ObjectSizes
from compiler_opt.policies.decisions import Site


def site(caller: str, callee: str, ordinal: int = 0) -> Site:
    return Site(caller, 1, callee, ordinal)


def module(
    name: str, functions: Mapping[str, int], inlined: Mapping[Site, bool], comdat: tuple[str, ...] = ()
) -> CompiledModule:
    sizes = ObjectSizes(sum(functions.values()), {}, dict(functions), {each: each for each in comdat})
    return CompiledModule(name, sizes, dict(inlined))


F_G, F_H, G_H = site("f", "g"), site("f", "h"), site("g", "h")


def test_one_decision_explains_its_caller_exactly() -> None:
    first = module("m", {"f": 100, "g": 40, "other": 7}, {F_G: False, F_H: False})
    second = module("m", {"f": 130, "g": 40, "other": 7}, {F_G: True, F_H: False})
    found = attribute([first], [second])
    assert found.decisions == (DecisionChange(F_G, False, True, ("m",), 30, 0, 1),)
    [function] = found.functions
    assert (function.name, function.change, function.decisions) == ("f", 30, (F_G,))
    assert (found.num_differing, found.unattributed_bytes) == (1, 0)


def test_a_function_that_vanishes_counts_for_the_decision_on_its_call() -> None:
    first = module("m", {"f": 100, "g": 40}, {F_G: False})
    second = module("m", {"f": 130}, {F_G: True})
    [decision] = attribute([first], [second]).decisions
    assert (decision.change, decision.kind, decision.num_functions) == (30 - 40, "exact", 2)


def test_what_follows_from_a_decision_counts_for_it() -> None:
    """Inlining `g` into `f` copies its call of `h`, which is inlined, too: no such call is in the first build."""
    first = module("m", {"f": 100, "g": 40, "h": 20}, {G_H: False, F_G: False})
    second = module("m", {"f": 150, "g": 40, "h": 20}, {G_H: False, F_G: True, F_H: True})
    found = attribute([first], [second])
    assert [(each.site, each.change, each.kind) for each in found.decisions] == [(F_G, 50, "exact")]
    assert found.num_differing == 1


def test_a_part_of_a_coroutine_depends_on_the_decisions_in_the_coroutine() -> None:
    """LLVM splits `f` after inlining `g` into it, so that `f.resume` has another body, and its calls other sites."""
    before, after = Site("f.resume", 1, "h", 0), Site("f.resume", 2, "h", 0)
    for calls in ({}, {}), ({before: True}, {after: True}):
        first = module("m", {"f": 50, "f.resume": 60}, {F_G: False, **calls[0]})
        second = module("m", {"f": 50, "f.resume": 90}, {F_G: True, **calls[1]})
        found = attribute([first], [second])
        assert [(each.site, each.change, each.kind) for each in found.decisions] == [(F_G, 30, "exact")]


def test_a_part_of_a_coroutine_that_vanishes_counts_for_the_decision_on_the_coroutine() -> None:
    g_f = site("g", "f")
    first = module("m", {"g": 10, "f": 50, "f.resume": 60}, {g_f: False})
    second = module("m", {"g": 30}, {g_f: True})
    [decision] = attribute([first], [second]).decisions
    assert (decision.change, decision.kind, decision.num_functions) == (20 - 50 - 60, "exact", 3)


def test_several_decisions_share_a_change() -> None:
    """`f` depends on the decision in `g`, which is inlined into it in both builds."""
    first = module("m", {"f": 100, "g": 40}, {G_H: False, F_G: True, F_H: False})
    second = module("m", {"f": 160, "g": 50}, {G_H: True, F_G: True, F_H: True})
    found = {each.site: each for each in attribute([first], [second]).decisions}
    assert (found[G_H].exact_bytes, found[G_H].shared_bytes, found[G_H].kind) == (10, 30, "partly shared")
    assert (found[F_H].exact_bytes, found[F_H].shared_bytes, found[F_H].kind) == (0, 30, "shared")


def test_copies_of_a_comdat_function_count_once() -> None:
    """Three modules emit `f` in the first build, two in the second, where it is larger."""
    before = [module(name, {"f": 30}, {F_G: False}, ("f",)) for name in "abc"]
    after = [module(name, {"f": 50}, {F_G: True}, ("f",)) for name in "ab"]
    found = attribute(before, [*after, module("c", {}, {F_G: True})])
    [function] = found.functions
    assert (round(function.first_bytes), round(function.second_bytes), function.num_modules) == (30, 50, 3)
    [decision] = found.decisions
    assert round(decision.change) == 20 and decision.modules == ("a", "b", "c")


def test_changes_without_a_decision_are_not_attributed() -> None:
    found = attribute([module("m", {"f": 10}, {})], [module("m", {"f": 12}, {})])
    assert (found.decisions, found.unattributed_bytes, found.change) == ((), 2, 2)


NAMES = st.sampled_from("fghk")
SITES = st.builds(site, NAMES, NAMES, st.integers(0, 1))
MODULES = st.builds(
    module,
    st.just("m"),
    st.dictionaries(NAMES, st.integers(1, 99)),
    st.dictionaries(SITES, st.booleans(), max_size=12),
    st.lists(NAMES).map(tuple),
)


@pytest.mark.ci
@hypothesis.given(st.lists(st.tuples(MODULES, MODULES), max_size=3))
def test_all_changes_are_accounted_for(pairs: list[tuple[CompiledModule, CompiledModule]]) -> None:
    found = attribute([first for first, _ in pairs], [second for _, second in pairs])
    explained = sum(decision.change for decision in found.decisions) + found.unattributed_bytes
    assert abs(explained - found.change) < 1e-6
    for decision in found.decisions:
        assert decision.first != decision.second
