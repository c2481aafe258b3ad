"""Live-range eviction in the greedy register allocator: which range to evict, to minimise spills in hot code."""

from compiler_opt.decisions.decision import Decision
from compiler_opt.decisions.regalloc import function_credit
from compiler_opt.decisions.regalloc_eviction.inputs import EvictionInputs
from compiler_opt.decisions.regalloc_eviction.rules import DefaultEviction, EvictionRule, MostExpensiveEviction
from compiler_opt.llvm.advisors import REGALLOC_EVICTION
from compiler_opt.objectives.spill_cost import SpillCost
from compiler_opt.problem import Problem
from compiler_opt.spaces.masked_categorical import MaskedCategorical

DECISION = Decision(
    name="regalloc_eviction",
    advisor=REGALLOC_EVICTION,
    feature_names=EvictionInputs.names,
    # The advice is one of several candidates, the last of which evicts nothing.
    action_space=MaskedCategorical(EvictionInputs(), (MostExpensiveEviction(),)),
    credit=function_credit,
    default_policy=DefaultEviction(),
    rule=EvictionRule(),
)

PROBLEM = Problem(DECISION, SpillCost())
