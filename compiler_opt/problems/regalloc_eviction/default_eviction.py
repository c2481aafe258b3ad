"""LLVM's own choice of the live range to evict, rebuilt from what an eviction policy is shown.

The compiler does not send it. Source of the rules: `DefaultEvictionAdvisor` in
`llvm/lib/CodeGen/RegAllocEvictionAdvisor.cpp`; the candidates come in the order of allocation, the last place stands
for the interval that looks for a register itself.

    cheapest = none
    for each legal candidate, in order:
        take it if it costs less than the cheapest so far: broken hints first, then the heaviest interval's weight
            (one that is free costs nothing, an urgent eviction ten broken hints)
        ... and weighs less than the interval that looks for a register, unless that must find one
        ... and is not local, once there is a cheapest
        stop there if it is the register that was hinted at
    without one: the interval itself

What cannot be seen: how the weights compare in a decision in which one of them is infinite (see `spill_weights`; the
interval itself is then taken to be among the lightest), and whether the allocator only looks for a register that is
cheaper to use than the one it has.
"""

import numpy as np

from compiler_opt.errors import PolicyError
from compiler_opt.llvm.training_log import Header, record_dtype
from compiler_opt.policies.policy import Decider, Policy
from compiler_opt.problems.regalloc_eviction.inputs import spill_weights

_URGENT_HINTS = 10.0
"""What an urgent eviction counts in broken hints."""


class DefaultEviction(Policy):
    """Decides as the compiler's own advisor would."""

    name = "default"

    def start(self, header: Header, seed: int) -> Decider:
        del seed
        missing = [name for name in (*_SEEN, "use_def_density") if name not in header.names]
        if missing:
            raise PolicyError(f"eviction: the compiler does not send the features {', '.join(missing)}")
        return _Deciding(header)


_SEEN = ("mask", "is_free", "nr_urgent", "nr_broken_hints", "is_hint", "is_local")


class _Deciding(Decider):
    def __init__(self, header: Header):
        self._dtype = record_dtype(header.features)

    def __call__(self, observation: bytes) -> int:
        record = np.frombuffer(observation, self._dtype, 1)[0]
        mask, is_free, urgent, broken, is_hint, is_local = (record[name].ravel().tolist() for name in _SEEN)
        [weight] = spill_weights({"use_def_density": record["use_def_density"]}).tolist()
        itself = len(mask) - 1
        may_fail = mask[itself] != 0
        cheapest = (float("inf"), float("inf"))
        chosen = itself
        for place in range(itself):
            if not mask[place]:
                continue
            if is_free[place]:
                cost = (0.0, 0.0)
            else:
                cost = (broken[place] + _URGENT_HINTS * urgent[place], weight[place])
                if cost >= cheapest:
                    continue
                if may_fail and weight[place] >= weight[itself]:
                    continue
                if may_fail and chosen != itself and is_local[place]:
                    continue
            chosen, cheapest = place, cost
            if is_hint[place]:
                break
        return chosen
