"""What each cost model says that a build costs: one number, lower is better.

    instructions, measured         that the run executed, libraries included
    cycle estimate, measured       callgrind's, of that run
    MODEL, own                     the sum over blocks of count x cost, with the build's own counts
    MODEL, matched                 the same, with the counts of a run of the base build, see `stale_profile_matching`
    MODEL, estimated               the same, with the compiler's frequencies and one call of each function

Costs of a block, which do not depend on what runs before it:

    instructions                   how many it has
    RegAllocScore                  `block_costs.regalloc_cost`
    llvm-mca                       its cycles by llvm-mca
    llvm-mca + penalties           and callgrind's penalty for each of its misses and mispredictions in the base build
    learned                        by a network that sees no annotations
    learned + runtime              by the same network, which sees the annotations of the block in the base build; of a
                                   block that is not there, those of the average execution

Nothing is fitted to the builds. A block that cannot be decoded, or that llvm-mca refuses, costs nothing in all of them.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from compiler_opt.cost_models.block_costs import INSTRUCTIONS, MCA, REGALLOC_SCORE, regalloc_cost
from compiler_opt.cost_models.throughput.blocks import ANNOTATIONS, UNKNOWN, Block
from compiler_opt.cost_models.throughput.instructions import Decoder, Instruction
from studies.ranking.builds import Build
from studies.ranking.stale_profile_matching import MatchedProfile, match_profile

MEASURED, OWN, MATCHED, ESTIMATED = "measured", "own", "matched", "estimated"
"""Sources of counts."""

CYCLE_ESTIMATE = "cycle estimate"
MCA_PENALTIES = "llvm-mca + penalties"
LEARNED, LEARNED_RUNTIME = "learned", "learned + runtime"

PENALTIES = {"instruction_misses": 10.0, "data_misses": 10.0, "last_level_misses": 100.0, "mispredicted_entries": 10.0}
"""Cycles of each of `ANNOTATIONS`, as in `measure.callgrind.Counts.cycles`."""

Predict = Callable[[Sequence[Block]], np.ndarray]
"""Cycles `[N]` of blocks, which may have annotations; NaN for those that cannot be decoded."""


@dataclasses.dataclass(frozen=True)
class Model:
    """A row of the comparison: what a block costs, and where counts come from."""

    name: str
    counts: str

    def __str__(self) -> str:
        return f"{self.name} ({self.counts})"


def models(*, learned: bool) -> list[Model]:
    """All of them, in order; the learned ones only if there is a network."""
    names = [INSTRUCTIONS, REGALLOC_SCORE, MCA, MCA_PENALTIES, *([LEARNED, LEARNED_RUNTIME] if learned else [])]
    references = [Model(INSTRUCTIONS, MEASURED), Model(CYCLE_ESTIMATE, MEASURED)]
    measured = [Model(name, counts) for counts in (OWN, MATCHED) for name in names]
    # Without a run, nothing is known about misses.
    estimated = [Model(name, ESTIMATED) for name in names if name not in (MCA_PENALTIES, LEARNED_RUNTIME)]
    return [*references, *measured, *estimated]


@dataclasses.dataclass(frozen=True)
class Costs:
    """What the models say of a build.

    Attributes:
      by_model: one number for each.
      instructions_with_cost: the part of all instructions that the run executed that is in blocks with a cost.
      counts_measured: the part of the matched instructions that is in blocks whose counts per call were measured.
    """

    by_model: Mapping[Model, float]
    instructions_with_cost: float
    counts_measured: float


class CostModels:
    """All cost models, of builds of programs."""

    def __init__(self, decoder: Decoder, cycles: Mapping[bytes, float], predict: Predict | None = None):
        """Takes cycles by the code of blocks, as llvm-mca says, and a network, if there is one."""
        self._decoder = decoder
        self._cycles = cycles
        self._predict = predict
        self._predicted: dict[tuple[bytes, tuple[float, ...]], float] = {}

    def costs(self, base: Build, build: Build) -> Costs:
        """What each model says of a build of the same program as the base build, or of the base build itself."""
        matched = match_profile(base, build)
        decoded = self._decoded(build)
        sizes = _sizes(decoded)
        cycles = np.array([self._cycles.get(block.code, 0.0) for block in build.blocks])
        scores = np.array([regalloc_cost(instructions) for instructions in decoded])
        costs = {INSTRUCTIONS: sizes, REGALLOC_SCORE: scores, MCA: cycles}
        per_execution, elsewhere = penalties(base, matched)
        costs[MCA_PENALTIES] = cycles + per_execution
        if self._predict is not None:
            costs[LEARNED] = self._learned(build, np.full(matched.annotations.shape, np.nan), sizes > 0)
            runs = (sizes > 0) & ((build.counts > 0) | (matched.counts > 0))
            known = np.isfinite(matched.annotations)
            costs[LEARNED_RUNTIME] = self._learned(build, np.where(known, matched.annotations, _usual(base)), runs)
        frequencies = np.array([block.frequency for block in build.blocks], np.float64)
        counts = {OWN: build.counts, MATCHED: matched.counts, ESTIMATED: frequencies}
        by_model = {
            Model(INSTRUCTIONS, MEASURED): float(build.total.instructions),
            Model(CYCLE_ESTIMATE, MEASURED): float(build.total.cycles),
            **{
                model: _total(counts[model.counts] * costs[model.name]) + elsewhere * (model.name == MCA_PENALTIES)
                for model in models(learned=self._predict is not None)
                if model.counts != MEASURED
            },
        }
        instructions = matched.counts * sizes
        return Costs(
            by_model,
            by_model[Model(INSTRUCTIONS, OWN)] / max(1, build.total.instructions),
            float(instructions[matched.is_measured].sum() / max(1.0, instructions.sum())),
        )

    def _decoded(self, build: Build) -> list[Sequence[Instruction]]:
        """The instructions of each block, none of those without a cost."""
        return [
            (self._decoder.decode(block.code) if block.code in self._cycles else None) or () for block in build.blocks
        ]

    def _learned(self, build: Build, annotations: np.ndarray, runs: np.ndarray) -> np.ndarray:
        """The network's cycles `[N]` with annotations `[N, A]`; 0 where a block does not run, or is not decoded."""
        assert self._predict is not None
        rows = np.flatnonzero(runs).tolist()
        keys = {}
        for row in rows:
            known = annotations[row]
            keys[row] = (build.blocks[row].code, tuple(known.tolist()) if np.isfinite(known).all() else ())
        unknown = [key for key in dict.fromkeys(keys.values()) if key not in self._predicted]
        blocks = [Block(code, "", "", 0, 0.0, annotations=known or UNKNOWN) for code, known in unknown]
        if blocks:
            self._predicted.update(zip(unknown, self._predict(blocks).tolist(), strict=True))
        result = np.zeros(len(build.blocks))
        result[rows] = [self._predicted[keys[row]] for row in rows]
        return np.nan_to_num(result)


def _sizes(decoded: Sequence[Sequence[Instruction]]) -> np.ndarray:
    return np.array([len(instructions) for instructions in decoded], np.float64)


def _usual(base: Build) -> np.ndarray:
    """`[A]` events of the average execution of a block: unknown events would cost more than none."""
    return np.nan_to_num(base.annotations).T @ base.counts / max(1.0, base.counts.sum())


def penalties(base: Build, matched: MatchedProfile) -> tuple[np.ndarray, float]:
    """Cycles for misses and mispredictions of the base build in another build.

    Returns:
      For each execution of each block `[N]`, as of its counterpart in the base build; 0 if it has none. And the sum
      over all executions of the blocks of the base build that have no counterpart: other code is taken to cost as much.
    """
    weights = np.array([PENALTIES[name] for name in ANNOTATIONS])
    spent = np.nan_to_num(base.annotations) @ weights * base.counts
    return np.nan_to_num(matched.annotations) @ weights, float(spent[matched.is_lost].sum())


def _total(values: np.ndarray) -> float:
    """A sum that does not depend on the order, so that builds with the same blocks are equal."""
    return math.fsum(values.tolist())
