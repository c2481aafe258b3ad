"""How much of a program is new to a policy."""

from pathlib import Path

import numpy as np
import pytest

from compiler_opt.errors import PolicyError
from compiler_opt.optimize.changes import REFERENCE_NAME, Reference, compare, feature_hashes


def test_equal_features_have_equal_hashes() -> None:
    rng = np.random.default_rng(1)
    features = rng.integers(-3, 3, (4, 5000))
    hashes = feature_hashes(features)
    _, by_features = np.unique(features, axis=1, return_inverse=True)
    _, by_hashes = np.unique(hashes, return_inverse=True)
    # Both give the same partition.
    assert len(set(zip(by_features.ravel().tolist(), by_hashes.tolist(), strict=True))) == by_features.max() + 1
    assert by_features.max() == by_hashes.max()
    assert (feature_hashes(features[::-1]) != hashes).any()


def test_changes(tmp_path: Path) -> None:
    decisions = np.arange(4, dtype=np.uint64)
    Reference({"a": "1", "b": "2", "c": "3"}, decisions, {"change": -0.05}).save(tmp_path)
    reference = Reference.load(tmp_path)
    assert reference is not None and reference.summary == {"change": -0.05}
    changes = compare(reference, {"a": "1", "b": "x", "d": "4"}, np.array([0, 0, 9, 3], np.uint64))
    assert (changes.modules_added, changes.modules_removed, changes.modules_changed) == (("d",), ("c",), ("b",))
    assert (changes.decisions_new, changes.num_decisions, changes.num_modules) == (0.25, 4, 3)


def test_a_reference_may_be_missing_but_not_damaged(tmp_path: Path) -> None:
    assert Reference.load(tmp_path) is None
    (tmp_path / REFERENCE_NAME).write_bytes(b"PK")
    with pytest.raises(PolicyError, match="damaged"):
        Reference.load(tmp_path)
