"""Rules of eviction: LLVM's own, and a family of rules with parameters.

Our plugin sends LLVM's own choice of the live range to evict (`llvm.regalloc_plugin`). Otherwise it is rebuilt from the
features, by the rules of `DefaultEvictionAdvisor` in `llvm/lib/CodeGen/RegAllocEvictionAdvisor.cpp`. The candidates are
in allocation order, and the last one is the interval that needs a register.

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

The family includes an approximation of this rule. A candidate's cost is a product of powers:

    cost = weight x length^p x (uses, reads, ...)^q x exp(a per broken hint + b if local - c if it is the hint + ...)

The cheapest candidate is evicted if it costs less than the interval itself, `weight x length^p x ...`, times
exp(`eager`). LLVM's own rule has all powers 0 and compares broken hints first. Its weight is a *density*: the cost of
an interval's uses divided by its length. So p = 1 is the total cost of spilling an interval, and values between 0 and 1
also consider that a long interval blocks more others. Quantities are relative to the largest among a decision's
candidates, as the compiler sends them.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from compiler_opt.decisions.regalloc_eviction import signature
from compiler_opt.decisions.regalloc_eviction.signature import by_candidate, spill_weights
from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.policy import Decider, Policy, deciding_by
from compiler_opt.policies.rule import Rule, RuleParameter
from compiler_opt.spaces.arrays import NUMPY, Arrays

URGENT_HINTS = 10.0
"""An urgent eviction counts as this many broken hints."""

_DEFAULT_FEATURES = ("mask", "is_free", "nr_urgent", "nr_broken_hints", "is_hint", "is_local")

_SMALLEST = 1e-4
"""Added before taking logarithms: some quantities are 0."""

_POWERS = {
    "length": "liverange_size",
    "uses": "nr_defs_and_uses",
    "reads": "weighed_reads_by_max",
    "writes": "weighed_writes_by_max",
    "hottest_block": "hottest_bb_freq_by_max",
    "first_block": "start_bb_freq_by_max",
    "last_block": "end_bb_freq_by_max",
}
"""Exponents, and the features that they are exponents of."""

_PER_UNIT = {"rematerializable": "nr_rematerializable", "stage": "max_stage"}
"""Factors of features within the exponential."""


def default_choices(features: Mapping[str, np.ndarray]) -> np.ndarray:
    """The default's choices: features by name, as the compiler sends them, to `[T]` int64."""
    if signature.PLUGIN_DEFAULT in features:
        return features[signature.PLUGIN_DEFAULT].reshape(-1).astype(np.int64)
    choices: np.ndarray = rebuilt_choices(features).astype(np.int64)
    return choices


def rebuilt_choices(features: Mapping[str, Any], arrays: Arrays = NUMPY) -> Any:
    """The same, rebuilt from the features without the plugin's: positions `[T]` float32.

    The loop above as comparisons of all candidates with all earlier ones; `native/regalloc_models.h` has the loop.
    """
    column = {name: by_candidate(features, name, arrays) for name in _DEFAULT_FEATURES}
    weight = spill_weights(features, arrays)
    legal, free, hint, local = (column[name] != 0 for name in (signature.MASK, "is_free", "is_hint", "is_local"))
    size = legal.shape[1]
    place = np.arange(size, dtype=np.float32)
    # [C, C]: whether the second comes before the first.
    earlier = place[np.newaxis, :] < place[:, np.newaxis]

    def after(flags: Any) -> Any:
        """Whether any earlier candidate has its flag set: `[T, C]` or `[T, C, C]` to `[T, C]`."""
        return arrays.any(earlier & (flags if len(flags.shape) == 3 else flags[:, np.newaxis, :]), axis=2)

    must_succeed = ~legal[:, -1:]
    takeable = legal & (place < size - 1) & (free | must_succeed | (weight < weight[:, -1:]))
    takeable = takeable & (free | must_succeed | ~local | ~after(takeable))
    hints = arrays.where(free, 0.0, column["nr_broken_hints"] + URGENT_HINTS * column["nr_urgent"])
    cost = arrays.where(free, 0.0, weight)
    # [T, C, C]: whether the first costs less than the second.
    fewer = hints[:, :, np.newaxis] < hints[:, np.newaxis, :]
    as_many = hints[:, :, np.newaxis] == hints[:, np.newaxis, :]
    cheaper = fewer | (as_many & (cost[:, :, np.newaxis] < cost[:, np.newaxis, :]))
    taken = takeable & (free | ~after(takeable[:, np.newaxis, :] & ~cheaper))
    taken = taken & ~after(taken & hint)
    last = arrays.max(arrays.where(taken, place, -1.0), axis=1)
    return arrays.where(last < 0, float(size - 1), last)


