"""What a priority policy sees and says (`llvm/lib/CodeGen/MLRegAllocPriorityAdvisor.cpp`).

One decision: a live range enters the allocator's queue; how soon is it to come out? The advice is a float, of which
the compiler makes an unsigned number by leaving out the fraction; the range with the highest comes first, among equals
the one with the lowest register number. For what is negative, too large or no number there is no rule: the clangs 19
and 22 seen here (x86-64) keep the lowest 32 bits, so that -1 is the highest of all, and 2^32 and what is infinite or no
number the lowest, 0. `ADVICE` stays clear of that.
"""

from compiler_opt.spaces.continuous import ActionQuantizer

FEATURES = ("li_size", "stage", "weight")
"""Length in slots, 16 to an instruction; how often the range has been through the queue
(`LiveRangeStage`, which later versions have fewer of); spill weight, infinite where spilling is no choice."""

STAGE_ASSIGN, STAGE_SPLIT = 1, 2
"""Not looked at yet; found no register and is to be split. The same in all versions."""

ADVICE = ActionQuantizer(lowest=-8.0, highest=8.0, steps=1 << 19)
"""Fine: live ranges of up to half a million slots come out by length, exactly, when their actions are by its logarithm
(see `default_priority`)."""
