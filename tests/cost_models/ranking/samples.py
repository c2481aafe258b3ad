"""Builds made of few numbers."""

from collections.abc import Sequence

import numpy as np

from compiler_opt.cost_models.ranking.builds import Build, function_numbers
from compiler_opt.cost_models.throughput.blocks import Block
from compiler_opt.measure.callgrind import Counts

NOP = b"\x90"


def block(
    function: str, block_id: int, count: float, frequency: float = 1.0, misses: float = 0.0, code: bytes = NOP
) -> Block:
    """A block with a number of misses of data per execution."""
    return Block(code, "m", function, block_id, frequency, count, annotations=(0.0, misses, 0.0, 0.0))


def build(blocks: Sequence[Block], calls: Sequence[tuple[int, int]] = ()) -> Build:
    """A build with direct calls of functions by blocks, both by their numbers."""
    edges = np.array(calls, np.int64).reshape(-1, 2)
    return Build(tuple(blocks), function_numbers(blocks), edges, Counts(instructions=1000))
