"""Trees learn what depends on order and on events, which histograms do not see."""

import numpy as np
import pytest

from compiler_opt.cost_models.errors import relative_errors
from compiler_opt.cost_models.throughput.baselines import LinearHistogram
from compiler_opt.cost_models.throughput.block_trees import BlockTrees, dependence_depths
from compiler_opt.cost_models.throughput.instructions import Decoder, Instruction, Memory

# addq %rax, %rax; addq %rcx, %rcx
PIECES = [bytes.fromhex("4801c0"), bytes.fromhex("4801c9")]


def blocks_and_depths(number: int, seed: int) -> tuple[list[list[Instruction]], np.ndarray]:
    """Sums in two registers; the longer chain has the number of instructions in the register that has more."""
    generator, decoder = np.random.default_rng(seed), Decoder()
    counts = generator.integers(1, 7, (number, 2))
    blocks = [decoder.decode(PIECES[0] * int(first) + PIECES[1] * int(second)) or [] for first, second in counts]
    return blocks, counts.max(axis=1)


def test_depths_by_hand() -> None:
    load = Instruction("MOV", "MOV_R64_RM64", writes=("RAX",), memory=(Memory("RAX", is_read=True),))
    add = Instruction("ADD", "ADD_R64_RM64", reads=("RAX", "RCX"), writes=("RCX", "RFLAGS"))
    nop = Instruction("NOP", "NOPD")
    assert dependence_depths([]) == (0, 0)
    assert dependence_depths([nop, nop]) == (1, 0)
    # The second add waits for the second load and for the first add.
    assert dependence_depths([load, add, nop]) == (2, 1)
    assert dependence_depths([load, load, add]) == (3, 2)


def test_learns_dependences() -> None:
    (train, cycles), (test, expected) = blocks_and_depths(400, 0), blocks_and_depths(100, 1)
    trees = BlockTrees(train, np.full((400, 4), np.nan), cycles)
    error = relative_errors(trees.predict(test, np.full((100, 4), np.nan)), expected).mean()
    assert error < 0.05 < relative_errors(LinearHistogram(train, cycles).predict(test), expected).mean()


@pytest.mark.ci
def test_learns_from_events_and_that_they_are_unknown() -> None:
    blocks, depths = blocks_and_depths(600, 2)
    events = np.random.default_rng(3).choice([0.0, 4.0, np.nan], 600)
    annotations = np.column_stack([np.full((600, 3), np.nan), events])
    cycles = depths + np.select([events == 4, np.isnan(events)], [20.0, 50.0])
    trees = BlockTrees(blocks, annotations, cycles)
    hidden = np.full((600, 4), np.nan)
    without = BlockTrees(blocks, hidden, cycles).predict(blocks, hidden)
    error = relative_errors(trees.predict(blocks, annotations), cycles).mean()
    assert error < 0.2 < 0.5 < relative_errors(without, cycles).mean()
    assert trees.predict([[]], np.full((1, 4), np.nan)).min() > 0
