"""LLVM's own choice of the live range to evict: as told, or rebuilt from what an eviction policy is shown.

The compiler does not send it; our plugin does (see `llvm.regalloc_plugin`). Without that it is rebuilt. Source of the
rules: `DefaultEvictionAdvisor` in `llvm/lib/CodeGen/RegAllocEvictionAdvisor.cpp`; the candidates come in the order of
allocation, the last place stands for the interval that looks for a register itself.

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

from collections.abc import Mapping

import numpy as np

from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.policy import Decider, Policy, deciding_by
from compiler_opt.problems.regalloc_eviction import signature
from compiler_opt.problems.regalloc_eviction.signature import by_candidate, spill_weights

URGENT_HINTS = 10.0
"""What an urgent eviction counts in broken hints."""

_SEEN = ("mask", "is_free", "nr_urgent", "nr_broken_hints", "is_hint", "is_local")


def default_choices(features: Mapping[str, np.ndarray]) -> np.ndarray:
    """What the compiler's own advisor would choose; features by name, as the compiler sends them, to `[T]` int64."""
    if signature.TOLD_DEFAULT in features:
        return features[signature.TOLD_DEFAULT].reshape(-1).astype(np.int64)
    return rebuilt_choices(features)


def rebuilt_choices(features: Mapping[str, np.ndarray]) -> np.ndarray:
    """The same, as far as it can be seen when nobody tells."""
    columns = [by_candidate(features, name).tolist() for name in _SEEN]
    weights = spill_weights(features).tolist()
    return np.array([_choose(*decision) for decision in zip(*columns, weights, strict=True)], np.int64)


def _choose(
    mask: list[float],
    is_free: list[float],
    urgent: list[float],
    broken: list[float],
    is_hint: list[float],
    is_local: list[float],
    weight: list[float],
) -> int:
    """The place of one decision, of each candidate's features."""
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
            cost = (broken[place] + URGENT_HINTS * urgent[place], weight[place])
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


class DefaultEviction(Policy):
    """Decides as the compiler's own advisor would."""

    name = "default"
    is_default = True

    def start(self, header: Header, seed: int) -> Decider:
        del seed
        told = signature.TOLD_DEFAULT in header.names
        names = (signature.TOLD_DEFAULT,) if told else (*_SEEN, "use_def_density")
        return deciding_by(default_choices, names, header, self.name)
