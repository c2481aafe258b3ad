"""Quantiles of the features of a trace, from which a vocabulary is made.

Values are counted, not stored: most features are integers with few distinct values, so the counts are small and the
quantiles exact. When a feature exceeds `MAX_DISTINCT` distinct values, it is thinned to those at `MAX_DISTINCT / 2`
evenly spaced ranks; each thinning moves a rank by at most 2 / `MAX_DISTINCT` of the decisions counted so far, some
0.001%.
"""

import concurrent.futures
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from compiler_opt.collect.machine import available_cpus
from compiler_opt.corpus.sampling import project_weights
from compiler_opt.errors import ConfigError, ProtocolError
from compiler_opt.rl.config import VocabularyConfig
from compiler_opt.rl.trace_files import Trace
from compiler_opt.spaces.action_space import ActionSpace

MAX_DISTINCT = 1 << 18

UNIT = 1 << 16
"""What a count of weight 1 becomes where histograms are merged: counts are integers."""

_DECISIONS_PER_CHUNK = 1 << 17


class Histogram:
    """Counts of a feature's values, in bounded memory."""

    def __init__(self, max_distinct: int = MAX_DISTINCT):
        self._max_distinct = max_distinct
        self._values = np.empty(0)
        self._counts = np.empty(0, np.int64)

    def add(self, values: np.ndarray) -> None:
        """Counts values `[...]` of any shape."""
        self._add(*np.unique(values, return_counts=True))

    def merge(self, other: "Histogram", weight: float = 1.0) -> None:
        """Adds the counts of another one, times `weight` and `UNIT`, rounded."""
        self._add(other._values, np.maximum(1, np.rint(UNIT * weight * other._counts)).astype(np.int64))

    def _add(self, distinct: np.ndarray, counts: np.ndarray) -> None:
        if len(self._values):
            merged = np.concatenate([self._values, distinct])
            distinct, inverse = np.unique(merged, return_inverse=True)
            counts = np.bincount(inverse, np.concatenate([self._counts, counts]), len(distinct)).astype(np.int64)
        self._values, self._counts = distinct, counts
        if len(distinct) > self._max_distinct:
            self._thin_out()

    def quantiles(self, count: int, distinct_share: float = 0.0) -> np.ndarray:
        """The values at `count` evenly spaced ranks, from the smallest to the largest; `[count]` float64.

        All are observed values: the k-th is the smallest that is at least as large as a share k / (count - 1) of all
        values (`np.quantile` with `method="inverted_cdf"`, except for its rounding).

        With `distinct_share`, that share of the ranks is spread evenly over the distinct values, so that rare values
        get quantiles, too.
        """
        if not distinct_share:
            return self._evenly_spaced(count).astype(np.float64)
        masses = (1 - distinct_share) * self._counts / self._counts.sum() + distinct_share / len(self._counts)
        cumulative = np.cumsum(masses)
        # Rounding must not move a rank beyond the last value.
        positions = np.searchsorted(cumulative, np.linspace(0, 1, count) * cumulative[-1] * (1 - 1e-12))
        result: np.ndarray = self._values[positions].astype(np.float64)
        return result

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
    config: VocabularyConfig = VocabularyConfig(),
    *,
    sampling_fraction: float = 1.0,
    seed: int = 0,
    num_threads: int | None = None,
    on_decisions: Callable[[int], object] = lambda count: None,
) -> dict[str, np.ndarray]:
    """Quantiles of every feature of a trace, in memory that does not grow with the trace.

    For the other settings, see `vocabularies.make_vocabulary`. `on_decisions` is called with the number of decisions
    read since the last call, for progress bars.

    Returns:
      by feature `[config.num_quantiles]` float64, see `Histogram.quantiles`.

    Raises:
      ConfigError: a number is out of range.
      ProtocolError: the trace is damaged, or the sample is empty.
    """
    if not 0 < sampling_fraction <= 1:
        raise ConfigError(f"sampling fraction: expected a number over 0 and at most 1, found {sampling_fraction}")
    rng = np.random.default_rng(seed)
    traced = [spec.name for spec in trace.features]
    names = space.vocabulary_features(traced)
    # One set of histograms for each project that must weigh differently, else one for all.
    by_project: dict[str, dict[str, Histogram]] = {}
    decisions: Counter[str] = Counter()
    chunks: defaultdict[str, list[dict[str, np.ndarray]]] = defaultdict(list)
    chunk_decisions = 0

    # Threads, because sorting takes most of the time and releases the interpreter's lock.
    with concurrent.futures.ThreadPoolExecutor(num_threads or available_cpus()) as executor:

        def count_chunks() -> None:
            def count(name: str) -> None:
                for project, parts in chunks.items():
                    values = np.concatenate([part[name] for part in parts])
                    # Infinities become the largest numbers, which have the same ranks; NaN becomes zero.
                    by_project[project][name].add(np.nan_to_num(values) if values.dtype.kind == "f" else values)

            for project in chunks.keys() - by_project.keys():
                by_project[project] = {name: Histogram() for name in names}
            list(executor.map(count, names))

        for batch in trace.batches(space.used_features(traced)):
            on_decisions(len(batch))
            is_drawn = (
                rng.random(len(batch)) < sampling_fraction if sampling_fraction < 1 else np.ones(len(batch), bool)
            )
            projects = batch.projects if config.project_balance else ("",) * len(batch.projects)
            for project in dict.fromkeys(projects):
                kept = is_drawn & np.repeat([each == project for each in projects], batch.lengths)
                if not kept.any():
                    continue
                values = {name: column[kept] for name, column in batch.features.items()}
                chunks[project].append(space.vocabulary_values(values))
                decisions[project] += int(kept.sum())
                chunk_decisions += int(kept.sum())
            if chunk_decisions >= _DECISIONS_PER_CHUNK:
                count_chunks()
                chunks.clear()
                chunk_decisions = 0
        count_chunks()
    if not decisions:
        raise ProtocolError(f"{trace.path}: no decision was sampled; use a larger sampling fraction")
    weights = project_weights(decisions, config.project_balance)
    return {
        name: _merged([(found[name], weights[project]) for project, found in by_project.items()]).quantiles(
            config.num_quantiles, config.distinct_share
        )
        for name in names
    }


def _merged(parts: Sequence[tuple[Histogram, float]]) -> Histogram:
    """The sum of histograms, each times a weight."""
    if len(parts) == 1:
        return parts[0][0]
    total = Histogram()
    for histogram, weight in parts:
        total.merge(histogram, weight)
    return total
