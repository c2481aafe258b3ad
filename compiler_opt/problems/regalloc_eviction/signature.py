"""What an eviction policy sees and says (`llvm/lib/CodeGen/MLRegAllocEvictAdvisor.cpp`).

One decision: an interval has found no free register; which candidate's intervals are evicted for it? All features but
`progress` have one value for each candidate, in the order of allocation; the last candidate is the interval itself,
and choosing it means to evict nothing. The advice is the candidate's position.
"""

from collections.abc import Mapping

import numpy as np

from compiler_opt.llvm.advisors import REGALLOC_EVICTION

MASK = "mask"
"""1 where a candidate may be chosen."""

FEATURES = (
    "is_free",
    "nr_urgent",
    "nr_broken_hints",
    "is_hint",
    "is_local",
    "nr_rematerializable",
    "nr_defs_and_uses",
    "weighed_reads_by_max",
    "weighed_writes_by_max",
    "weighed_read_writes_by_max",
    "weighed_indvars_by_max",
    "hint_weights_by_max",
    "start_bb_freq_by_max",
    "end_bb_freq_by_max",
    "hottest_bb_freq_by_max",
    "liverange_size",
    "use_def_density",
    "max_stage",
    "min_stage",
)
"""Of each candidate."""

TOLD_DEFAULT = REGALLOC_EVICTION.plugin_default_feature or ""
"""The default's choice, where our plugin tells it (see `llvm.regalloc_plugin`)."""

PROGRESS = "progress"
"""How much of the function is allocated; the same for all candidates."""


def by_candidate(features: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    """`[T, 1, C]`, as the compiler sends it, or `[T, C]`, to `[T, C]`."""
    values = features[name]
    return values.reshape(len(values), -1)


def spill_weights(features: Mapping[str, np.ndarray]) -> np.ndarray:
    """The spill weight of each candidate, as a share of the decision's greatest; `[T, C]`.

    An interval that must not be spilled weighs infinitely much, and infinity by infinity comes as not a number. All
    finite weights beside it come as 0: how they compare is lost.
    """
    weight = by_candidate(features, "use_def_density")
    return np.where(np.isnan(weight), np.float32(np.inf), weight)
