"""Allocation priority in the greedy register allocator: which live range is allocated first, to minimise spills."""

from compiler_opt.llvm.advisors import REGALLOC_PRIORITY
from compiler_opt.problems.regalloc import RegallocProblem
from compiler_opt.problems.regalloc_priority import signature
from compiler_opt.problems.regalloc_priority.default_priority import DefaultPriority
from compiler_opt.spaces.continuous import Continuous


class AllocationPriority(RegallocProblem):
    """The advice is a live range's priority, a number."""

    name = "regalloc_priority"
    advisor = REGALLOC_PRIORITY
    feature_names = signature.FEATURES
    action_space = Continuous(signature.ADVICE)
    default_policy = DefaultPriority()


PROBLEM = AllocationPriority()
