"""Inputs of eviction networks for each candidate: the compiler's features, and comparisons between candidates.

Legend: C candidates, the last of which is the interval that needs a register; T decisions; F inputs.

A network scores one candidate at a time, so comparisons with the others are inputs of their own: whether it is lighter
than the interval itself, how many cost less to evict, how many there are, the features of the interval itself, and
whether the compiler's own rules would choose it.
"""

from collections.abc import Mapping

import numpy as np

from compiler_opt.problems.regalloc_eviction import signature
from compiler_opt.problems.regalloc_eviction.rules import default_choices
from compiler_opt.problems.regalloc_eviction.signature import by_candidate, spill_weights
from compiler_opt.spaces.masked_categorical import CandidateInputs

RELATIVE = ("place", "is_itself", "is_default", "is_lighter", "weight_over_itself", "rank", "nr_lighter", "nr_legal")
"""Comparisons: position; whether it is the interval itself; whether the default chooses it; whether it is lighter than
the interval itself; its weight relative to that; how many others cost less (broken hints, then weight); how many are
lighter than the interval itself; and how many are legal."""

_FLAGS_AND_COUNTS = ("is_free", "nr_urgent", "nr_broken_hints", "is_hint", "is_local", "nr_rematerializable")

COMPARED = tuple(name for name in signature.FEATURES if name not in (*_FLAGS_AND_COUNTS, "min_stage"))
"""Features that are also inputs for the interval itself (`own_...`) and as ranks: the number of legal candidates with a
smaller value (`less_...`)."""

_LARGEST = float(np.finfo(np.float32).max)

_COMPARED_COLUMNS = [signature.FEATURES.index(name) for name in COMPARED]

_CHUNK = 1024


class EvictionInputs(CandidateInputs):
    """`signature.FEATURES`, `progress`, `RELATIVE`, and `COMPARED` for the interval itself and as ranks."""

    mask = signature.MASK
    default_input = "is_default"
    features = (signature.MASK, *signature.FEATURES, signature.PROGRESS)
    optional = (signature.PLUGIN_DEFAULT,)
    names = (
        *signature.FEATURES,
        signature.PROGRESS,
        *RELATIVE,
        *(f"own_{name}" for name in COMPARED),
        *(f"less_{name}" for name in COMPARED),
    )

    def legal(self, features: Mapping[str, np.ndarray]) -> np.ndarray:
        return by_candidate(features, signature.MASK) != 0

    def values(self, features: Mapping[str, np.ndarray]) -> np.ndarray:
        legal = self.legal(features)
        weight = spill_weights(features)
        by_name = {name: by_candidate(features, name) for name in signature.FEATURES} | {"use_def_density": weight}
        # [T, C, ...]
        candidates = _finite(np.stack([by_name[name] for name in signature.FEATURES], axis=-1, dtype=np.float32))
        progress = _finite(np.broadcast_to(features[signature.PROGRESS].reshape(-1, 1, 1), (*legal.shape, 1)))
        compared = candidates[:, :, _COMPARED_COLUMNS]
        own = np.broadcast_to(compared[:, -1:], compared.shape)
        relative = np.stack(
            _relative(legal, weight, by_name["nr_broken_hints"], default_choices(features)), axis=-1, dtype=np.float32
        )
        return np.concatenate([candidates, progress, relative, own, _number_of_less(compared, legal)], axis=-1)


def _finite(values: np.ndarray) -> np.ndarray:
    return np.nan_to_num(values.astype(np.float32), posinf=_LARGEST)


def _number_of_less(values: np.ndarray, legal: np.ndarray) -> np.ndarray:
    """How many legal candidates have a smaller value: `[T, C, F]` and `[T, C]` to `[T, C, F]` float32."""
    # An illegal candidate is not smaller than anything.
    by_feature = np.where(legal[..., np.newaxis], values, np.inf).swapaxes(1, 2)
    result = np.empty_like(by_feature)
    # In chunks, so that [T, F, C, C] stays small.
    for start in range(0, len(values), _CHUNK):
        chunk = by_feature[start : start + _CHUNK]
        less = chunk[..., np.newaxis, :] < values[start : start + _CHUNK].swapaxes(1, 2)[..., np.newaxis]
        result[start : start + _CHUNK] = np.count_nonzero(less, axis=-1)
    return result.swapaxes(1, 2)


def _relative(legal: np.ndarray, weight: np.ndarray, broken_hints: np.ndarray, default: np.ndarray) -> list[np.ndarray]:
    """`RELATIVE`, each `[T, C]`; `default` is `[T]`, the others `[T, C]`."""
    shape = legal.shape
    places = np.broadcast_to(np.arange(shape[1]), shape)
    itself = places == shape[1] - 1
    others = legal & ~itself
    own = weight[:, -1:]
    # An interval that must get a register is heavier than all.
    lighter = others & ((weight < own) | ~legal[:, -1:])
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.nan_to_num(np.where(legal[:, -1:], weight / own, 0.0), nan=1.0, posinf=_LARGEST)
    # [T, C, C]: whether the second costs less than the first.
    fewer = broken_hints[:, np.newaxis, :] < broken_hints[:, :, np.newaxis]
    as_many = broken_hints[:, np.newaxis, :] == broken_hints[:, :, np.newaxis]
    cheaper = fewer | (as_many & (weight[:, np.newaxis, :] < weight[:, :, np.newaxis]))
    rank = (cheaper & others[:, np.newaxis, :]).sum(axis=-1)
    return [
        places,
        itself,
        places == default[:, np.newaxis],
        lighter,
        ratio,
        np.where(itself, 0, rank),
        np.broadcast_to(lighter.sum(axis=-1, keepdims=True), shape),
        np.broadcast_to(legal.sum(axis=-1, keepdims=True), shape),
    ]
