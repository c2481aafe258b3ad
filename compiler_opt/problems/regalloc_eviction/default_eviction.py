"""LLVM's own choice of the live range to evict: sent by our plugin, or rebuilt from the features.

The compiler does not send it (see `llvm.regalloc_plugin` for the plugin). Source of the rules: `DefaultEvictionAdvisor`
in `llvm/lib/CodeGen/RegAllocEvictionAdvisor.cpp`; the candidates are in allocation order, and the last one is the
interval that needs a register.

    cheapest = none
    for each legal candidate, in order:
        take it if it costs less than the cheapest so far: broken hints first, then the heaviest interval's weight
            (a free candidate costs nothing, an urgent eviction counts as ten broken hints)
        ... and weighs less than the interval itself, unless that must get a register
        ... and is not local, once there is a cheapest
        stop if it is the hinted register
    otherwise: the interval itself

The features do not show how weights compare if one of them is infinite (see `spill_weights`; the interval itself then
counts among the lightest), and whether the allocator only looks for a register that is cheaper to use than the one
it has.
"""

from collections.abc import Mapping

import numpy as np

from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.policy import Decider, Policy, deciding_by
from compiler_opt.problems.regalloc_eviction import signature
from compiler_opt.problems.regalloc_eviction.signature import by_candidate, spill_weights

URGENT_HINTS = 10.0
"""An urgent eviction counts as this many broken hints."""

_FEATURES = ("mask", "is_free", "nr_urgent", "nr_broken_hints", "is_hint", "is_local")


def default_choices(features: Mapping[str, np.ndarray]) -> np.ndarray:
    """The default's choices: features by name, as the compiler sends them, to `[T]` int64."""
    if signature.PLUGIN_DEFAULT in features:
        return features[signature.PLUGIN_DEFAULT].reshape(-1).astype(np.int64)
    return rebuilt_choices(features)


def rebuilt_choices(features: Mapping[str, np.ndarray]) -> np.ndarray:
    """The same, rebuilt from the features without the plugin's."""
    columns = [by_candidate(features, name).tolist() for name in _FEATURES]
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
    """The position chosen in one decision, given the features of each candidate."""
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
        is_sent = signature.PLUGIN_DEFAULT in header.names
        names = (signature.PLUGIN_DEFAULT,) if is_sent else (*_FEATURES, "use_def_density")
        return deciding_by(default_choices, names, header, self.name)
