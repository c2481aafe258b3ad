"""What an eviction network sees of each candidate: the compiler's features, and how the candidates compare.

Legend: C candidates, the last of which is the interval that looks for a register; T decisions; F inputs.

A network scores one candidate at a time, so what only shows beside the others is told to it: whether it is lighter
than the interval itself, how many cost less to evict, how many there are, what the interval itself is like, and what
the compiler's own rules would choose.
"""

from collections.abc import Mapping

import numpy as np

from compiler_opt.problems.regalloc_eviction import signature
from compiler_opt.problems.regalloc_eviction.default_eviction import default_choices
from compiler_opt.problems.regalloc_eviction.signature import by_candidate, spill_weights
from compiler_opt.spaces.masked_categorical import CandidateInputs

RELATIVE = (
    "place",
    "is_itself",
    "is_default",
    "is_lighter",
    "weight_over_itself",
    "rank",
    "nr_lighter",
    "nr_legal",
)
"""What the compiler does not send: position; whether it is the interval itself; whether the compiler's rules, as told
or as far as they can be rebuilt, choose it; lighter than the interval itself; weight as a multiple of that one's; how
many others cost less (broken hints, then weight); how many are lighter than the interval itself; and how many are
legal."""

_NOT_COMPARED = (
    "is_free",
    "nr_urgent",
    "nr_broken_hints",
    "is_hint",
    "is_local",
    "nr_rematerializable",
    "min_stage",
)

COMPARED = tuple(name for name in signature.FEATURES if name not in _NOT_COMPARED)
"""Features that are also told of the interval itself (`own_...`), and as the number of legal candidates with less
(`less_...`)."""

_LARGEST = float(np.finfo(np.float32).max)

_COMPARED_COLUMNS = [signature.FEATURES.index(name) for name in COMPARED]

_CHUNK = 1024


class EvictionInputs(CandidateInputs):
    """`signature.FEATURES`, `progress`, `RELATIVE`, and `COMPARED` of the interval itself and as ranks."""

    mask = signature.MASK
    default_input = "is_default"
    features = (signature.MASK, *signature.FEATURES, signature.PROGRESS)
    optional = (signature.TOLD_DEFAULT,)
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
        sent = {name: by_candidate(features, name) for name in signature.FEATURES} | {"use_def_density": weight}
        # [T, C, ...]
        told = _finite(np.stack([sent[name] for name in signature.FEATURES], axis=-1, dtype=np.float32))
        progress = _finite(np.broadcast_to(features[signature.PROGRESS].reshape(-1, 1, 1), (*legal.shape, 1)))
        compared = told[:, :, _COMPARED_COLUMNS]
        own = np.broadcast_to(compared[:, -1:], compared.shape)
        relative = np.stack(
            _relative(legal, weight, sent["nr_broken_hints"], default_choices(features)), axis=-1, dtype=np.float32
        )
        return np.concatenate([told, progress, relative, own, _number_of_less(compared, legal)], axis=-1)


def _finite(values: np.ndarray) -> np.ndarray:
    return np.nan_to_num(values.astype(np.float32), posinf=_LARGEST)


def _number_of_less(values: np.ndarray, legal: np.ndarray) -> np.ndarray:
    """How many legal candidates have less; `[T, C, F]` and `[T, C]` to `[T, C, F]` float32."""
    # An illegal one is not less than anything.
    by_feature = np.where(legal[..., np.newaxis], values, np.inf).swapaxes(1, 2)
    result = np.empty_like(by_feature)
    # So many decisions at a time are compared that [T, F, C, C] stays small.
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
    # One that must find a register is heavier than all.
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
