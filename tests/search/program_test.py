"""Components add up, and a state composed of them is what its decisions compile to."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler_opt.search.builds import SHARED, Build, Call, Compiled, build_of, comdat_groups
from compiler_opt.search.program import Component, Program, compare
from tests.search.search_test import random_program
from tests.search.simulator import Function, Module, Simulator, linked_bytes


def built(modules: list[Module], pinned: Program | None = None, flip: random.Random | None = None) -> list[Build]:
    """Builds of all modules, with the decisions of a state; some of them flipped."""
    simulator = Simulator(modules)
    base = simulator.compile({number: {} for number in range(len(modules))})
    groups = comdat_groups(each for each in base.values() if isinstance(each, Compiled))
    builds = []
    decisions = {} if pinned is None else pinned.all_decisions()
    flips = {site: 1 - advice for site, advice in decisions.items() if flip is not None and flip.random() < 0.2}
    for number in range(len(modules)):
        compiled = simulator.compile({number: decisions | flips})[number]
        assert isinstance(compiled, Compiled)
        builds.append(build_of(compiled, number, groups))
    return builds


def measured(modules: list[Module], program: Program) -> int:
    """The linked size of a state, compiled."""
    results = Simulator(modules).compile({number: program.all_decisions() for number in range(len(modules))})
    return linked_bytes({number: each for number, each in results.items() if isinstance(each, Compiled)})


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 3))
def test_components_add_up_and_whole_states_are_as_compiled(seed: int, num_modules: int) -> None:
    modules = random_program(seed, num_modules, num_functions=12)
    program = Program(built(modules))
    assert program.linked_bytes == measured(modules, program)
    trial = dict(enumerate(built(modules, program, random.Random(seed))))
    components, leftover = compare(program, trial)
    after = program.copy()
    after.adopt(trial, (), whole=True)
    saved = sum(each.saved_bytes for each in components) + sum(program.saved(unit, trial) for unit in leftover)
    assert program.linked_bytes - after.linked_bytes == pytest.approx(saved)
    assert after.linked_bytes == measured(modules, after)
    for kind in ("callers", "units"):
        members = [member for each in components for member in getattr(each, kind)]
        assert len(members) == len(set(members))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000))
def test_a_composed_state_is_what_its_decisions_compile_to(seed: int) -> None:
    """Of one module: where decisions are shared, other modules change only when they are compiled."""
    modules = random_program(seed, 1, num_functions=12)
    program = Program(built(modules))
    generator = random.Random(seed)
    trial = dict(enumerate(built(modules, program, generator)))
    components, _ = compare(program, trial)
    kept = [component for component in components if generator.random() < 0.5]
    before = program.linked_bytes
    program.adopt(trial, kept)
    assert program.linked_bytes == pytest.approx(before - sum(each.saved_bytes for each in kept))
    assert program.linked_bytes == pytest.approx(measured(modules, program))


def test_a_copy_that_another_module_still_emits_saves_nothing() -> None:
    shared = Function("shared", 100, (), "comdat")
    modules: list[Module] = [[shared, Function("a", 10, ("shared",))], [shared, Function("b", 10, ("shared",))]]
    program = Program(built(modules))
    unit = (SHARED, "shared")
    assert program.keeper(unit) == 0
    inlined = Simulator(modules, advice=1).compile({0: {}, 1: {}})
    trial = {
        number: build_of(each, number, {"shared": "shared"})
        for number, each in inlined.items()
        if not isinstance(each, str)
    }
    assert program.saved(unit, {0: trial[0]}) == program.saved(unit, {1: trial[1]}) == 0
    assert program.saved(unit, trial) == 100


def test_a_shared_caller_s_new_decisions_make_other_modules_stale() -> None:
    helper, shared = Function("helper", 30, (), "local"), Function("shared", 20, ("helper",), "comdat")
    modules: list[Module] = [[helper, shared, Function(name, 10, ("shared",))] for name in ("a", "b")]
    program = Program(built(modules))
    caller = ("shared", shared.body)
    assert program.owner(caller) == 0
    (site,) = (site for site in program.decisions(0) if site.caller == "shared")
    compiled = Simulator(modules).compile({0: {**program.decisions(0), site: 1 - program.decisions(0)[site]}})[0]
    assert isinstance(compiled, Compiled)
    trial = {0: build_of(compiled, 0, {"shared": "shared"})}
    program.adopt(trial, compare(program, trial)[0])
    assert program.stale == {1: {caller}}
    assert program.inexact == [1]
    assert program.decisions(1)[site] == program.decisions(0)[site] == trial[0].calls[caller][0].advice


def test_what_the_compiler_no_longer_decides_counts_as_not_inlined() -> None:
    """As when LLVM's advisor stops, because the module has grown too much."""
    (module,) = random_program(3, 1, num_functions=12)
    whole = Simulator([module], advice=1).compile({0: {}})[0]
    assert isinstance(whole, Compiled) and len(whole.sites) > 4
    before = build_of(whole, 0, {})
    cut = Compiled(whole.sites[:3], whole.advice[:3], whole.inlined[:3], None, whole.sizes)
    after = build_of(cut, 0, {}, before.calls)
    assert after.calls.keys() == before.calls.keys()
    calls = [call for found in after.calls.values() for call in found]
    assert sum(call.advice for call in calls) == 3
    assert len(calls) == len(whole.sites)


def test_reversed_components_take_back() -> None:
    component = Component(frozenset(), frozenset({(0, "f")}), 12.5, {0: 2.5})
    assert component.reverse() == Component(frozenset(), frozenset({(0, "f")}), -12.5, {0: -2.5})
    assert Call("f", 0, 1, True, 0) == Call("f", 0, 1, True, None)
