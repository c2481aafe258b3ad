"""What register allocation costs: the part of LLVM's own score that it can change.

`llvm/lib/CodeGen/RegAllocScore.cpp` weighs every copy, load and store by how often its block runs, relative to the
function's entry. Here only those count that register allocation has added, since a stock compiler tells those in
remarks; the others hardly depend on it. `docs/regalloc_score.md` measures how well differences of the two agree.
"""

from collections.abc import Mapping

from compiler_opt.llvm.regalloc_remarks import RegallocCosts

COPY_WEIGHT = 0.2
LOAD_WEIGHT = 4.0
STORE_WEIGHT = 1.0


def function_score(costs: RegallocCosts) -> float:
    """The score of a function: its weighted instructions per call."""
    loads, stores = costs.reloads + costs.folded_reloads, costs.spills + costs.folded_spills
    return LOAD_WEIGHT * loads + STORE_WEIGHT * stores + COPY_WEIGHT * costs.copies


def function_scores(costs: Mapping[str, RegallocCosts]) -> dict[str, float]:
    """The scores by function."""
    return {function: function_score(cost) for function, cost in costs.items()}
