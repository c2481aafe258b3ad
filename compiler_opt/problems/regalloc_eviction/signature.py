"""Features of eviction decisions (`llvm/lib/CodeGen/MLRegAllocEvictAdvisor.cpp`).

A decision is made when an interval has found no free register: which candidate's intervals to evict for it. All
features except `progress` have one value per candidate, in allocation order; the last candidate is the interval itself,
and choosing it evicts nothing. The advice is the candidate's position.
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
"""Features of each candidate."""

PLUGIN_DEFAULT = REGALLOC_EVICTION.plugin_default_feature or ""
"""The default's choice, a feature that our plugin adds (see `llvm.regalloc_plugin`)."""

PROGRESS = "progress"
"""The share of the function that is allocated; the same for all candidates."""


def by_candidate(features: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    """A feature as `[T, C]`; the compiler sends `[T, 1, C]`."""
    values = features[name]
    return values.reshape(len(values), -1)


def spill_weights(features: Mapping[str, np.ndarray]) -> np.ndarray:
    """The spill weight of each candidate, relative to the decision's largest; `[T, C]`.

    An interval that must not be spilled has infinite weight, which the compiler sends as NaN (infinity / infinity), and
    all finite weights beside it as 0, so how these compare is lost.
    """
    weight = by_candidate(features, "use_def_density")
    return np.where(np.isnan(weight), np.float32(np.inf), weight)
