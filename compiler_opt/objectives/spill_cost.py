"""What register allocation adds to functions: spills, reloads and copies.

`llvm/lib/CodeGen/RegAllocScore.cpp` weights every copy, load and store by how often its block runs, relative to the
function's entry. Here only those count that register allocation has added, which a stock compiler reports in remarks;
the program's own and rematerialisations do not. So the score is good for differences of the same function (the sign
mostly agrees with LLVM's), but not for levels: see `docs/regalloc_score.md`.
"""

from collections.abc import Mapping
from pathlib import Path

from compiler_opt.llvm.remarks import REGALLOC_PASS, RegallocCosts, parse_costs
from compiler_opt.objectives.objective import Objective, Reader

COPY_WEIGHT = 0.2
LOAD_WEIGHT = 4.0
STORE_WEIGHT = 1.0
LOAD_AND_STORE_WEIGHT = 5.0
"""Also for a folded spill: most are instructions that read a slot, change it and write it back."""


def _read(object_path: Path, remarks: bytes) -> dict[str, float]:
    del object_path
    return {function: function_score(costs) for function, costs in parse_costs(remarks).items()}


class SpillCost(Objective[Mapping[str, float], None]):
    """The score is the sum of the functions' weighted spills, reloads and copies; projects have no context."""

    score_name = "weighted spills, reloads and copies"
    reader = Reader(_read, remark_pass=REGALLOC_PASS)
    per_call = True

    def score(self, measurement: Mapping[str, float], context: None) -> float:
        return sum(measurement.values())

    def by_function(self, measurement: Mapping[str, float], context: None) -> Mapping[str, float]:
        return measurement


def function_score(costs: RegallocCosts) -> float:
    """The score of a function: its weighted instructions per call."""
    return (
        LOAD_WEIGHT * (costs.reloads + costs.folded_reloads)
        + STORE_WEIGHT * costs.spills
        + LOAD_AND_STORE_WEIGHT * costs.folded_spills
        + COPY_WEIGHT * costs.copies
    )
