"""What an eviction network sees of each candidate: the compiler's features, and how the candidates compare.

Legend: C candidates, the last of which is the interval that looks for a register; T decisions; F inputs.

A network scores one candidate at a time, so what only shows beside the others is told to it: whether it is lighter
than the interval itself, how many cost less to evict, how many there are.
"""

from collections.abc import Mapping

import numpy as np

from compiler_opt.policies.candidates import CandidateInputs
from compiler_opt.problems.regalloc_eviction import signature

RELATIVE = ("place", "is_itself", "is_lighter", "weight_over_itself", "rank", "nr_lighter", "nr_legal")
"""What the compiler does not send: position; whether it is the interval itself; lighter than that; weight as a multiple
of that one's; how many others cost less (broken hints, then weight); how many are lighter than the interval itself; and
how many are legal."""

_LARGEST = float(np.finfo(np.float32).max)


class EvictionInputs(CandidateInputs):
    """`signature.FEATURES` of each candidate, `progress`, and `RELATIVE`."""

    mask = signature.MASK
    features = (signature.MASK, *signature.FEATURES, signature.PROGRESS)
    names = (*signature.FEATURES, signature.PROGRESS, *RELATIVE)

    def legal(self, features: Mapping[str, np.ndarray]) -> np.ndarray:
        return _by_candidate(features, signature.MASK) != 0

    def values(self, features: Mapping[str, np.ndarray]) -> np.ndarray:
        legal = self.legal(features)
        weight = spill_weights(features)
        sent = {name: _by_candidate(features, name) for name in signature.FEATURES} | {"use_def_density": weight}
        columns = [np.nan_to_num(sent[name].astype(np.float32), posinf=_LARGEST) for name in signature.FEATURES]
        progress = features[signature.PROGRESS].reshape(-1, 1)
        columns.append(np.broadcast_to(np.nan_to_num(progress), legal.shape))
        columns += _compared(legal, weight, _by_candidate(features, "nr_broken_hints"))
        return np.stack(columns, axis=-1).astype(np.float32)


def spill_weights(features: Mapping[str, np.ndarray]) -> np.ndarray:
    """The spill weight of each candidate, as a share of the decision's greatest; `[T, C]`.

    An interval that must not be spilled weighs infinitely much, and infinity by infinity comes as not a number. All
    finite weights beside it come as 0: how they compare is lost.
    """
    weight = _by_candidate(features, "use_def_density")
    return np.where(np.isnan(weight), np.float32(np.inf), weight)


def _by_candidate(features: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    """`[T, 1, C]`, as the compiler sends it, or `[T, C]`, to `[T, C]`."""
    values = features[name]
    return values.reshape(len(values), -1)


def _compared(legal: np.ndarray, weight: np.ndarray, broken_hints: np.ndarray) -> list[np.ndarray]:
    """`RELATIVE`, each `[T, C]`."""
    shape = legal.shape
    itself = np.zeros(shape, bool)
    itself[:, -1] = True
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
        np.broadcast_to(np.arange(shape[1]), shape),
        itself,
        lighter,
        ratio,
        np.where(itself, 0, rank),
        np.broadcast_to(lighter.sum(axis=-1, keepdims=True), shape),
        np.broadcast_to(legal.sum(axis=-1, keepdims=True), shape),
    ]
