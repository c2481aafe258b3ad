"""LLVM's rule of whom to evict, made one of a family: what a candidate costs is a product of powers.

    cost = weight x length^p x (uses, reads, ...)^q x exp(a per broken hint + b if local - c if it is the hint + ...)

The cheapest candidate is evicted for the interval that looks for a register, if it costs less than that one's own
`weight x length^p x ...`, times exp(`eager`). LLVM's own rule has all powers 0 and compares broken hints before all
else. Its weight is a *density*: what an interval's uses cost, divided by its length; so p = 1 is what spilling it would
cost as a whole, and what is between weighs both: a long interval is in the way of more others, and dearer to spill.

Quantities are shares of the greatest among a decision's candidates, as the compiler sends them.
"""

from collections.abc import Mapping

import numpy as np

from compiler_opt.policies.rule import Rule, RuleParameter
from compiler_opt.problems.regalloc_eviction import signature
from compiler_opt.problems.regalloc_eviction.default_eviction import URGENT_HINTS, default_choices
from compiler_opt.problems.regalloc_eviction.signature import by_candidate, spill_weights

_SMALLEST = 1e-4
"""Added to shares before their logarithm is taken: some are 0."""

_POWERS = {
    "length": "liverange_size",
    "uses": "nr_defs_and_uses",
    "reads": "weighed_reads_by_max",
    "writes": "weighed_writes_by_max",
    "hottest_block": "hottest_bb_freq_by_max",
    "first_block": "start_bb_freq_by_max",
    "last_block": "end_bb_freq_by_max",
}
"""Parameters that are powers of features."""

_PER_UNIT = {"rematerializable": "nr_rematerializable", "stage": "max_stage"}
"""Parameters that multiply features within the exponential."""


class EvictionRule(Rule):
    """The family; see the head of this file."""

    features = (signature.MASK, *signature.FEATURES)
    optional = (signature.TOLD_DEFAULT,)
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
        told = self.named(values)
        column = {name: by_candidate(features, name).astype(np.float64) for name in self.features}
        weight = spill_weights(features).astype(np.float64)
        legal = column[signature.MASK] != 0
        # Logarithms of costs, which have the same order. [T, C]
        cost = _logarithm(weight)
        for name, feature in _POWERS.items():
            cost = cost + told[name] * _logarithm(column[feature])
        for name, feature in _PER_UNIT.items():
            cost = cost + told[name] * column[feature]
        may_fail = legal[:, -1]
        free = column["is_free"] != 0
        others = legal.copy()
        others[:, -1] = False
        others &= free | (cost < cost[:, -1:] + told["eager"]) | ~may_fail[:, np.newaxis]
        hints = column["nr_broken_hints"] + URGENT_HINTS * column["nr_urgent"]
        cost = cost + told["broken_hints"] * hints + told["local"] * column["is_local"]
        cost = np.where(free, -np.inf, cost - told["hint"] * column["is_hint"])
        default = default_choices(features)
        # Of equals the first; one that is free costs nothing, but is not nothing at all.
        chosen = np.where(others, np.maximum(cost, np.finfo(np.float64).min), np.inf).argmin(axis=1)
        chosen = np.where(others.any(axis=1), chosen, np.where(may_fail, legal.shape[1] - 1, default))
        # Where one of them must not be spilled, the others' weights do not arrive.
        lost = (np.isinf(weight) & legal).any(axis=1)
        result: np.ndarray = np.where(lost, default, chosen)
        return result


def _logarithm(shares: np.ndarray) -> np.ndarray:
    result: np.ndarray = np.log(np.maximum(shares, 0.0) + _SMALLEST)
    return result
