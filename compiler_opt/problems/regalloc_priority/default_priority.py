"""LLVM's own priorities, rebuilt as far as the features allow, because the compiler does not send them.

Source of the rules: `DefaultPriorityAdvisor::getPriority` in `llvm/lib/CodeGen/RegAllocGreedy.cpp`. First come ranges
with a hint to a physical register, then ranges that span blocks and the remains of splitting, the longest first; then
ranges within one block, in program order; last those that wait to be split, the longest first. A register class can
raise the priority of its ranges.

The features are only size, stage and spill weight. They do not show whether there is a hint, whether a range stays
within its block, its place there, and its register class. Here a new range counts as local if it is short.
"""

from collections.abc import Mapping

import numpy as np

from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.policy import Decider, Policy, deciding_by
from compiler_opt.problems.regalloc_priority import signature

_SHORT_SLOTS = 128
"""Ranges up to this length count as local; chosen so that most functions come out as the compiler's."""

_OCTAVES_PER_UNIT = 4.0
"""Scales actions; the longest ranges have some 2^20 slots."""


class DefaultPriority(Policy):
    """Orders live ranges much as the compiler's own advisor does."""

    name = "default"
    is_default = True

    def start(self, header: Header, seed: int) -> Decider:
        del seed
        return deciding_by(_advice, ("li_size", "stage"), header, self.name)


def _advice(features: Mapping[str, np.ndarray]) -> np.ndarray:
    action = default_action(int(features["li_size"].item()), int(features["stage"].item()))
    return signature.ADVICE.to_advice(np.array([action]))


def default_action(size_slots: int, stage: int) -> float:
    """The action (see `spaces.continuous`) for a live range."""
    length = float(np.log2(1 + max(size_slots, 0))) / _OCTAVES_PER_UNIT
    if stage == signature.STAGE_SPLIT:
        return signature.ADVICE.lowest + length
    if stage == signature.STAGE_ASSIGN and size_slots <= _SHORT_SLOTS:
        return 0.0
    return length
