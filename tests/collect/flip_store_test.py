"""Stores of flips: what is added is read, stores merge, and damaged files are skipped by name."""

import dataclasses
import hashlib
from pathlib import Path

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from compiler_opt.array_files import load_arrays, pack_arrays
from compiler_opt.collect.flip_store import Flips, FlipStore

_FLIPS = Flips(
    problem="inlining",
    compiler="clang version 22",
    base="default",
    features=("height", "cost"),
    modules=("p/m", "p/\udcff"),
    projects=("p", "p"),
    observations=np.array([[1, 10], [2, 20], [3, 30]]),
    actions=np.array([0, 1, 1]),
    base_actions=np.array([1, 0, 0]),
    gains=np.array([-4.0, 0.5, 12.0]),
    linked_gains=np.array([-4.0, np.nan, 16.0]),
    owners=np.array([0, 0, 1], np.int32),
)


def _read(store: FlipStore, *features: str) -> tuple[list[Flips], list[str]]:
    skipped: list[str] = []
    return list(store.read("inlining", features, skipped.append)), skipped


def test_what_is_added_is_read_with_the_features_in_order(tmp_path: Path) -> None:
    store = FlipStore(tmp_path / "store")
    assert store.add(_FLIPS) == store.add(_FLIPS)
    ([found], skipped) = _read(store, "cost", "height")
    assert not skipped
    np.testing.assert_array_equal(found.observations, [[10, 1], [20, 2], [30, 3]])
    for name in ("actions", "base_actions", "gains", "linked_gains", "owners"):
        np.testing.assert_array_equal(getattr(found, name), getattr(_FLIPS, name))
    assert (found.modules, found.projects, found.base, len(found)) == (_FLIPS.modules, ("p", "p"), "default", 3)


def test_stores_merge_and_have_nothing_twice(tmp_path: Path) -> None:
    one, two = FlipStore(tmp_path / "one"), FlipStore(tmp_path / "two")
    one.add(_FLIPS)
    two.add(_FLIPS)
    two.add(dataclasses.replace(_FLIPS, compiler="clang version 19"))
    assert (one.merge(two), one.merge(two)) == (1, 0)
    assert sorted(flips.compiler for flips in _read(one, "cost")[0]) == ["clang version 19", "clang version 22"]


def test_what_does_not_suit_is_skipped_by_name(tmp_path: Path) -> None:
    store = FlipStore(tmp_path)
    path = store.add(_FLIPS)
    assert _read(store, "weight") == ([], [f"{path}: skipped: lacks the features weight"])
    skipped: list[str] = []
    assert not list(store.read("regalloc_eviction", ["cost"], skipped.append))
    assert skipped == [f"{path}: skipped: is about 'inlining', not about regalloc_eviction"]


def test_what_is_nested_deeply_is_skipped_by_name(tmp_path: Path) -> None:
    path = FlipStore(tmp_path).add(_FLIPS)
    about = np.frombuffer(b"[" * 100_000, np.uint8)
    content = pack_arrays({**load_arrays(path, 1 << 20), "about": about})
    path.unlink()
    path = path.with_stem(hashlib.sha256(content).hexdigest())
    path.write_bytes(content)
    assert _read(FlipStore(tmp_path)) == ([], [f"{path}: skipped: nested deeper than 64 levels"])


@hypothesis.given(st.data())
@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture], max_examples=60)
def test_a_damaged_file_is_skipped_and_not_merged(tmp_path: Path, data: st.DataObject) -> None:
    store, other = FlipStore(tmp_path / "store"), FlipStore(tmp_path / "other")
    path = store.add(_FLIPS)
    whole = path.read_bytes()
    position, length = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(0, len(whole)))
    flipped = bytes([whole[position] ^ data.draw(st.integers(1, 255))])
    path.write_bytes(data.draw(st.sampled_from([whole[:position] + flipped + whole[position + 1 :], whole[:length]])))
    found, skipped = _read(store, "cost")
    lines: list[str] = []
    assert other.merge(store, lines.append) == 0 or path.read_bytes() == whole
    assert (len(found), len(skipped), len(lines)) == ((1, 0, 0) if path.read_bytes() == whole else (0, 1, 1))
    assert all("\n" not in line and line.startswith(f"{path}: skipped: ") for line in skipped + lines)
    path.write_bytes(whole)


def test_columns_that_do_not_match_are_refused() -> None:
    with pytest.raises(ValueError, match="owners: expected indices of 2 modules"):
        dataclasses.replace(_FLIPS, owners=np.array([0, 0, 2], np.int32))
    with pytest.raises(ValueError, match=r"observations: expected shape \(3, 2\), found \(3, 1\)"):
        dataclasses.replace(_FLIPS, observations=np.zeros((3, 1)))
    with pytest.raises(ValueError, match="gains: expected finite"):
        dataclasses.replace(_FLIPS, gains=np.array([1, np.nan, 2]))
