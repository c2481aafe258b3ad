"""Baselines, compared with slow searches for the same optimum, and errors in visible arithmetic."""

import numpy as np
import pytest

from compiler_opt.cost_models.errors import median_error, relative_errors, shown
from compiler_opt.cost_models.throughput.baselines import ConstantPerInstruction, LinearHistogram
from compiler_opt.cost_models.throughput.blocks import Block
from compiler_opt.cost_models.throughput.function_cycles import FunctionCycles, cycles_by_function
from compiler_opt.cost_models.throughput.instructions import Instruction

ADD, DIV = Instruction("ADD", "ADD_R64_RM64"), Instruction("DIV", "DIV_RM64")


def random_blocks(number: int) -> list[list[Instruction]]:
    generator = np.random.default_rng(0)
    return [[ADD] * int(adds) + [DIV] * int(divs) for adds, divs in generator.integers(1, 9, (number, 2))]


def test_errors() -> None:
    errors = relative_errors(np.array([1.0, 3.0, 2.0, 5.0]), np.array([2.0, 2.0, 2.0, -1.0]))
    assert errors[:3].tolist() == [0.5, 0.5, 0.0] and np.isnan(errors[3])
    median = median_error(np.arange(101) / 1000, np.repeat(["a"], 101), np.random.default_rng(0))
    # Of 101 errors, the median's standard error is about 0.125 of their range.
    assert median.value == 0.05 and 0.02 < median.low < 0.05 < median.high < 0.08
    assert shown(median) == f"5.0% ({median.low:.1%} to {median.high:.1%})"
    # Resampled within groups of one, nothing varies.
    alone = median_error(np.array([0.1, 0.2, 0.4]), np.array(["a", "b", "c"]), np.random.default_rng(0))
    assert (alone.low, alone.value, alone.high) == (0.2, 0.2, 0.2)


def test_constant_has_the_least_error() -> None:
    blocks = random_blocks(200)
    cycles = np.random.default_rng(1).uniform(0.5, 9, len(blocks))
    baseline = ConstantPerInstruction(blocks, cycles)
    lengths = np.array([len(block) for block in blocks])
    least = min(relative_errors(constant * lengths, cycles).mean() for constant in np.linspace(0.01, 2, 2000))
    assert relative_errors(baseline.predict(blocks), cycles).mean() <= least + 1e-9


def test_linear_histogram_finds_what_each_form_costs() -> None:
    blocks = random_blocks(200)
    cycles = np.array([0.25 * block.count(ADD) + 20 * block.count(DIV) + 0.5 for block in blocks])
    baseline = LinearHistogram(blocks, cycles)
    assert baseline.predict([[ADD], [ADD, DIV, DIV]]) == pytest.approx([0.75, 40.75], rel=0.02)
    assert baseline.predict([]).shape == (0,) and baseline.predict([[], [Instruction("NOP", "NOPD")]]).min() > 0


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
