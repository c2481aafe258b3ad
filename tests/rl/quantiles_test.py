"""Quantiles by counting, against those of the sorted values themselves."""

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from compiler_opt.collect.traces import TraceContext
from compiler_opt.errors import ConfigError, ProtocolError
from compiler_opt.rl.config import VocabularyConfig
from compiler_opt.rl.quantiles import Histogram, trace_quantiles
from compiler_opt.rl.trace_files import Trace, TraceWriter
from compiler_opt.spaces.binary import Binary
from compiler_opt.tensor_spec import TensorSpec

VALUES = npst.arrays(np.int64, st.integers(1, 60), elements=st.integers(-20, 20))


@given(st.lists(VALUES, min_size=1, max_size=5), st.integers(2, 40))
def test_counted_piece_by_piece_they_are_those_of_the_whole(pieces: list[np.ndarray], count: int) -> None:
    histogram = Histogram()
    for piece in pieces:
        histogram.add(piece)
    values = sorted(np.concatenate(pieces).tolist())
    expected = [values[max(1, math.ceil(Fraction(k * len(values), count - 1))) - 1] for k in range(count)]
    np.testing.assert_array_equal(histogram.quantiles(count), expected)


def test_repetitions_stay() -> None:
    histogram = Histogram()
    histogram.add(np.array([0] * 7 + [5] * 3))
    np.testing.assert_array_equal(histogram.quantiles(5), [0, 0, 0, 5, 5])


def test_in_little_memory_they_are_near() -> None:
    values = np.random.default_rng(0).lognormal(3, 2, 100_000)
    histogram = Histogram(max_distinct=1000)
    for piece in np.split(values, 100):
        histogram.add(piece)
    found = histogram.quantiles(21)
    # In ranks: where each quantile really stands.
    ranks = np.searchsorted(np.sort(values), found, side="right") / len(values)
    np.testing.assert_allclose(ranks, np.linspace(0, 1, 21), atol=0.03)
    assert found[-1] == values.max()


def test_rare_values_get_quantiles_of_their_own() -> None:
    histogram = Histogram()
    histogram.add(np.array([0] * 997 + [5, 70, 900]))
    np.testing.assert_array_equal(histogram.quantiles(9), [0] * 8 + [900])
    # Masses: 0.5 * 0.997 + 0.125 = 0.6235 for 0, then 0.1255 each; ranks at eighths.
    np.testing.assert_array_equal(histogram.quantiles(9, 0.5), [0, 0, 0, 0, 0, 5, 70, 900, 900])
    np.testing.assert_array_equal(histogram.quantiles(5, 1.0), [0, 0, 5, 70, 900])


@given(VALUES, st.integers(2, 40), st.floats(0, 1))
def test_quantiles_of_distinct_values_are_observed_and_ascend(values: np.ndarray, count: int, share: float) -> None:
    histogram = Histogram()
    histogram.add(values)
    found = histogram.quantiles(count, share)
    assert set(found) <= set(values.tolist())
    assert (np.diff(found) >= 0).all()
    assert (found[0], found[-1]) == (values.min(), values.max())


def test_merged_counts_are_weighted() -> None:
    many, few, total = Histogram(), Histogram(), Histogram()
    many.add(np.zeros(90))
    few.add(np.array([1] * 10))
    total.merge(many, 50 / 90)
    total.merge(few, 50 / 10)
    # Half of the weight each.
    np.testing.assert_array_equal(total.quantiles(6), [0, 0, 0, 1, 1, 1])


def write(path: Path, columns: dict[str, np.ndarray]) -> Trace:
    action = np.zeros(len(next(iter(columns.values()))), np.int64)
    features = tuple(TensorSpec(name, np.dtype("i8"), ()) for name in columns)
    advice = TensorSpec("inlining_decision", np.dtype("i8"), ())
    with TraceWriter(path) as writer:
        for index, part in enumerate(np.array_split(np.arange(len(action)), 10)):
            values = {name: column[part] for name, column in columns.items()}
            reward = np.zeros(len(part), np.float32)
            writer.add(TraceContext(f"m{index}", "p", "default", features, values, advice, action[part], reward))
        writer.finish(dict.fromkeys(writer.keys, 1.0), {})
    return Trace(path)


def test_a_trace(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    columns = {"cost": rng.integers(-50, 50, 1000), "zero": np.zeros(1000, np.int64)}
    trace = write(tmp_path / "trace", columns)
    read: list[int] = []
    found = trace_quantiles(trace, Binary(), VocabularyConfig(16), num_threads=2, on_decisions=read.append)
    assert sum(read) == 1000
    levels = np.linspace(0, 1, 16)
    for name, values in columns.items():
        np.testing.assert_array_equal(found[name], np.quantile(values, levels, method="inverted_cdf"))


def test_a_sample_is_near_and_the_same_for_the_same_seed(tmp_path: Path) -> None:
    values = np.random.default_rng(2).integers(0, 1000, 20_000)
    trace = write(tmp_path / "trace", {"cost": values})
    found = trace_quantiles(trace, Binary(), VocabularyConfig(11), sampling_fraction=0.25, seed=5)["cost"]
    np.testing.assert_allclose(found, np.linspace(0, 1000, 11), atol=40)
    np.testing.assert_array_equal(
        found, trace_quantiles(trace, Binary(), VocabularyConfig(11), sampling_fraction=0.25, seed=5)["cost"]
    )
    assert (
        found != trace_quantiles(trace, Binary(), VocabularyConfig(11), sampling_fraction=0.25, seed=6)["cost"]
    ).any()


def test_infinity_counts_as_the_largest_number(tmp_path: Path) -> None:
    spec = TensorSpec("weight", np.dtype("f4"), ())
    advice = TensorSpec("inlining_decision", np.dtype("i8"), ())
    weights = np.array([0.5] * 5 + [np.inf] * 5, np.float32)
    with TraceWriter(tmp_path / "trace") as writer:
        values, action, reward = {"weight": weights}, np.zeros(10, np.int64), np.zeros(10, np.float32)
        writer.add(TraceContext("m", "p", "default", (spec,), values, advice, action, reward))
        writer.finish(dict.fromkeys(writer.keys, 1.0), {})
    found = trace_quantiles(Trace(tmp_path / "trace"), Binary(), VocabularyConfig(4))["weight"]
    # Of four evenly spaced ranks two are in the first half.
    assert found.tolist() == [0.5, 0.5, *[float(np.finfo("f4").max)] * 2]


def test_numbers_out_of_range_are_refused(tmp_path: Path) -> None:
    trace = write(tmp_path / "trace", {"cost": np.arange(20)})
    with pytest.raises(ValueError, match="num_quantiles: expected at least 2"):
        VocabularyConfig(1)
    with pytest.raises(ConfigError, match="sampling fraction"):
        trace_quantiles(trace, Binary(), VocabularyConfig(4), sampling_fraction=0)
    with pytest.raises(ProtocolError, match="no decision was sampled"):
        trace_quantiles(trace, Binary(), VocabularyConfig(4), sampling_fraction=1e-12)
