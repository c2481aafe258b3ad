"""The COMDAT-weighted score and credit per decision, by arithmetic that can be followed."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from compiler_opt.decisions.inlining import PROBLEM
from compiler_opt.decisions.inlining.credit import decision_credit
from compiler_opt.llvm.object_file import ObjectSizes
from compiler_opt.llvm.remarks import CallSites
from compiler_opt.objectives.linked_text import (
    comdat_copies,
    function_weights,
    larger_copies,
    weighted_text_bytes,
)

ONE = ObjectSizes(
    text_bytes=100,
    comdats={"shared": 40, "mine": 10},
    functions={"shared": 30, "shared_alias": 30, "mine": 10, "main": 50},
    function_comdats={"shared": "shared", "shared_alias": "shared", "mine": "mine"},
)
OTHER = ObjectSizes(
    text_bytes=60, comdats={"shared": 40}, functions={"shared": 30}, function_comdats={"shared": "shared"}
)
PLAIN_C = ObjectSizes(text_bytes=70, comdats={}, functions={"f": 70}, function_comdats={})


def test_copies_are_objects_that_emit_the_group() -> None:
    assert comdat_copies([ONE, OTHER, PLAIN_C]) == {"shared": 2, "mine": 1}
    assert comdat_copies([]) == {}


def test_the_larger_number_of_copies_counts() -> None:
    # The default has inlined `shared` in all objects but one, which without inlining three emit.
    inlined = ObjectSizes(text_bytes=80, comdats={"mine": 10}, functions={}, function_comdats={})
    assert larger_copies([ONE, inlined, PLAIN_C], [ONE, OTHER, OTHER]) == {"shared": 3, "mine": 2}
    assert PROBLEM.objective.project_context([ONE, inlined, PLAIN_C], [ONE, OTHER, OTHER]) == {"shared": 3, "mine": 2}


def test_a_shared_group_costs_its_share() -> None:
    copies = comdat_copies([ONE, OTHER, PLAIN_C])
    assert weighted_text_bytes(ONE, copies) == pytest.approx(100 - 40 + 40 / 2)
    assert weighted_text_bytes(OTHER, copies) == pytest.approx(60 - 40 + 40 / 2)
    assert weighted_text_bytes(PLAIN_C, copies) == 70


def test_the_sum_over_a_project_counts_each_group_once() -> None:
    project = [ONE, OTHER, PLAIN_C]
    total = sum(weighted_text_bytes(sizes, comdat_copies(project)) for sizes in project)
    assert total == pytest.approx((100 + 60 + 70) - 40)  # One of the two copies of 40 bytes is folded.


def test_a_group_that_the_default_emits_nowhere_counts_in_full() -> None:
    assert weighted_text_bytes(ONE, {}) == 100
    assert weighted_text_bytes(ONE, {"shared": 4}) == pytest.approx(100 - 40 * 3 / 4)


def test_functions_weigh_as_their_group() -> None:
    assert function_weights(ONE, {"shared": 4, "mine": 1}) == {
        "shared": 1 / 4,
        "shared_alias": 1 / 4,
        "mine": 1,
        "main": 1,
    }
    assert function_weights(PLAIN_C, {"shared": 4}) == {"f": 1}


def _sizes(functions: dict[str, int], comdats: dict[str, str] | None = None) -> ObjectSizes:
    return ObjectSizes(sum(functions.values()), {}, functions, comdats or {})


def _sites(*calls: tuple[str, str, bool]) -> CallSites:
    functions = sorted({name for caller, callee, _ in calls for name in (caller, callee)})
    return CallSites(
        tuple(functions),
        np.array([functions.index(caller) for caller, _, _ in calls], np.int32),
        np.array([functions.index(callee) for _, callee, _ in calls], np.int32),
        np.array([inlined for _, _, inlined in calls]),
    )


def _credit(
    group: Sequence[ObjectSizes], sites: Sequence[CallSites], copies: Mapping[str, float] = MappingProxyType({})
) -> list[np.ndarray]:
    return PROBLEM.credit(group, sites, copies) or []


def test_caller_and_callee_and_where_the_caller_went() -> None:
    # First rollout: leaf into middle, middle into top. Second: nothing is inlined.
    first = _sizes({"top": 50, "other": 8})
    second = _sizes({"top": 20, "middle": 20, "leaf": 10, "other": 8})
    sites = [
        _sites(("middle", "leaf", True), ("top", "middle", True), ("other", "top", False)),
        _sites(("middle", "leaf", False), ("top", "middle", False), ("other", "top", False)),
    ]
    credit = _credit([first, second], sites)
    # Means: top 35, middle 10, leaf 5, other 8. Saved in the first: top -15, middle +10, leaf +5, other 0.
    # middle<-leaf: caller +10, callee +5, and middle went into top: -15.
    # top<-middle: caller -15, callee +10. other<-top: caller 0, callee -15.
    np.testing.assert_allclose(credit[0], [10 + 5 - 15, -15 + 10, -15])
    # In the second all is the other way round, but nothing was inlined, so middle's decision is not top's business.
    np.testing.assert_allclose(credit[1], [-10 - 5, 15 - 10, 15])


def test_a_function_of_many_objects_counts_for_less() -> None:
    group = [_sizes({"f": 40}, {"f": "f"}), _sizes({"f": 20}, {"f": "f"})]
    sites = [_sites(("f", "g", True)), _sites(("f", "g", False))]
    credit = _credit(group, sites, {"f": 5})
    # A fifth of 40 and 20: 8 and 4, mean 6.
    np.testing.assert_allclose(credit[0], [-2])
    np.testing.assert_allclose(credit[1], [2])


def test_what_is_split_off_a_coroutine_is_a_part_of_it() -> None:
    group = [_sizes({"f": 10, "f.resume": 90, "g": 5}), _sizes({"f": 10, "f.resume": 50, "g": 9})]
    sites = [_sites(("f", "g", True), ("f.resume", "h", False)), _sites(("f", "g", False), ("f.resume", "h", False))]
    credit = _credit(group, sites)
    # Means: f with its part 80, the part 70, g 7.
    np.testing.assert_allclose(credit[0], [-20 + 2, -20])
    np.testing.assert_allclose(credit[1], [20 - 2, 20])


def test_credit_follows_a_body_all_the_way() -> None:
    # a into f, f into g, g into h: a's decision is in h's bytes, too.
    sites = _sites(("f", "a", True), ("g", "f", True), ("h", "g", True), ("h", "a", False))
    saved = np.array([{"a": 1, "f": 10, "g": 100, "h": 1000}[name] for name in sites.functions], float)
    np.testing.assert_allclose(decision_credit(saved, sites), [1 + 10 + 100 + 1000, 10 + 100 + 1000, 1100, 1001])


def test_a_body_is_copied_as_it_is_at_that_moment() -> None:
    # f goes into g before a comes into f, so g does not have a. Recursion ends, and each function counts once.
    sites = _sites(("g", "f", True), ("f", "a", True), ("a", "f", True), ("f", "f", True))
    saved = np.array([{"a": 1, "f": 10, "g": 100}[name] for name in sites.functions], float)
    np.testing.assert_allclose(decision_credit(saved, sites), [110, 11, 11, 10])


def test_decisions_about_nothing_that_has_changed_have_no_credit() -> None:
    sites = _sites(("f", "a", True), ("g", "f", True))
    np.testing.assert_array_equal(decision_credit(np.zeros(3), sites), [0, 0])
    np.testing.assert_array_equal(decision_credit(np.zeros(0), _sites()), [])


@hypothesis.given(
    st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11), st.booleans()), max_size=40),
    st.lists(st.integers(-5, 5), min_size=12, max_size=12),
)
def test_credit_agrees_with_copying_bodies(calls: list[tuple[int, int, bool]], saved: list[int]) -> None:
    # The obvious way: a body is the set of decisions whose code is in it.
    bodies: list[set[int]] = [set() for _ in saved]
    for k, (caller, callee, inlined) in enumerate(calls):
        bodies[caller] |= {k} | (bodies[callee] if inlined else set())
    expected = [
        sum(value for f, value in enumerate(saved) if k in bodies[f] or f == callee)
        for k, (_, callee, _) in enumerate(calls)
    ]
    columns = np.array(calls, int).reshape(-1, 3)
    sites = CallSites(tuple(map(str, range(12))), columns[:, 0], columns[:, 1], columns[:, 2] != 0)
    np.testing.assert_allclose(decision_credit(np.array(saved, float), sites), expected, atol=1e-9)
