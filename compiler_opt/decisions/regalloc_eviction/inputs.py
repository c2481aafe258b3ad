"""Inputs of eviction networks for each candidate: the compiler's features, and comparisons between candidates.

Legend: C candidates, the last of which is the interval that needs a register; T decisions; F inputs.

A network scores one candidate at a time, so comparisons with the others are inputs of their own: whether it is lighter
than the interval itself, how many cost less to evict, how many there are, the features of the interval itself, and
whether the compiler's own rules would choose it.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from compiler_opt.decisions.regalloc_eviction import signature
from compiler_opt.decisions.regalloc_eviction.rules import rebuilt_choices
from compiler_opt.decisions.regalloc_eviction.signature import by_candidate, spill_weights
from compiler_opt.spaces.arrays import Arrays
from compiler_opt.spaces.candidates import PortableInputs
from compiler_opt.spaces.native import NativeModel

RELATIVE = ("place", "is_itself", "is_default", "is_lighter", "weight_over_itself", "rank", "nr_lighter", "nr_legal")
"""Comparisons: position; whether it is the interval itself; whether the default chooses it; whether it is lighter than
the interval itself; its weight relative to that; how many others cost less (broken hints, then weight); how many are
lighter than the interval itself; and how many are legal."""

_FLAGS_AND_COUNTS = ("is_free", "nr_urgent", "nr_broken_hints", "is_hint", "is_local", "nr_rematerializable")

COMPARED = tuple(name for name in signature.FEATURES if name not in (*_FLAGS_AND_COUNTS, "min_stage"))
"""Features that are also inputs for the interval itself (`own_...`) and as ranks: the number of legal candidates with a
smaller value (`less_...`)."""

_FIRST_COMPARED = signature.FEATURES.index(COMPARED[0])
"""`COMPARED` are side by side in `signature.FEATURES`."""

_LARGEST = float(np.finfo(np.float32).max)


class EvictionInputs(PortableInputs):
    """`signature.FEATURES`, `progress`, `RELATIVE`, and `COMPARED` for the interval itself and as ranks."""

    mask = signature.MASK
    features = (signature.MASK, *signature.FEATURES, signature.PROGRESS)
    optional = (signature.PLUGIN_DEFAULT,)
    names = (
        *signature.FEATURES,
        signature.PROGRESS,
        *RELATIVE,
        *(f"own_{name}" for name in COMPARED),
        *(f"less_{name}" for name in COMPARED),
    )
    native_model = NativeModel("EvictionModel()", ("regalloc_policy.h", "regalloc_models.h"))

    def compute(self, features: Mapping[str, Any], arrays: Arrays) -> Any:
        legal = by_candidate(features, signature.MASK, arrays) != 0
        weight = spill_weights(features, arrays)
        column = {name: arrays.float32(by_candidate(features, name, arrays)) for name in signature.FEATURES}
        broken_hints = column["nr_broken_hints"]
        default = (
            arrays.float32(arrays.rows(features[signature.PLUGIN_DEFAULT]))
            if signature.PLUGIN_DEFAULT in features
            else rebuilt_choices(features, arrays)[:, np.newaxis]
        )
        # Adding zeros makes each [T, C]; a graph knows T only when it runs.
        zeros = 0.0 * arrays.float32(legal)
        progress = arrays.float32(arrays.rows(features[signature.PROGRESS]))
        sent = [*(column | {"use_def_density": weight}).values(), progress + zeros]
        relative = _relative(legal, weight, broken_hints, default, arrays)
        # Each [T, ..., C]
        candidates = _finite(arrays.stack(sent, axis=1), arrays)
        comparisons = arrays.stack([arrays.float32(each) + zeros for each in relative], axis=1)
        compared = candidates[:, _FIRST_COMPARED : _FIRST_COMPARED + len(COMPARED)]
        own = compared[:, :, -1:] + zeros[:, np.newaxis, :]
        less = _number_of_less(compared, legal, arrays)
        return arrays.swap_last(arrays.concatenate([candidates, comparisons, own, less], axis=1))


def _finite(values: Any, arrays: Arrays) -> Any:
    """Numbers instead of NaN (0) and infinity (the largest)."""
    numbers = arrays.where(arrays.is_nan(values), 0.0, values)
    return arrays.where(numbers > _LARGEST, _LARGEST, arrays.where(numbers < -_LARGEST, -_LARGEST, numbers))


def _number_of_less(values: Any, legal: Any, arrays: Arrays) -> Any:
    """How many legal candidates have a smaller value: `[T, F, C]` and `[T, C]` to `[T, F, C]` float32."""
    # An illegal candidate is not smaller than anything.
    others = arrays.where(legal[:, np.newaxis, :], values, float("inf"))
    # [T, F, C, C]
    return arrays.float32(arrays.count(others[:, :, np.newaxis, :] < values[:, :, :, np.newaxis], axis=3))


def _relative(legal: Any, weight: Any, broken_hints: Any, default: Any, arrays: Arrays) -> list[Any]:
    """`RELATIVE`, each `[T, C]`, `[T, 1]` or `[C]`; `default` is `[T, 1]`, the others `[T, C]`."""
    place = np.arange(legal.shape[1], dtype=np.float32)
    itself = place == len(place) - 1
    others = legal & ~itself
    own, may_fail = weight[:, -1:], legal[:, -1:]
    # An interval that must get a register is heavier than all.
    lighter = others & ((weight < own) | ~may_fail)
    ratio = arrays.where(may_fail, weight / own, 0.0)
    ratio = arrays.where(arrays.is_nan(ratio), 1.0, ratio)
    # [T, C, C]: whether the second costs less than the first.
    fewer = broken_hints[:, np.newaxis, :] < broken_hints[:, :, np.newaxis]
    as_many = broken_hints[:, np.newaxis, :] == broken_hints[:, :, np.newaxis]
    cheaper = fewer | (as_many & (weight[:, np.newaxis, :] < weight[:, :, np.newaxis]))
    rank = arrays.float32(arrays.count(cheaper & others[:, np.newaxis, :], axis=2))
    return [
        place,
        itself,
        place == default,
        lighter,
        _finite(ratio, arrays),
        arrays.where(itself, 0.0, rank),
        arrays.float32(arrays.count(lighter, axis=1))[:, np.newaxis],
        arrays.float32(arrays.count(legal, axis=1))[:, np.newaxis],
    ]
