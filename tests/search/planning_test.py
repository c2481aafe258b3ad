"""Which modules are compiled next: the most promising ones in a compile or, where time is limited, in a second."""

import dataclasses
from collections.abc import Mapping, Sequence

from compiler_opt.policies.decisions import Site
from compiler_opt.search.builds import Compiled, build_of, comdat_groups
from compiler_opt.search.moves import MoveMaker
from compiler_opt.search.planning import plan
from compiler_opt.search.program import Program
from compiler_opt.search.search import Search, SearchSettings
from tests.search.simulator import Function, Module, Simulator


def module(name: str) -> list[Function]:
    return [Function(f"{name}_leaf", 60, (), "local"), Function(f"{name}_user", 30, (f"{name}_leaf",) * 2)]


MODULES = [module("slow"), module("quick")]


def compiled_program(modules: Sequence[Module]) -> Program:
    compiled = Simulator(modules).compile({number: {} for number in range(len(modules))})
    built = {number: each for number, each in compiled.items() if isinstance(each, Compiled)}
    groups = comdat_groups(built.values())
    return Program(build_of(each, number, groups) for number, each in built.items())


def planned(seconds: Mapping[int, float], gains: tuple[float, float] = (100.0, 100.0)) -> list[int]:
    """The module that is compiled, if there may be one, where a move in each saves these bytes."""
    program = compiled_program(MODULES)
    maker = MoveMaker({})
    candidates = [(gain, move) for number, gain in enumerate(gains) for move in maker.moves(program, number)[:1]]
    return plan(program, candidates, {0: 9, 1: 9}, max_modules=1, seconds=seconds).compiled()


def test_a_module_that_compiles_quickly_comes_first_if_time_counts() -> None:
    assert planned({}) == [0]
    assert planned({0: 2.0, 1: 1.0}) == [1]
    assert planned({0: 2.0, 1: 1.0}, (300.0, 100.0)) == [0]  # 150 bytes a second are more than 100.
    assert planned({}, (100.0, 101.0)) == [1]


def test_a_move_that_needs_modules_that_promise_less_is_not_left_out() -> None:
    # What is inlined into the shared function changes the external one of each module.
    shared = [Function("leaf", 60, (), "comdat"), Function("shared", 20, ("leaf",), "comdat")]
    modules = [[*shared, Function(f"user{number}", 20, ("shared",))] for number in range(3)]
    program = compiled_program(modules)
    move = next(each for each in MoveMaker({}).moves(program, 0) if each.flips[0][0].caller == "shared")
    limits, seconds = dict.fromkeys(range(3), 9), {0: 0.1, 1: 5.0, 2: 5.0}
    assert plan(program, [(100.0, move)], limits, seconds=seconds).compiled() == [0, 1, 2]
    assert not plan(program, [(100.0, move)], limits, max_modules=2, seconds=seconds).moves


class Timed(Simulator):
    """The first module takes ten times as long to compile."""

    def __init__(self) -> None:
        super().__init__(MODULES)
        self.compiled: list[int] = []

    def compile(self, requests: Mapping[int, Mapping[Site, int]]) -> dict[int, Compiled | str]:
        self.compiled += requests
        results: dict[int, Compiled | str] = {}
        for number, each in super().compile(requests).items():
            assert isinstance(each, Compiled)
            results[number] = dataclasses.replace(each, cpu_s=(10.0, 1.0)[number])
        return results


def test_a_search_by_time_begins_where_a_second_saves_most() -> None:
    firsts = []
    for minutes in (None, 60.0):
        compiler = Timed()
        Search(compiler, 2, SearchSettings(budget=20, max_minutes=minutes, min_modules=1)).run()
        # Both modules under the default, and with nothing inlined, come before.
        firsts.append(compiler.compiled[4])
    assert firsts == [0, 1]
