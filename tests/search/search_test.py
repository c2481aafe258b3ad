"""A search of toy programs finds what trying everything finds, or nearly, and its bookkeeping agrees with a linker."""

import dataclasses
import os
import random
import subprocess
import sys
from collections.abc import Mapping

import pytest

from compiler_opt.errors import CorpusError
from compiler_opt.policies.decisions import Site
from compiler_opt.search.builds import Compiled
from compiler_opt.search.compiling import PlainProgram
from compiler_opt.search.search import Search, SearchSettings
from compiler_opt.search.search_outcome import SearchOutcome
from tests.programs import ROOT
from tests.search.simulator import Function, Module, Simulator, exhaustive, linked_bytes


def random_program(seed: int, num_modules: int, num_functions: int, max_calls: int = 3) -> list[Module]:
    """Modules that share their COMDAT functions."""
    generator = random.Random(seed)

    def function(name: str, linkage: str, callees: list[str]) -> Function:
        count = min(len(callees), generator.randint(0, max_calls))
        calls = tuple(generator.choice(callees) for _ in range(count))
        return Function(name, generator.randint(5, 80), calls, linkage)

    shared: list[Function] = []
    for number in range(num_functions // 3):
        shared.append(function(f"shared{number}", "comdat", [each.name for each in shared]))
    modules: list[Module] = []
    for module in range(num_modules):
        functions = list(shared)
        for number in range(num_functions - len(shared)):
            linkage = "external" if number % 3 == 2 else "local"
            functions.append(function(f"f{module}_{number}", linkage, [each.name for each in functions]))
        modules.append(functions)
    return modules


def search(modules: list[Module], **settings: object) -> tuple[SearchOutcome, Simulator]:
    simulator = Simulator(modules)
    return Search(simulator, len(modules), SearchSettings(**settings)).run(), simulator  # type: ignore[arg-type]


def compiled_with(modules: list[Module], found: SearchOutcome) -> int:
    """Linked bytes of the result, compiled anew."""
    results = Simulator(modules).compile({number: found.best.decisions(number) for number in range(len(modules))})
    return linked_bytes({number: each for number, each in results.items() if isinstance(each, Compiled)})


@pytest.mark.parametrize("seed", range(6))
def test_finds_nearly_what_trying_everything_finds(seed: int) -> None:
    modules = random_program(seed, num_modules=2, num_functions=6, max_calls=2)
    best = exhaustive(modules)
    found, _ = search(modules, budget=150)
    assert found.best.linked_bytes == compiled_with(modules, found)
    assert best <= found.best.linked_bytes <= 1.02 * best


@pytest.mark.parametrize("seed", range(2))
def test_many_moves_at_once_find_as_much_with_fewer_compiles(seed: int) -> None:
    modules = random_program(seed, num_modules=4, num_functions=30)
    one_by_one, slow = search(modules, budget=10_000, max_moves=1, kinds=("call",))
    together, fast = search(modules, budget=slow.num_compiles // (3 * len(modules)))
    assert fast.num_compiles <= slow.num_compiles / 3 + 2 * len(modules)
    saved = one_by_one.base.linked_bytes - one_by_one.best.linked_bytes
    assert together.base.linked_bytes - together.best.linked_bytes >= 0.9 * saved
    assert together.best.linked_bytes == compiled_with(modules, together)


def test_two_searches_are_the_same() -> None:
    modules = random_program(5, num_modules=3, num_functions=20)
    (one, _), (other, _) = search(modules, budget=20), search(modules, budget=20)
    assert one.curve == other.curve
    assert one.best.all_decisions() == other.best.all_decisions()


@pytest.mark.slow
def test_a_search_is_the_same_in_another_process() -> None:
    """Whatever the order of sets of strings is there."""
    code = """if True:
        from tests.search.search_test import random_program, search
        found, _ = search(random_program(5, num_modules=4, num_functions=60), budget=40)
        print([each.confirmed_bytes for each in found.curve])
    """
    curves = {
        subprocess.check_output([sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, cwd=ROOT)
        for seed in ("1", "2", "3")
    }
    assert len(curves) == 1


def test_a_module_that_fails_is_left_out() -> None:
    modules = random_program(1, num_modules=3, num_functions=10)
    found = Search(Simulator(modules, fails=frozenset({1})), 3, SearchSettings(budget=10)).run()
    assert sorted(found.best.builds) == [0, 2]
    assert found.failures == {1: "does not compile"}
    with pytest.raises(CorpusError, match=r"no module compiles.*does not compile"):
        Search(Simulator(modules, fails=frozenset({0, 1, 2})), 3).run()


def test_a_start_that_is_better_than_the_base_is_taken() -> None:
    # Inlining the only call removes the local function, but the default finds it too large.
    modules: list[Module] = [[Function("local", 200, (), "local"), Function("user", 10, ("local",))]]
    base = Simulator(modules)
    found = Search(base, 1, SearchSettings(budget=2), other_starts=[Simulator(modules, advice=1)]).run()
    assert found.best.linked_bytes == exhaustive(modules) < found.base.linked_bytes


class Growing(Simulator):
    """Once `leaf` is inlined into `first`, LLVM decides nothing more."""

    def compile(self, requests: Mapping[int, Mapping[Site, int]]) -> dict[int, Compiled | str]:
        results = super().compile(requests)
        for number, each in results.items():
            assert isinstance(each, Compiled)
            if any(site.caller == "first" and done for site, done in zip(each.sites, each.inlined, strict=True)):
                results[number] = dataclasses.replace(
                    each, sites=each.sites[:1], advice=each.advice[:1], inlined=each.inlined[:1], defaults=None
                )
        return results


def test_the_text_of_plain_clang_is_that_of_its_objects() -> None:
    modules = random_program(1, num_modules=3, num_functions=6)
    compiler = Simulator(modules, fails=frozenset({1}))
    plain = PlainProgram(compiler, len(modules))
    assert (plain.compiles, compiler.num_compiles) == (0, 0)
    results = Simulator(modules, fails=frozenset({1})).compile({number: {} for number in range(3)})
    expected = linked_bytes({number: each for number, each in results.items() if isinstance(each, Compiled)})
    assert plain.linked_bytes == expected > 0
    # Asked again, it is known.
    assert plain.linked_bytes == expected and plain.compiles == compiler.num_compiles == 3


def test_what_cannot_be_tried_is_tried_once() -> None:
    users = [Function(name, 30, ("leaf",)) for name in ("first", "second", "third")]
    simulator = Growing([[Function("leaf", 60, (), "local"), *users]])
    Search(simulator, 1, SearchSettings(budget=1000, kinds=("call", "callee"))).run()
    assert simulator.num_compiles < 30


def test_saved_and_resumed() -> None:
    modules = random_program(7, num_modules=3, num_functions=25)
    states = []
    run = Search(Simulator(modules), 3, SearchSettings(budget=40), on_progress=lambda _: states.append(run.state()))
    whole = run.run()
    middle = states[len(states) // 2]
    # What is compiled to build the state again is not counted, and does not take part in the curve.
    simulator = Simulator(modules)
    ended = Search(simulator, 3, SearchSettings(budget=3), resume=middle).run()
    assert simulator.num_compiles > 0 and ended.compiles == middle.compiles
    assert {each.compiles for each in ended.curve[len(middle.curve) :]} == {sum(middle.compiles.values())}
    assert all(each.confirmed_bytes <= middle.curve[-1][4] for each in ended.curve[len(middle.curve) :])
    resumed = Search(Simulator(modules), 3, SearchSettings(budget=80), resume=middle).run()
    assert resumed.best.linked_bytes == compiled_with(modules, resumed)
    assert resumed.best.linked_bytes <= middle.curve[-1][4]
    assert resumed.best.linked_bytes <= 1.01 * whole.best.linked_bytes
