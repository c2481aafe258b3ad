"""The encoding of features: the ranks of their values among the quantiles of a vocabulary.

Legend: F features, Q quantiles of a feature, K of them distinct, B buckets of all features together.

The quantile rank of a value is the share of the feature's quantiles that are at most the value, in [0, 1]. It only
changes at the K distinct quantiles, the *thresholds*, which divide the values of a feature into K + 1 *buckets* of
equal rank. Every form of a policy is derived from them: numpy here, the native form (`spaces.native`), TensorFlow's
layer (`spaces.heads.networks`) and TFLite (`spaces.heads.tflite`).
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

_ROWS_AT_A_TIME = 1 << 12
_FEW_ROWS = 128
"""Fewer rows are encoded faster all at once, more feature by feature."""


@dataclasses.dataclass(frozen=True)
class Thresholds:
    """The thresholds of one feature.

    Attributes:
      values: `[K]`, ascending, without repetition.
      counts: `[K]`, the number of quantiles at each threshold.
      num_quantiles: Q, including quantiles that no value reaches.
    """

    values: np.ndarray
    counts: np.ndarray
    num_quantiles: int

    @property
    def ranks(self) -> np.ndarray:
        """`[K + 1]` float32, the rank of each bucket: below the first threshold, from the first to the second, ..."""
        reached = np.concatenate([[0], np.cumsum(self.counts)])
        return (reached / self.num_quantiles).astype(np.float32)


class QuantileEncoder:
    """Encodes features by a vocabulary.

    Attributes:
      thresholds: of each feature, float64.
      bucket_ranks: `[B]` float32, the ranks of all buckets, feature after feature.
      first_buckets: `[F]` int64, the index of each feature's first bucket.
    """

    def __init__(self, quantiles: Sequence[np.ndarray]):
        """Takes the quantiles of each of the F features, ascending, with repetitions."""
        self.thresholds = tuple(
            Thresholds(*np.unique(np.asarray(column, np.float64), return_counts=True), len(column))
            for column in quantiles
        )
        self._ranks = [thresholds.ranks for thresholds in self.thresholds]
        self.bucket_ranks = np.concatenate(self._ranks)
        counts = [len(thresholds.values) for thresholds in self.thresholds]
        places = np.arange(len(quantiles))
        self._keys = places.astype(np.float64)
        self._last_buckets = np.cumsum(counts) + places
        self.first_buckets = np.concatenate([[0], self._last_buckets[:-1] + 1])
        # One sorted array for all features: NumPy orders complex numbers by their real parts first. All but the first
        # feature begin with a threshold that every value reaches, so that their buckets do not overlap.
        counts[1:] = [count + 1 for count in counts[1:]]
        lines = [np.insert(thresholds.values, 0, -np.inf) for thresholds in self.thresholds]
        self._line = np.empty(sum(counts), np.complex128)
        self._line.real = np.repeat(self._keys, counts)
        self._line.imag = np.concatenate([lines[0][1:], *lines[1:]])

    def buckets(self, values: np.ndarray) -> np.ndarray:
        """The buckets of values: `[..., F]` of any type of number to `[..., F]` int64, indices into `bucket_ranks`.

        Values are compared in double precision. NaN is in the last bucket.
        """
        keys = np.empty(values.shape, np.complex128)
        keys.real = self._keys
        keys.imag = values
        buckets = self._line.searchsorted(keys, "right")
        # NaN is sorted after the thresholds of all features.
        return np.minimum(buckets, self._last_buckets)

    def buckets_of_one(self) -> Callable[[np.ndarray], np.ndarray]:
        """`buckets` for one observation `[F]` after another, none of them NaN, a third faster; for one thread."""
        keys = self._keys.astype(np.complex128)
        compared = keys.imag

        def buckets(values: np.ndarray) -> np.ndarray:
            compared[:] = values
            return self._line.searchsorted(keys, "right")

        return buckets

    def ranks(self, values: np.ndarray) -> np.ndarray:
        """The quantile ranks of values: `[..., F]` to `[..., F]` float32."""
        rows = values.reshape(-1, values.shape[-1])
        if len(rows) < _FEW_ROWS:
            return self.bucket_ranks[self.buckets(values)]
        return self.ranks_of_columns(list(rows.T)).reshape(values.shape)

    def ranks_of_columns(self, columns: Sequence[np.ndarray]) -> np.ndarray:
        """`ranks`, from the values of each feature: F arrays `[N]` of any type of number to `[N, F]` float32."""
        if len(columns[0]) < _FEW_ROWS:
            return self.bucket_ranks[self.buckets(np.stack(columns, axis=-1))]
        ranks = np.empty((len(columns[0]), len(columns)), np.float32)
        # In parts, which stay in the core's cache: the columns may be views of the same records.
        for start in range(0, len(ranks), _ROWS_AT_A_TIME):
            part = slice(start, start + _ROWS_AT_A_TIME)
            for place, (column, thresholds, of_buckets) in enumerate(
                zip(columns, self.thresholds, self._ranks, strict=True)
            ):
                found = thresholds.values.searchsorted(column[part].astype(np.float64), "right")
                ranks[part, place] = of_buckets.take(found)
        return ranks

    @property
    def integer_thresholds(self) -> tuple[Thresholds, ...]:
        """Thresholds of features that are int64, as int64."""
        return tuple(_rounded_up(thresholds) for thresholds in self.thresholds)

    @property
    def float_thresholds(self) -> tuple[Thresholds, ...]:
        """Thresholds of features that are float32, as float32."""
        return tuple(_rounded_up_to_float(thresholds) for thresholds in self.thresholds)

    @property
    def ordered_thresholds(self) -> tuple[Thresholds, ...]:
        """Thresholds of features that are float64, as int64 by `ordered`."""
        return tuple(dataclasses.replace(each, values=ordered(each.values)) for each in self.thresholds)


def expand(ranks: np.ndarray) -> np.ndarray:
    """A network's inputs: ranks `[..., F]` to `[..., 3 F]`, the `TRANSFORMS` of each rank side by side."""
    stacked = np.stack([ranks, np.sqrt(ranks), np.square(ranks)], axis=-1)
    return stacked.reshape(*ranks.shape[:-1], -1)


