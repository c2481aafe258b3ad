"""Allocation priority in the greedy register allocator: which live range is allocated first, to minimise spills.

A decision is made when a live range enters the allocator's queue (`llvm/lib/CodeGen/MLRegAllocPriorityAdvisor.cpp`).
The advice is a float that the compiler truncates to an unsigned number; the range with the highest comes first, among
equals the one with the lowest register number. The result for values that are negative, too large or not finite is
undefined: clang-19 and clang-22 on x86-64 keep the lowest 32 bits, so -1 is the highest of all, and 2^32, infinity and
NaN are the lowest, 0. `ADVICE` avoids such values.
"""

from collections.abc import Mapping

import numpy as np

from compiler_opt.decisions.decision import Decision
from compiler_opt.decisions.regalloc import function_credit
from compiler_opt.llvm.advisors import REGALLOC_PRIORITY
from compiler_opt.llvm.training_log import Header
from compiler_opt.objectives.spill_cost import SpillCost
from compiler_opt.policies.policy import Decider, Policy, deciding_by
from compiler_opt.problem import Problem
from compiler_opt.spaces.continuous import Continuous
from compiler_opt.spaces.quantizer import ActionQuantizer

FEATURES = ("li_size", "stage", "weight")
"""Length in slots, 16 per instruction; `LiveRangeStage`, of which later versions have fewer; and spill weight, which is
infinite for ranges that must not be spilled."""

STAGE_ASSIGN, STAGE_SPLIT = 1, 2
"""The range is new; the range found no register and will be split. The same numbers in all versions."""

ADVICE = ActionQuantizer(lowest=-8.0, highest=8.0, steps=1 << 19)
"""Fine enough that live ranges of up to half a million slots are ordered exactly by length, if the action is its
logarithm (see `default_action`)."""

_SHORT_SLOTS = 128
"""Ranges up to this length count as local; chosen so that most functions come out as the compiler's."""

_OCTAVES_PER_UNIT = 4.0
"""Scales actions; the longest ranges have some 2^20 slots."""


class DefaultPriority(Policy):
    """Orders live ranges much as LLVM does; the compiler does not send its priorities.

    Source of the rules: `DefaultPriorityAdvisor::getPriority` in `llvm/lib/CodeGen/RegAllocGreedy.cpp`. First come
    ranges with a hint to a physical register, then ranges that span blocks and the remains of splitting, the longest
    first; then ranges within one block, in program order; last ranges that wait to be split, the longest first. A
    register class can raise the priority of its ranges.

    The features do not show whether there is a hint, whether a range stays within its block, its place there, and its
    register class. Here a new range counts as local if it is short.
    """

    name = "default"
    is_default = True

    def start(self, header: Header, seed: int) -> Decider:
        del seed
        return deciding_by(_advice, ("li_size", "stage"), header, self.name)


def _advice(features: Mapping[str, np.ndarray]) -> np.ndarray:
    action = default_action(int(features["li_size"].item()), int(features["stage"].item()))
    return ADVICE.to_advice(np.array([action]))


def default_action(size_slots: int, stage: int) -> float:
    """The action (see `spaces.continuous`) for a live range."""
    length = float(np.log2(1 + max(size_slots, 0))) / _OCTAVES_PER_UNIT
    if stage == STAGE_SPLIT:
        return ADVICE.lowest + length
    if stage == STAGE_ASSIGN and size_slots <= _SHORT_SLOTS:
        return 0.0
    return length


DECISION = Decision(
    name="regalloc_priority",
    advisor=REGALLOC_PRIORITY,
    feature_names=FEATURES,
    action_space=Continuous(ADVICE),
    credit=function_credit,
    default_policy=DefaultPriority(),
)

PROBLEM = Problem(DECISION, SpillCost())
