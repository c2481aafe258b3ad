"""Quantiles of the features of a trace, from which a vocabulary is made.

Values are counted, not stored: most features are integers with few distinct values, so the counts are small and the
quantiles exact. When a feature exceeds `MAX_DISTINCT` distinct values, it is thinned to those at `MAX_DISTINCT / 2`
evenly spaced ranks; each thinning moves a rank by at most 2 / `MAX_DISTINCT` of the decisions counted so far, some
0.001%.
"""

import concurrent.futures
import os
from collections.abc import Callable, Sequence

import numpy as np

from compiler_opt.errors import ConfigError, ProtocolError
from compiler_opt.rl.trace_files import Trace
from compiler_opt.spaces.action_space import ActionSpace

MAX_DISTINCT = 1 << 18

_DECISIONS_PER_CHUNK = 1 << 17


class Histogram:
    """Counts of a feature's values, in bounded memory."""

    def __init__(self, max_distinct: int = MAX_DISTINCT):
        self._max_distinct = max_distinct
        self._values = np.empty(0)
        self._counts = np.empty(0, np.int64)

    def add(self, values: np.ndarray) -> None:
        """Counts values `[...]` of any shape."""
        distinct, counts = np.unique(values, return_counts=True)
        if len(self._values):
            merged = np.concatenate([self._values, distinct])
            distinct, inverse = np.unique(merged, return_inverse=True)
            counts = np.bincount(inverse, np.concatenate([self._counts, counts]), len(distinct)).astype(np.int64)
        self._values, self._counts = distinct, counts
        if len(distinct) > self._max_distinct:
            self._thin_out()

    def quantiles(self, count: int) -> np.ndarray:
        """The values at `count` evenly spaced ranks, from the smallest to the largest; `[count]` float64.

        All are observed values: the k-th is the smallest that is at least as large as a share k / (count - 1) of all
        values (`np.quantile` with `method="inverted_cdf"`, except for its rounding).
        """
        return self._evenly_spaced(count).astype(np.float64)

    def _evenly_spaced(self, count: int) -> np.ndarray:
        cumulative = np.cumsum(self._counts)
        # k / (count - 1) of the total, rounded up in integers.
        ranks = np.maximum(1, -(-np.arange(count) * cumulative[-1] // (count - 1)))
        result: np.ndarray = self._values[np.searchsorted(cumulative, ranks)]
        return result

    def _thin_out(self) -> None:
        cumulative = np.cumsum(self._counts)
        kept_values = np.unique(self._evenly_spaced(self._max_distinct // 2))
        # A dropped value's count goes to the next kept value; the largest is always kept.
        reached = cumulative[np.searchsorted(self._values, kept_values)]
        self._values, self._counts = kept_values, np.diff(reached, prepend=0)


def trace_quantiles(
    trace: Trace,
    space: ActionSpace,
    num_quantiles: int,
    *,
    sampling_fraction: float = 1.0,
    seed: int = 0,
    num_threads: int | None = None,
    on_decisions: Callable[[int], object] = lambda count: None,
) -> dict[str, np.ndarray]:
    """Quantiles of every feature of a trace, in memory that does not grow with the trace.

    For the settings, see `pipeline.make_vocabulary`. `on_decisions` is called with the number of decisions read since
    the last call, for progress bars.

    Returns:
      by feature `[num_quantiles]` float64, see `Histogram.quantiles`.

    Raises:
      ConfigError: a number is out of range.
      ProtocolError: the trace is damaged, or the sample is empty.
    """
    if num_quantiles < 2:
        raise ConfigError(f"number of quantiles: expected at least 2, found {num_quantiles}")
    if not 0 < sampling_fraction <= 1:
        raise ConfigError(f"sampling fraction: expected a number over 0 and at most 1, found {sampling_fraction}")
    rng = np.random.default_rng(seed)
    traced = [spec.name for spec in trace.features]
    histograms = {name: Histogram() for name in space.vocabulary_features(traced)}
    chunk: list[dict[str, np.ndarray]] = []
    chunk_decisions, sampled = 0, 0

    # Threads, because sorting takes most of the time and releases the interpreter's lock.
    with concurrent.futures.ThreadPoolExecutor(num_threads or len(os.sched_getaffinity(0))) as executor:

        def count_chunk(parts: Sequence[dict[str, np.ndarray]]) -> None:
            def count(name: str) -> None:
                values = np.concatenate([part[name] for part in parts])
                # Infinities become the largest numbers, which have the same ranks; NaN becomes zero.
                histograms[name].add(np.nan_to_num(values) if values.dtype.kind == "f" else values)

            list(executor.map(count, histograms))

        for batch in trace.batches(space.used_features(traced)):
            on_decisions(len(batch))
            part, num_drawn = dict(batch.features), len(batch)
            if sampling_fraction < 1:
                drawn = rng.random(len(batch)) < sampling_fraction
                part, num_drawn = {name: values[drawn] for name, values in part.items()}, int(drawn.sum())
            if not num_drawn:
                continue
            chunk.append(space.vocabulary_values(part))
            chunk_decisions += num_drawn
            sampled += num_drawn
            if chunk_decisions >= _DECISIONS_PER_CHUNK:
                count_chunk(chunk)
                chunk, chunk_decisions = [], 0
        if chunk:
            count_chunk(chunk)
    if not sampled:
        raise ProtocolError(f"{trace.path}: no decision was sampled; use a larger sampling fraction")
    return {name: histogram.quantiles(num_quantiles) for name, histogram in histograms.items()}
