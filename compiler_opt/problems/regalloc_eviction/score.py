"""What register allocation costs: the part of LLVM's own score that it can change.

`llvm/lib/CodeGen/RegAllocScore.cpp` weighs every copy, load and store by how often its block runs, relative to the
function's entry. Here only those count that register allocation has added, which a stock compiler tells in remarks: not
the program's own, nor rematerialisations. So the score is good for how a function changes (its sign mostly agrees), and
not for levels; `docs/regalloc_score.md` has the measurements.
"""

from collections.abc import Mapping

from compiler_opt.llvm.regalloc_remarks import RegallocCosts

COPY_WEIGHT = 0.2
LOAD_WEIGHT = 4.0
STORE_WEIGHT = 1.0
LOAD_AND_STORE_WEIGHT = 5.0
"""Also of a folded spill: most are instructions that read a slot, change it and write it back."""


def function_score(costs: RegallocCosts) -> float:
    """The score of a function: its weighted instructions per call."""
    return (
        LOAD_WEIGHT * (costs.reloads + costs.folded_reloads)
        + STORE_WEIGHT * costs.spills
        + LOAD_AND_STORE_WEIGHT * costs.folded_spills
        + COPY_WEIGHT * costs.copies
    )


def function_scores(costs: Mapping[str, RegallocCosts]) -> dict[str, float]:
    """The scores by function."""
    return {function: function_score(cost) for function, cost in costs.items()}
