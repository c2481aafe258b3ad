"""Live-range eviction in the greedy register allocator: whom to send away, to have little spilled where it is hot."""

from compiler_opt.llvm.advisors import REGALLOC_EVICTION
from compiler_opt.problems.regalloc import RegallocProblem
from compiler_opt.problems.regalloc_eviction.default_eviction import DefaultEviction
from compiler_opt.problems.regalloc_eviction.eviction_rule import EvictionRule
from compiler_opt.problems.regalloc_eviction.inputs import EvictionInputs
from compiler_opt.spaces.masked_categorical import MaskedCategorical


class LiveRangeEviction(RegallocProblem):
    """Which of several candidates; evicting none is one of them."""

    name = "regalloc_eviction"
    advisor = REGALLOC_EVICTION
    action_space = MaskedCategorical(EvictionInputs())
    feature_names = EvictionInputs.names
    default_policy = DefaultEviction()
    rule = EvictionRule()


PROBLEM = LiveRangeEviction()
