"""Baselines, compared with slow searches for the same optimum, and errors in visible arithmetic."""

import numpy as np
import pytest

from compiler_opt.cost_models.throughput.accuracy import by_group, percentage_errors
from compiler_opt.cost_models.throughput.baselines import (
    ConstantPerInstruction,
    LinearHistogram,
    SimulationWithPenalties,
)
from compiler_opt.cost_models.throughput.blocks import ANNOTATIONS, Block
from compiler_opt.cost_models.throughput.function_cycles import FunctionCycles, cycles_by_function
from compiler_opt.cost_models.throughput.instructions import Instruction

ADD, DIV = Instruction("ADD", "ADD_R64_RM64"), Instruction("DIV", "DIV_RM64")


def random_blocks(number: int) -> list[list[Instruction]]:
    generator = np.random.default_rng(0)
    return [[ADD] * int(adds) + [DIV] * int(divs) for adds, divs in generator.integers(1, 9, (number, 2))]


def test_errors() -> None:
    errors = percentage_errors(np.array([1.0, 3.0, 2.0]), np.array([2.0, 2.0, 2.0]))
    assert (errors.num_blocks, errors.mean, errors.median) == (3, (0.5 + 0.5 + 0) / 3, 0.5)
    groups = by_group(np.array([1.0, 3.0, 2.0]), np.array([2.0, 2.0, 2.0]), ["a", "b", "a"])
    assert {name: each.mean for name, each in groups.items()} == {"a": (0.5 + 0) / 2, "b": 0.5}


def test_constant_has_the_least_error() -> None:
    blocks = random_blocks(200)
    cycles = np.random.default_rng(1).uniform(0.5, 9, len(blocks))
    baseline = ConstantPerInstruction(blocks, cycles)
    lengths = np.array([len(block) for block in blocks])
    least = min(percentage_errors(constant * lengths, cycles).mean for constant in np.linspace(0.01, 2, 2000))
    assert percentage_errors(baseline.predict(blocks), cycles).mean <= least + 1e-9


def test_linear_histogram_finds_what_each_form_costs() -> None:
    blocks = random_blocks(200)
    cycles = np.array([0.25 * block.count(ADD) + 20 * block.count(DIV) + 0.5 for block in blocks])
    baseline = LinearHistogram(blocks, cycles)
    assert baseline.predict([[ADD], [ADD, DIV, DIV]]) == pytest.approx([0.75, 40.75], rel=0.02)
    assert baseline.predict([]).shape == (0,) and baseline.predict([[], [Instruction("NOP", "NOPD")]]).min() > 0


def simulated_and_events() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(2)
    return generator.uniform(1, 20, 300), generator.exponential([0.5, 0.5, 0.001, 0.1], (300, 4))


def test_penalties_are_found() -> None:
    simulated, events = simulated_and_events()
    baseline = SimulationWithPenalties(simulated, events, 0.4 * simulated + events @ [0, 5, 80, 7])
    assert baseline.scale == pytest.approx(0.4)
    assert list(baseline.penalties) == list(ANNOTATIONS)
    assert list(baseline.penalties.values()) == pytest.approx([0, 5, 80, 7], abs=1e-9)
    # Unknown events count as on average.
    average = 0.4 * 10 + 5 * events[:, 1].mean() + 80 * events[:, 2].mean() + 7 * events[:, 3].mean()
    assert baseline.predict(np.array([10.0]), np.full((1, 4), np.nan)) == pytest.approx([average])


def test_penalties_are_the_best_that_are_not_negative() -> None:
    simulated, events = simulated_and_events()
    generator = np.random.default_rng(3)
    # Instruction misses seem to make a block faster, and nobody has counted half of the last-level misses.
    measured = 2 * simulated + events @ [-0.5, 5, 80, 7]
    events[generator.random(300) < 0.5, 2] = np.nan
    baseline = SimulationWithPenalties(simulated, events, measured)
    assert baseline.penalties["instruction_misses"] == 0
    inputs = np.column_stack([simulated, np.where(np.isnan(events), np.nanmean(events, axis=0), events)])

    def squares(factors: np.ndarray) -> float:
        return float(((inputs @ factors / measured - 1) ** 2).sum())

    found = np.array([baseline.scale, *baseline.penalties.values()])
    nearby = np.maximum(found + generator.normal(0, 1, (1000, 5)) * [1e-3, 0.1, 0.1, 5, 0.1], 0)
    assert squares(found) <= min(map(squares, nearby))


def test_events_that_nobody_counted_have_no_penalty() -> None:
    simulated, events = simulated_and_events()
    baseline = SimulationWithPenalties(simulated, np.full_like(events, np.nan), 2.5 * simulated)
    assert baseline.predict(np.array([2.0]), np.ones((1, 4))) == pytest.approx([5.0])


def test_weights_choose_whose_errors_count() -> None:
    simulated, events = np.array([1.0, 1.0]), np.zeros((2, 4))
    baseline = SimulationWithPenalties(simulated, events, np.array([1.0, 4.0]), np.array([0.0, 1.0]))
    assert baseline.scale == pytest.approx(4.0)


def test_cycles_of_functions_are_those_of_their_blocks() -> None:
    blocks = [
        Block(b"1", "a.o", "f", 0, 1.0),
        Block(b"2", "a.o", "f", 1, 10.0),
        Block(b"3", "a.o", "g", 0, 1.0),
        Block(b"4", "b.o", "f", 0, 1.0),
        Block(b"5", "b.o", "f", 1, 0.5),
    ]
    assert cycles_by_function(blocks, np.array([2.0, 3.0, 4.0, np.nan, 8.0])) == [
        FunctionCycles("f", "a.o", 1 * 2.0 + 10 * 3.0, 2, 0),
        FunctionCycles("g", "a.o", 4.0, 1, 0),
        FunctionCycles("f", "b.o", 0.5 * 8.0, 2, 1),
    ]
