"""Wall time of several builds of a program: repeated runs, taken in turn, and intervals that assume no distribution."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from compiler_opt.errors import ConfigError
from compiler_opt.measure.benchmark import Benchmark, Reference
from compiler_opt.progress_bar import progress_bar

CONFIDENCE = 0.95
MIN_ROUNDS = 6
"""With fewer, no interval between two of the values has this confidence."""


@dataclasses.dataclass(frozen=True)
class Median:
    """A median, and an interval that holds that of the population with confidence `CONFIDENCE` at least."""

    value: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class WallTimes:
    """Wall time of one build.

    Attributes:
      seconds: of a run.
      ratio: of a run to the run of the first build in the same round; what disturbs a whole round cancels out.
    """

    seconds: Median
    ratio: Median


def wall_times(
    benchmark: Benchmark,
    folders: Sequence[Path],
    reference: Reference,
    *,
    rounds: int,
    on_round: Callable[[], object] | None = None,
) -> tuple[WallTimes, ...]:
    """Runs the benchmark in each folder, round by round, in an order that alternates; returns a result for each.

    `on_round` is called after each round; by default a progress bar shows them.

    Raises:
      BenchmarkError: a command fails, runs for too long, or prints something else than before.
      ConfigError: there are fewer than `MIN_ROUNDS` rounds.
    """
    if rounds < MIN_ROUNDS:
        raise ConfigError(f"wall time: expected at least {MIN_ROUNDS} rounds, found {rounds}")
    seconds: list[list[float]] = [[] for _ in folders]
    numbers: Iterable[int] = range(rounds)
    if on_round is None:
        numbers = progress_bar(range(rounds), "timing", unit="round")
    for number in numbers:
        order = range(len(folders)) if number % 2 == 0 else reversed(range(len(folders)))
        for index in order:
            seconds[index].append(benchmark.wall_s(folders[index], reference))
        if on_round is not None:
            on_round()
    return tuple(
        WallTimes(median(each), median([one / first for one, first in zip(each, seconds[0], strict=True)]))
        for each in seconds
    )


def median(values: Sequence[float]) -> Median:
    """The median of at least `MIN_ROUNDS` values, with the interval between two of them (that of the sign test)."""
    ordered, count = sorted(values), len(values)
    # The chance that at most `rank` of the values are below the population's median.
    rank, chance = -1, 0.0
    while chance + math.comb(count, rank + 1) / 2**count <= (1 - CONFIDENCE) / 2:
        rank += 1
        chance += math.comb(count, rank) / 2**count
    if rank < 0:
        raise ValueError(f"expected at least {MIN_ROUNDS} values, found {count}")
    middle = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
    return Median(middle, ordered[rank], ordered[count - 1 - rank])
