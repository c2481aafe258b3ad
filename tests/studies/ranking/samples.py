"""Builds made of few numbers."""

from collections.abc import Sequence

import numpy as np

from compiler_opt.cost_models.throughput.blocks import Block
from compiler_opt.measure.callgrind import Counts
from studies.ranking.builds import Build, function_numbers


def build(blocks: Sequence[Block], calls: Sequence[tuple[int, int]] = ()) -> Build:
    """A build with direct calls of functions by blocks, both by their numbers."""
    edges = np.array(calls, np.int64).reshape(-1, 2)
    return Build(tuple(blocks), function_numbers(blocks), edges, Counts(instructions=1000))
