"""Moves where a program is hot, by toy programs."""

import collections
import dataclasses
from collections.abc import Mapping

from compiler_opt.policies.decisions import Site
from compiler_opt.search.builds import Compiled, build_of
from compiler_opt.search.moves import Hotness, MoveMaker
from compiler_opt.search.program import Program
from compiler_opt.search.search import Search, SearchSettings
from tests.search.simulator import Function, Simulator

MODULE = (
    Function("leaf", 60),
    Function("inner", 20, ("leaf",), "local"),
    Function("hot", 30, ("inner", "leaf")),
    Function("cold", 30, ("leaf", "hot")),
)
"""By default, `inner` is inlined into `hot`; `leaf` and `hot` are too large."""


def program() -> Program:
    compiled = Simulator([MODULE]).compile({0: {}})[0]
    assert isinstance(compiled, Compiled)
    return Program([build_of(compiled, 0, {})])


def flipped(hotness: Hotness) -> set[tuple[str, str]]:
    moves = MoveMaker({}, hotness).moves(program(), 0)
    return {(site.caller, site.callee) for move in moves for site, _ in move.flips}


def test_all_calls_are_tried_if_nothing_is_known_about_hotness() -> None:
    assert flipped(Hotness()) == {
        ("inner", "leaf"),
        ("hot", "inner"),
        ("hot", "leaf"),
        ("cold", "leaf"),
        ("cold", "hot"),
    }


def test_only_calls_in_and_of_hot_functions_are_tried() -> None:
    """`inner` has no symbol any more: its calls count because its body is in `hot`."""
    assert flipped(Hotness(frozenset({"hot"}))) == {
        ("inner", "leaf"),
        ("hot", "inner"),
        ("hot", "leaf"),
        ("cold", "hot"),
    }
    assert flipped(Hotness(frozenset())) == set()


def test_a_call_that_runs_often_is_expected_to_save_more() -> None:
    hotness = Hotness(frozenset({"hot"}), {("hot", "leaf"): 1000.0, ("hot", "inner"): 1000.0})
    often, never = (
        {(move.kind, move.flips): move.scale_bytes for move in MoveMaker({}, each).moves(program(), 0)}
        for each in (hotness, Hotness(frozenset({"hot"})))
    )
    gained: collections.Counter[tuple[str, str]] = collections.Counter()
    for key, scale in often.items():
        kind, flips = key
        if kind == "call":
            gained[flips[0][0].caller, flips[0][0].callee] += round(scale - never[key])
    # `hot` has two calls of `leaf`, one by `inner`; `inner` is inlined already.
    assert gained == {("hot", "leaf"): 2000, ("cold", "hot"): 0, ("hot", "inner"): 0, ("inner", "leaf"): 0}


class Weighted:
    """A compiler for which each call that is left in `hot` costs 500 bytes more."""

    def __init__(self) -> None:
        self._simulator = Simulator([MODULE])

    def compile(self, requests: Mapping[int, Mapping[Site, int]]) -> dict[int, Compiled | str]:
        results = self._simulator.compile(requests)
        for module, each in results.items():
            assert isinstance(each, Compiled)
            left = sum(site.caller == "hot" and not done for site, done in zip(each.sites, each.inlined, strict=True))
            sizes = each.sizes
            functions = {**sizes.functions, "hot": sizes.functions["hot"] + 500 * left}
            weighted = dataclasses.replace(sizes, functions=functions, text_bytes=sizes.text_bytes + 500 * left)
            results[module] = dataclasses.replace(each, sizes=weighted)
        return results


def test_a_search_where_it_is_hot_leaves_the_rest_to_the_default() -> None:
    hotness = Hotness(frozenset({"hot"}), {("hot", "leaf"): 1000.0})
    found = Search(Weighted(), 1, SearchSettings(budget=60), hotness=lambda: hotness).run()
    calls = {name: calls for (name, _), calls in found.best.builds[0].calls.items()}
    assert all(call.inlined for call in calls["hot"])
    before = {name: calls for (name, _), calls in found.base.builds[0].calls.items()}
    assert [call.inlined for call in calls["cold"] if call.callee == "leaf"] == [
        call.inlined for call in before["cold"] if call.callee == "leaf"
    ]


def test_callers_on_which_modules_differ_by_default_are_left_alone() -> None:
    """Only one module has a small `leaf`, so only there `shared` inlines it; decisions would hold in both."""
    shared = Function("shared", 30, ("leaf", "other"), "comdat")
    other, user = Function("other", 60, (), "local"), Function("user", 50, ("shared",))
    modules = [[Function("leaf", size, (), "local"), other, shared, user] for size in (10, 60)]
    found = Search(Simulator(modules), 2, SearchSettings(budget=40), hotness=lambda: Hotness()).run()
    for build in found.best.builds.values():
        assert {name for name, _ in build.calls} == {"user"}
    assert not found.best.inexact
    unlike = Search(Simulator(modules), 2, SearchSettings(budget=40)).run()
    assert any(name == "shared" for name, _ in unlike.best.builds[0].calls)
