"""Live-range eviction in the greedy register allocator: which range to evict, to minimise spills in hot code."""

from compiler_opt.llvm.advisors import REGALLOC_EVICTION
from compiler_opt.problems.regalloc import RegallocProblem
from compiler_opt.problems.regalloc_eviction.inputs import EvictionInputs
from compiler_opt.problems.regalloc_eviction.rules import DefaultEviction, EvictionRule, MostExpensiveEviction
from compiler_opt.spaces.masked_categorical import MaskedCategorical


class LiveRangeEviction(RegallocProblem):
    """The advice is one of several candidates, the last of which evicts nothing."""

    name = "regalloc_eviction"
    advisor = REGALLOC_EVICTION
    action_space = MaskedCategorical(EvictionInputs(), (MostExpensiveEviction(),))
    feature_names = EvictionInputs.names
    default_policy = DefaultEviction()
    rule = EvictionRule()


PROBLEM = LiveRangeEviction()
