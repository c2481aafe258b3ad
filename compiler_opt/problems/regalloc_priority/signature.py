"""Features and advice of priority decisions (`llvm/lib/CodeGen/MLRegAllocPriorityAdvisor.cpp`).

A decision is made when a live range enters the allocator's queue. The advice is a float that the compiler truncates to
an unsigned number; the range with the highest comes first, among equals the one with the lowest register number. The
result for values that are negative, too large or not finite is undefined: clang-19 and clang-22 on x86-64 keep the
lowest 32 bits, so -1 is the highest of all, and 2^32, infinity and NaN are the lowest, 0. `ADVICE` avoids such values.
"""

from compiler_opt.spaces.continuous import ActionQuantizer

FEATURES = ("li_size", "stage", "weight")
"""Length in slots, 16 per instruction; `LiveRangeStage`, of which later versions have fewer; and spill weight, which is
infinite for ranges that must not be spilled."""

STAGE_ASSIGN, STAGE_SPLIT = 1, 2
"""The range is new; the range found no register and will be split. The same numbers in all versions."""

ADVICE = ActionQuantizer(lowest=-8.0, highest=8.0, steps=1 << 19)
"""Fine enough that live ranges of up to half a million slots are ordered exactly by length, if the action is its
logarithm (see `default_priority`)."""
