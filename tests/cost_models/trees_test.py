"""Boosted trees against scikit-learn, and those that are damaged."""

import os

import numpy as np
import pytest

from compiler_opt.cost_models.trees import BoostedTrees, TreeSettings


def test_trees_predict_as_sklearn_does(monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.ensemble import HistGradientBoostingRegressor

    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # Else it counts cores, and warns where it cannot.
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 5)).astype(np.float32)
    x[:, 3] = rng.integers(0, 3, 400)
    y = x[:, 0] * (x[:, 1] > 0) + 0.1 * x[:, 3]
    regressor = HistGradientBoostingRegressor(max_iter=30, min_samples_leaf=5, early_stopping=False).fit(x, y)
    trees = BoostedTrees.from_sklearn(regressor)
    other = np.concatenate([x, 3 * rng.normal(size=(300, 5)).astype(np.float32)])
    assert np.abs(trees.predict(other) - regressor.predict(other)).max() < 1e-12
    restored = BoostedTrees.from_arrays(trees.arrays(), 5)
    assert (restored.predict(other) == trees.predict(other)).all()


def test_cores_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where scikit-learn cannot count them, it prints a traceback."""
    from sklearn.utils import _openmp_helpers

    def count(only_physical_cores: bool) -> int:
        raise AssertionError("counted")

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(_openmp_helpers, "_CPU_COUNTS", {})
    monkeypatch.setattr(_openmp_helpers, "cpu_count", count)
    x = np.random.default_rng(0).normal(size=(100, 5))
    BoostedTrees.fit(x, x[:, 0], np.ones(100), TreeSettings(iterations=3, leaf_rows=5))
    assert "OMP_NUM_THREADS" not in os.environ


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("feature", 5, "compares feature 5; there are 5"),
        ("left", 0, "child is out of place"),
        ("right", 10_000, "child is out of place"),
        ("threshold", np.inf, "not all numbers are finite"),
        ("roots", -1, "root is out of place"),
    ],
)
def test_damaged_trees_are_refused(name: str, value: float, reason: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 5))
    arrays = BoostedTrees.fit(x, x[:, 0], np.ones(100), TreeSettings(iterations=3, leaf_rows=5)).arrays()
    assert arrays["feature"][0] >= 0
    arrays[name][0] = value
    with pytest.raises(ValueError, match=reason):
        BoostedTrees.from_arrays(arrays, 5)
