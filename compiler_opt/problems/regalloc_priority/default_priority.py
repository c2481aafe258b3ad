"""LLVM's own priorities, as far as what a policy is shown tells them.

The compiler does not send them. Source of the rules: `DefaultPriorityAdvisor::getPriority` in
`llvm/lib/CodeGen/RegAllocGreedy.cpp`. First come ranges that a machine register is known to suit, then those of
several blocks and what splitting has left of others, the longest first; then those within one block, in the order of
the program; last those that wait to be split, the longest first. A register class can raise its ranges.

A policy is shown size, stage and spill weight only. What cannot be seen: whether a machine register is known to suit,
whether a range stays within its block, where in it, and of which class it is. Here a range that has not been looked at
yet counts as local when it is short.
"""

from collections.abc import Mapping

import numpy as np

from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.policy import Decider, Policy, deciding_by
from compiler_opt.problems.regalloc_priority import signature

_SHORT_SLOTS = 128
"""Up to so long, ranges are taken to be local; by how many functions come out as the compiler's."""

_OCTAVES_PER_UNIT = 4.0
"""The longest ranges have some 2^20 slots."""


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
    """The action, see `spaces.continuous`, for a live range."""
    length = float(np.log2(1 + max(size_slots, 0))) / _OCTAVES_PER_UNIT
    if stage == signature.STAGE_SPLIT:
        return signature.ADVICE.lowest + length
    if stage == signature.STAGE_ASSIGN and size_slots <= _SHORT_SLOTS:
        return 0.0
    return length
