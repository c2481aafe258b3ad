"""Vocabularies are written and read; errors name the file."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compiler_opt.errors import OutputError, PolicyError
from compiler_opt.policies.vocabulary import load_vocabulary, save_vocabulary

QUANTILES = st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20).map(sorted)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(QUANTILES, QUANTILES)
def test_a_saved_vocabulary_is_loaded(tmp_path: Path, first: list[float], second: list[float]) -> None:
    save_vocabulary(tmp_path / "vocabulary", {"a": np.array(first), "b": np.array(second)})
    loaded = load_vocabulary(tmp_path / "vocabulary", ["b", "a"])
    assert list(loaded) == ["b", "a"]
    np.testing.assert_array_equal(loaded["a"], first)
    np.testing.assert_array_equal(loaded["b"], second)


def test_the_files_are_numbers_one_a_line(tmp_path: Path) -> None:
    save_vocabulary(tmp_path / "vocabulary", {"cost": np.array([-1.0, 0.0, 0.0, 2.5])})
    assert (tmp_path / "vocabulary" / "cost.buckets").read_text() == "-1.0\n0.0\n0.0\n2.5\n"
    assert [path.name for path in tmp_path.iterdir()] == ["vocabulary"]


def test_a_new_folder_appears_complete_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="ascending"):
        save_vocabulary(tmp_path / "vocabulary", {"a": np.arange(3.0), "b": np.array([2.0, 1.0])})
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be written"):
        save_vocabulary(tmp_path / "file", {"a": np.arange(3.0)})


def test_other_features_do_not_matter(tmp_path: Path) -> None:
    save_vocabulary(tmp_path, {"a": np.arange(3.0), "b": np.arange(4.0)})
    (tmp_path / "b.buckets").write_text("nonsense")
    assert list(load_vocabulary(tmp_path, ["a"])) == ["a"]


def test_missing_features_are_named(tmp_path: Path) -> None:
    save_vocabulary(tmp_path, {"a": np.arange(3.0)})
    with pytest.raises(PolicyError, match="lacks the features b, c;"):
        load_vocabulary(tmp_path, ["a", "b", "c"])


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="nowhere: expected a vocabulary"):
        load_vocabulary(tmp_path / "nowhere", ["a"])


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "at least one number"),
        (b"1\ntwo\n", r"cost.buckets:2: expected a number, found b'two'"),
        (b"1\n\xff\n", r"cost.buckets:2: expected a number"),
        (b"1\n3\n2\n", "expected ascending numbers, found 2.0 after 3.0 as number 3"),
        (b"1\nnan\n", "expected finite numbers, found nan"),
        (b"-inf\n1\n", "expected finite numbers, found -inf"),
    ],
)
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, content: bytes, complaint: str) -> None:
    (tmp_path / "cost.buckets").write_bytes(content)
    with pytest.raises(PolicyError, match=complaint) as caught:
        load_vocabulary(tmp_path, ["cost"])
    assert str(tmp_path / "cost.buckets") in str(caught.value)
    assert "\n" not in str(caught.value)
