"""Features of eviction decisions (`llvm/lib/CodeGen/MLRegAllocEvictAdvisor.cpp`).

A decision is made when an interval has found no free register: which candidate's intervals to evict for it. All
features except `progress` have one value per candidate, in allocation order; the last candidate is the interval itself,
and choosing it evicts nothing. The advice is the candidate's position.
"""

from collections.abc import Mapping
from typing import Any

from compiler_opt.llvm.advisors import REGALLOC_EVICTION
from compiler_opt.spaces.arrays import NUMPY, Arrays

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

INTEGERS = (MASK, "is_free", "is_hint", "is_local", "max_stage", "min_stage")
"""Those of the features that are int64, with LLVM 19 and 22; the others are float32. Channels' headers say so, too."""

NUM_CANDIDATES = 33
"""C, likewise. Both are for models that are compiled into LLVM, which have no header."""

PLUGIN_DEFAULT = REGALLOC_EVICTION.plugin_default_feature or ""
"""The default's choice, a feature that our plugin adds (see `llvm.regalloc_plugin`)."""

PROGRESS = "progress"
"""The share of the function that is allocated; the same for all candidates."""


def by_candidate(features: Mapping[str, Any], name: str, arrays: Arrays = NUMPY) -> Any:
    """A feature as `[T, C]`; the compiler sends `[T, 1, C]`."""
    return arrays.rows(features[name])


def spill_weights(features: Mapping[str, Any], arrays: Arrays = NUMPY) -> Any:
    """The spill weight of each candidate, relative to the decision's largest; `[T, C]`.

    An interval that must not be spilled has infinite weight, which the compiler sends as NaN (infinity / infinity), and
    all finite weights beside it as 0, so how these compare is lost.
    """
    weight = by_candidate(features, "use_def_density", arrays)
    return arrays.where(arrays.is_nan(weight), float("inf"), weight)
