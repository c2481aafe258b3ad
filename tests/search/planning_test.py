"""Which modules are compiled next: the most promising ones in a compile or, where time is limited, in a second."""

import dataclasses
from collections.abc import Mapping

from compiler_opt.policies.decisions import Site
from compiler_opt.search.builds import Compiled, build_of
from compiler_opt.search.moves import MoveMaker
from compiler_opt.search.planning import plan
from compiler_opt.search.program import Program
from compiler_opt.search.search import Search, SearchSettings
from tests.search.simulator import Function, Simulator


def module(name: str) -> list[Function]:
    return [Function(f"{name}_leaf", 60, (), "local"), Function(f"{name}_user", 30, (f"{name}_leaf",) * 2)]


MODULES = [module("slow"), module("quick")]


def planned(seconds: Mapping[int, float], gains: tuple[float, float] = (100.0, 100.0)) -> list[int]:
    """The module that is compiled, if there may be one, where a move in each saves these bytes."""
    program = Program(
        build_of(each, number, {})
        for number, each in Simulator(MODULES).compile({0: {}, 1: {}}).items()
        if isinstance(each, Compiled)
    )
    maker = MoveMaker({})
    candidates = [(gain, move) for number, gain in enumerate(gains) for move in maker.moves(program, number)[:1]]
    return plan(program, candidates, {0: 9, 1: 9}, max_modules=1, seconds=seconds).compiled()


def test_a_module_that_compiles_quickly_comes_first_if_time_counts() -> None:
    assert planned({}) == [0]
    assert planned({0: 2.0, 1: 1.0}) == [1]
    assert planned({0: 2.0, 1: 1.0}, (300.0, 100.0)) == [0]  # 150 bytes a second are more than 100.
    assert planned({}, (100.0, 101.0)) == [1]


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
