"""What a model of blocks has to beat: predictions from how many instructions of which form a block has."""

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from compiler_opt.cost_models.throughput.instructions import Instruction
from compiler_opt.cost_models.throughput.vocabulary import form_name

_RIDGE = 1e-5
_MIN_COUNT = 10
_MIN_CYCLES = 0.05

Blocks = Sequence[Sequence[Instruction]]


class Baseline(Protocol):
    """Predicts from what it was fitted to."""

    name: str

    def predict(self, blocks: Blocks) -> np.ndarray:
        """`[N]` cycles."""
        ...


class ConstantPerInstruction:
    """The same number of cycles for each instruction: the one with the least mean absolute percentage error."""

    name = "constant per instruction"

    def __init__(self, blocks: Blocks, cycles: np.ndarray):
        """Fits it to blocks and their cycles `[N]`."""
        ratios = np.array([len(block) for block in blocks]) / cycles
        # The error is sum |c r - 1| = sum r |c - 1/r|: the median of 1/r, weighted by r.
        order = np.argsort(1 / ratios)
        weights = np.cumsum(ratios[order])
        self.cycles = float(1 / ratios[order[np.searchsorted(weights, weights[-1] / 2)]])

    def predict(self, blocks: Blocks) -> np.ndarray:
        """`[N]` cycles."""
        return self.cycles * np.array([len(block) for block in blocks], np.float64)


class LinearHistogram:
    """Ridge regression on the number of instructions of each form, with errors relative to the cycles."""

    name = "linear in the histogram"

    def __init__(self, blocks: Blocks, cycles: np.ndarray):
        """Fits it to blocks and their cycles `[N]`."""
        counts = Counter(form_name(instruction) for block in blocks for instruction in block)
        frequent = sorted(name for name, count in counts.items() if count >= _MIN_COUNT)
        # Number 0 is the constant, 1 all forms that are rare.
        self._numbers = {name: number for number, name in enumerate(frequent, 2)}
        size = len(frequent) + 2
        gram, moment = np.zeros((size, size)), np.zeros(size)
        for start in range(0, len(blocks), 1 << 12):
            part = slice(start, start + (1 << 12))
            rows = self._histograms(blocks[part]) / cycles[part, None]
            gram += rows.T @ rows
            moment += rows.sum(axis=0)
        self._weights = np.linalg.solve(gram + np.diag(_RIDGE * np.diag(gram) + _RIDGE), moment)

    def predict(self, blocks: Blocks) -> np.ndarray:
        """`[N]` cycles."""
        parts = [blocks[start : start + (1 << 12)] for start in range(0, len(blocks), 1 << 12)]
        found = [self._histograms(part) @ self._weights for part in parts]
        return np.maximum(np.concatenate([np.zeros(0), *found]), _MIN_CYCLES)

    def _histograms(self, blocks: Blocks) -> np.ndarray:
        result = np.zeros((len(blocks), len(self._numbers) + 2))
        result[:, 0] = 1
        for row, block in zip(result, blocks, strict=True):
            for instruction in block:
                row[self._numbers.get(form_name(instruction), 1)] += 1
        return result


def fit_all(blocks: Blocks, cycles: np.ndarray) -> list[Baseline]:
    """All baselines, fitted to blocks and their cycles `[N]`."""
    return [ConstantPerInstruction(blocks, cycles), LinearHistogram(blocks, cycles)]
