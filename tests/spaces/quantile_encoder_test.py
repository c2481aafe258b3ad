"""The encoder against the definition of a rank, and its forms against one another."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler_opt.spaces.quantile_encoder import QuantileEncoder, expand, ordered

_NUMBERS = st.floats(allow_nan=False, width=32) | st.integers(-5, 5).map(float)
_COLUMNS = st.lists(st.lists(_NUMBERS.filter(np.isfinite), min_size=1, max_size=9), min_size=1, max_size=4)


@given(_COLUMNS, st.data())
@settings(max_examples=100)
def test_a_rank_is_the_share_of_quantiles_up_to_the_value(columns: list[list[float]], data: st.DataObject) -> None:
    columns = [sorted(column) for column in columns]
    values = [data.draw(_NUMBERS | st.sampled_from(column)) for column in columns]
    expected = [
        sum(quantile <= value for quantile in column) / len(column)
        for value, column in zip(values, columns, strict=True)
    ]
    encoder = QuantileEncoder([np.array(column) for column in columns])
    np.testing.assert_array_equal(encoder.ranks(np.array(values)), np.array(expected, np.float32))
    # The thresholds of the other forms: floating-point numbers as integers in the same order, and integers.
    for value, rank, thresholds in zip(values, expected, encoder.ordered_thresholds, strict=True):
        assert thresholds.ranks[(thresholds.values <= ordered(np.array(value))).sum()] == np.float32(rank)
    for value, rank, thresholds in zip(np.array(values, np.float32), expected, encoder.float_thresholds, strict=True):
        assert thresholds.ranks[(thresholds.values <= value).sum()] == np.float32(rank)
    whole = np.floor(np.clip(values, -(2.0**62), 2.0**62))
    for value, rank, thresholds in zip(whole, encoder.ranks(whole), encoder.integer_thresholds, strict=True):
        assert thresholds.ranks[(thresholds.values <= int(value)).sum()] == rank


def test_shapes_types_and_odd_values() -> None:
    encoder = QuantileEncoder([np.array([-1.0, 0.0, 0.0, 5.0]), np.array([2.0])])
    assert encoder.bucket_ranks.tolist() == [0, 0.25, 0.75, 1, 0, 1]
    assert encoder.first_buckets.tolist() == [0, 4]
    values = np.array([[[-2, 1], [-1, 2]], [[0, 3], [5, 9]]])
    expected = np.array([[[0, 0], [0.25, 1]], [[0.75, 1], [1, 1]]], np.float32)
    for dtype in ("i8", "i4", "f4", "f8"):
        found = encoder.ranks(values.astype(dtype))
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, expected)
    assert encoder.ranks(np.array([np.inf, -np.inf])).tolist() == [1, 0]
    assert encoder.ranks(np.array([-0.0, 2.0])).tolist() == [0.75, 1]
    # NaN comes last, as in C++.
    assert encoder.ranks(np.array([np.nan, np.nan])).tolist() == [1, 1]
    assert encoder.ranks(np.empty((0, 2))).shape == (0, 2)


def test_many_observations_are_encoded_as_few_are() -> None:
    rng = np.random.default_rng(1)
    encoder = QuantileEncoder([np.sort(rng.integers(-9, 9, 20)), np.array([0.5]), np.sort(rng.normal(size=7))])
    values = rng.choice([*range(-10, 10), 0.5, -0.0, 1e300, np.inf, -np.inf, np.nan], (10_000, 3))
    expected = np.concatenate([encoder.ranks(part) for part in np.array_split(values, 1000)])
    np.testing.assert_array_equal(encoder.ranks(values), expected)
    np.testing.assert_array_equal(encoder.bucket_ranks[encoder.buckets(values)], expected)
    np.testing.assert_array_equal(encoder.ranks(values.reshape(100, 100, 3)), expected.reshape(100, 100, 3))


def test_the_buckets_of_one_observation_after_another() -> None:
    encoder = QuantileEncoder([np.array([-1.0, 0.0, 0.0, 5.0]), np.array([2.0]), np.array([-(2.0**63), 2.0**62])])
    limits = np.iinfo(np.int64)
    buckets = encoder.buckets_of_one()
    observations = np.array([[-2, 1, limits.min], [-1, 2, 0], [0, 3, 2**62 - 1], [5, 9, limits.max], [-2, 1, 0]])
    found = [buckets(values) for values in observations]
    np.testing.assert_array_equal(found, encoder.buckets(observations))


def test_float_thresholds_between_and_beyond_the_numbers_of_32_bits() -> None:
    above_one = 1 + 2.0**-30
    encoder = QuantileEncoder([np.array([-1e300, above_one, 1 + 2.0**-29, 1e300])])
    [thresholds] = encoder.float_thresholds
    # The two just over 1 are one number of 32 bits, and so are 1e300 and infinity.
    assert thresholds.values.dtype == np.float32
    assert thresholds.values.tolist() == [float(np.finfo("f4").min), 1 + 2.0**-23, np.inf]
    assert thresholds.counts.tolist() == [1, 2, 1]


def test_many_values_are_encoded_like_one() -> None:
    rng = np.random.default_rng(1)
    encoder = QuantileEncoder([np.sort(rng.normal(size=size)) for size in (3, 64, 1000)])
    values = rng.normal(size=(70, 500, 3)).astype(np.float32)
    ranks = encoder.ranks(values)
    np.testing.assert_array_equal(ranks[:, 7], np.stack([encoder.ranks(row) for row in values[:, 7]]))
    np.testing.assert_array_equal(ranks[3], encoder.ranks(values[3]))


def test_integer_thresholds_at_the_ends_of_64_bits() -> None:
    limits = np.iinfo(np.int64)
    encoder = QuantileEncoder([np.array([-1e300, -3.5, 1e300, 1e301]), np.array([2.0**63])])
    first, never = encoder.integer_thresholds
    assert first.values.tolist() == [limits.min, -3]
    assert first.ranks.tolist() == [0, 0.25, 0.5]
    assert never.values.tolist() == [] and never.ranks.tolist() == [0]


def test_a_network_sees_each_rank_its_square_root_and_its_square() -> None:
    assert expand(np.array([0.25, 1.0])).tolist() == pytest.approx([0.25, 0.5, 0.0625, 1, 1, 1])
