"""Cycles of functions: those of their blocks, weighted by how often each runs per call."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from compiler_opt.cost_models.throughput.blocks import Block


@dataclasses.dataclass(frozen=True)
class FunctionCycles:
    """A function's cost.

    Attributes:
      function: its symbol.
      module: where it is.
      cycles: per call, without what it calls.
      num_blocks: its blocks.
      num_unknown: blocks that could not be decoded, which count nothing.
    """

    function: str
    module: str
    cycles: float
    num_blocks: int
    num_unknown: int


def cycles_by_function(blocks: Sequence[Block], cycles: np.ndarray) -> list[FunctionCycles]:
    """Cost of each function, the highest first; `cycles` `[N]` of the blocks, NaN if unknown."""
    known = np.isfinite(cycles)
    costs = np.where(known, cycles, 0) * np.array([block.frequency for block in blocks])
    rows: dict[tuple[str, str], list[int]] = {}
    for row, block in enumerate(blocks):
        rows.setdefault((block.module, block.function), []).append(row)
    result = [
        FunctionCycles(function, module, float(costs[of].sum()), len(of), int((~known[of]).sum()))
        for (module, function), of in rows.items()
    ]
    return sorted(result, key=lambda each: -each.cycles)