class DefaultEviction(Policy):
    """Decides as the compiler's own advisor would."""

    name = "default"
    is_default = True

    def start(self, header: Header, seed: int) -> Decider:
        del seed
        is_sent = signature.PLUGIN_DEFAULT in header.names
        names = (signature.PLUGIN_DEFAULT,) if is_sent else (*_DEFAULT_FEATURES, "use_def_density")
        return deciding_by(default_choices, names, header, self.name)


class MostExpensiveEviction(Policy):
    """Chooses the legal candidate that costs the most, by the default's order of costs: hints first, then weight.

    The first of several; a baseline that shows how much eviction can cost.
    """

    name = "most_expensive"

    def start(self, header: Header, seed: int) -> Decider:
        del seed
        return deciding_by(_most_expensive, (*_DEFAULT_FEATURES, "use_def_density"), header, self.name)


def _most_expensive(features: Mapping[str, np.ndarray]) -> np.ndarray:
    """Features by name, as the compiler sends them, to positions `[T]` int64."""
    legal = by_candidate(features, signature.MASK) != 0
    free = by_candidate(features, "is_free") != 0
    hints = by_candidate(features, "nr_broken_hints") + URGENT_HINTS * by_candidate(features, "nr_urgent")
    hints = np.where(legal, np.where(free, 0.0, hints), -1.0)
    most_hints = hints == hints.max(axis=1, keepdims=True)
    weight = np.where(free, 0.0, spill_weights(features))
    chosen: np.ndarray = np.where(most_hints, weight, -1.0).argmax(axis=1)
    return chosen


class EvictionRule(Rule):
    """The family of rules."""

    features = (signature.MASK, *signature.FEATURES)
    optional = (signature.PLUGIN_DEFAULT,)
    parameters = (
        RuleParameter("eager", 0.0, 0.3),
        RuleParameter("broken_hints", 3.0, 1.0),
        RuleParameter("local", 0.0, 0.3),
        RuleParameter("hint", 3.0, 1.0),
        RuleParameter("length", 0.0, 0.2),
        *(RuleParameter(name, 0.0, 0.15) for name in _POWERS if name != "length"),
        RuleParameter("rematerializable", 0.0, 0.4),
        RuleParameter("stage", 0.0, 0.2),
    )

    def choose(self, values: np.ndarray, features: Mapping[str, np.ndarray]) -> np.ndarray:
        value = self.named(values)
        column = {name: by_candidate(features, name).astype(np.float64) for name in self.features}
        weight = spill_weights(features).astype(np.float64)
        legal = column[signature.MASK] != 0
        # Logarithms of costs, which have the same order as costs: [T, C].
        cost = _logarithm(weight)
        for name, feature in _POWERS.items():
            cost = cost + value[name] * _logarithm(column[feature])
        for name, feature in _PER_UNIT.items():
            cost = cost + value[name] * column[feature]
        may_fail = legal[:, -1]
        free = column["is_free"] != 0
        others = legal.copy()
        others[:, -1] = False
        others &= free | (cost < cost[:, -1:] + value["eager"]) | ~may_fail[:, np.newaxis]
        hints = column["nr_broken_hints"] + URGENT_HINTS * column["nr_urgent"]
        cost = cost + value["broken_hints"] * hints + value["local"] * column["is_local"]
        cost = np.where(free, -np.inf, cost - value["hint"] * column["is_hint"])
        default = default_choices(features)
        # Free candidates cost the least; argmin takes the first among equals.
        chosen = np.where(others, np.maximum(cost, np.finfo(np.float64).min), np.inf).argmin(axis=1)
        chosen = np.where(others.any(axis=1), chosen, np.where(may_fail, legal.shape[1] - 1, default))
        # If one must not be spilled, the weights of the others are lost.
        lost = (np.isinf(weight) & legal).any(axis=1)
        return np.where(lost, default, chosen)


def _logarithm(quantities: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(quantities, 0.0) + _SMALLEST)
