import itertools
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler_opt.errors import ConfigError
from compiler_opt.measure.benchmark import Benchmark
from compiler_opt.measure.wall_time import CONFIDENCE, MIN_ROUNDS, median, wall_times
from tests.measure.running import PROGRAM, built


def test_times_builds_in_turn(tmp_path: Path) -> None:
    folders = [built(tmp_path / name, PROGRAM, *options).parent for name, options in (("a", ()), ("b", ("-O0",)))]
    benchmark = Benchmark.of(["./bench 10"])
    rounds: list[int] = []
    times = wall_times(
        benchmark, folders, benchmark.reference(folders[0]), rounds=MIN_ROUNDS, on_round=lambda: rounds.append(1)
    )
    assert len(rounds) == MIN_ROUNDS
    assert times[0].ratio.low == times[0].ratio.value == times[0].ratio.high == 1
    assert all(each.seconds.low <= each.seconds.value <= each.seconds.high for each in times)
    assert times[1].ratio.low > 0


def test_refuses_too_few_rounds(tmp_path: Path) -> None:
    program = built(tmp_path, PROGRAM)
    benchmark = Benchmark.of(["./bench 10"])
    with pytest.raises(ConfigError, match="expected at least 6 rounds, found 5"):
        wall_times(benchmark, [program.parent], benchmark.reference(program.parent), rounds=MIN_ROUNDS - 1)


@given(st.lists(st.floats(0, 1e6), min_size=MIN_ROUNDS, max_size=40))
def test_the_interval_is_of_the_sign_test(values: list[float]) -> None:
    """Against its definition: the median lies below the k-th smallest value if at most k - 1 coins of n fall heads."""
    found, ordered, count = median(values), sorted(values), len(values)

    def coverage(below: int) -> float:
        return 1 - 2 * sum(math.comb(count, heads) for heads in range(below + 1)) / 2**count

    ranks = [rank for rank in range(count // 2) if coverage(rank) >= CONFIDENCE]
    assert found.low == ordered[max(ranks)]
    assert found.high == ordered[count - 1 - max(ranks)]
    assert found.low <= found.value <= found.high


def test_the_interval_holds_the_median_as_often_as_it_says() -> None:
    """All outcomes of seven fair coins, as values below (0) or above (1) a population's median."""
    held = 0
    for outcome in itertools.product((-1.0, 1.0), repeat=7):
        interval = median(outcome)
        held += interval.low < 0 < interval.high
    assert held / 2**7 >= CONFIDENCE


def test_refuses_too_few_values() -> None:
    with pytest.raises(ValueError, match="at least 6"):
        median([1.0] * 5)