def ordered(values: np.ndarray) -> np.ndarray:
    """Floating-point numbers as int64 in the same order, like `ordered` in `native/regalloc_policy.h`."""
    # Both zeros become one.
    bits = (np.asarray(values, np.float64) + 0.0).view(np.int64)
    return np.where(bits >= 0, bits, bits ^ np.iinfo(np.int64).max)


def _rounded_up(thresholds: Thresholds) -> Thresholds:
    # For integers, v >= q means v >= ceil(q). Thresholds beyond 64 bits are always reached, or never.
    limits = np.iinfo(np.int64)
    ceilings = [max(int(ceiling), limits.min) for ceiling in np.ceil(thresholds.values).tolist()]
    reachable = [ceiling for ceiling in ceilings if ceiling <= limits.max]
    return _merged(np.array(reachable, np.int64), thresholds)


def _rounded_up_to_float(thresholds: Thresholds) -> Thresholds:
    # For float32, v >= q means v >= the smallest float32 that is not below q; beyond all of them it is infinity.
    with np.errstate(over="ignore"):
        nearest = thresholds.values.astype(np.float32)
        above = np.nextafter(nearest, np.float32(np.inf))
    return _merged(np.where(nearest.astype(np.float64) < thresholds.values, above, nearest), thresholds)


def _merged(values: np.ndarray, thresholds: Thresholds) -> Thresholds:
    """Thresholds at other values, some of which may be equal; those without a value are never reached."""
    merged, where = np.unique(values, return_inverse=True)
    counts = np.zeros(len(merged), np.int64)
    np.add.at(counts, where, thresholds.counts[: len(values)])
    return Thresholds(merged, counts, thresholds.num_quantiles)
