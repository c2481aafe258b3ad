"""Boosted trees over counts and dependences of a block's instructions: what a network has to beat."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from compiler_opt.cost_models.throughput.blocks import ANNOTATIONS
from compiler_opt.cost_models.throughput.instructions import Instruction
from compiler_opt.cost_models.trees import BoostedTrees, TreeSettings

Blocks = Sequence[Sequence[Instruction]]

MAX_MNEMONICS = 100
"""The most frequent ones, which are counted one by one."""

UNKNOWN_EVENTS = -1.0
"""What trees see of an event that nobody has counted; counts are at least 0."""

_MIN_CYCLES = 0.05
_COUNTS = ("instructions", "loads", "stores", "addresses", "immediates", "prefixes", "reads", "writes")
_DEPTHS = ("depth", "carried depth")


class BlockTrees:
    """Trees with the least mean absolute percentage error."""

    name = "boosted trees"

    def __init__(self, blocks: Blocks, annotations: np.ndarray, cycles: np.ndarray, seed: int = 0):
        """Fits them to blocks with annotations `[N, A]`, NaN if unknown, and their cycles `[N]`."""
        counts = Counter(instruction.mnemonic for block in blocks for instruction in block)
        frequent = sorted(counts, key=lambda name: (-counts[name], name))[:MAX_MNEMONICS]
        self._numbers = {name: number for number, name in enumerate(frequent)}
        self._trees = BoostedTrees.fit(
            self._features(blocks, annotations), cycles, 1 / cycles, TreeSettings(leaves=31), seed=seed
        )

    def predict(self, blocks: Blocks, annotations: np.ndarray) -> np.ndarray:
        """`[N]` cycles of blocks with annotations `[N, A]`, NaN if unknown."""
        return np.maximum(self._trees.predict(self._features(blocks, annotations)), _MIN_CYCLES)

    def _features(self, blocks: Blocks, annotations: np.ndarray) -> np.ndarray:
        first = len(_COUNTS) + len(_DEPTHS)
        result = np.zeros((len(blocks), first + len(self._numbers) + len(ANNOTATIONS)), np.float32)
        for row, block in zip(result, blocks, strict=True):
            row[: len(_COUNTS)] = _counts(block)
            row[len(_COUNTS) : first] = dependence_depths(block)
            for instruction in block:
                number = self._numbers.get(instruction.mnemonic)
                if number is not None:
                    row[first + number] += 1
        result[:, first + len(self._numbers) :] = np.where(np.isfinite(annotations), annotations, UNKNOWN_EVENTS)
        return result


def _counts(block: Sequence[Instruction]) -> tuple[int, ...]:
    memory = [place for instruction in block for place in instruction.memory]
    return (
        len(block),
        sum(place.is_read for place in memory),
        sum(place.is_written for place in memory),
        len(memory),
        sum(instruction.num_immediates for instruction in block),
        sum(len(instruction.prefixes) for instruction in block),
        sum(len(instruction.reads) for instruction in block),
        sum(len(instruction.writes) for instruction in block),
    )


def dependence_depths(block: Sequence[Instruction]) -> tuple[int, int]:
    """Instructions on the longest chain of dependences through registers: in one run, and what a second one adds."""
    depths: dict[str, int] = {}
    longest = []
    for _ in range(2):
        for instruction in block:
            used = [*instruction.reads]
            for place in instruction.memory:
                used += [place.base, place.index]
            depth = 1 + max((depths.get(register, 0) for register in used), default=0)
            depths.update(dict.fromkeys(instruction.writes, depth))
            longest.append(depth)
    once = max(longest[: len(block)], default=0)
    return once, max(longest, default=0) - once
