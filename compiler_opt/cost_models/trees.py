"""Boosted regression trees as arrays: fitted by scikit-learn, evaluated by numpy, saved without pickling.

K nodes of all trees, T trees, N rows, D features.
"""

import contextlib
import dataclasses
import importlib.util
import os
from collections.abc import Iterator, Mapping

import numpy as np

from compiler_opt.errors import MissingPackageError

MAX_DEPTH = 64
"""Of trees that are evaluated; far above those that are fitted."""


def require_scikit_learn() -> None:
    """Raises MissingPackageError unless scikit-learn, which fits trees, is installed."""
    if importlib.util.find_spec("sklearn") is None:
        raise MissingPackageError("fitting trees needs scikit-learn; run pip install 'compiler_opt[cost_models]'")


@dataclasses.dataclass(frozen=True)
class TreeSettings:
    """Settings of the fit; see scikit-learn's `HistGradientBoostingRegressor`.

    Attributes:
      iterations: trees.
      learning_rate: by which each tree's values are multiplied.
      leaves: of a tree, at most.
      leaf_rows: rows of a leaf, at least.
      l2: regularisation of the leaves' values.
      feature_fraction: of the features, drawn anew for each split.
    """

    iterations: int = 200
    learning_rate: float = 0.08
    leaves: int = 15
    leaf_rows: int = 20
    l2: float = 1.0
    feature_fraction: float = 0.3


@dataclasses.dataclass(frozen=True)
class BoostedTrees:
    """A sum of trees.

    Attributes:
      feature: `[K]` int32, which feature a node compares; -1 for a leaf.
      threshold: `[K]` float64; a row goes left if its feature is not greater.
      left, right: `[K]` int32, the children; both behind the node itself.
      value: `[K]` float64, of leaves.
      roots: `[T]` int32.
      baseline: `[1]` float64, which is added to the sum.
    """

    feature: np.ndarray
    threshold: np.ndarray
    left: np.ndarray
    right: np.ndarray
    value: np.ndarray
    roots: np.ndarray
    baseline: np.ndarray

    @classmethod
    def fit(
        cls, x: np.ndarray, y: np.ndarray, weights: np.ndarray, settings: TreeSettings, *, seed: int = 0
    ) -> "BoostedTrees":
        """Fits trees to targets `[N]` of rows `[N, D]` with weights `[N]`, for the least absolute error."""
        # scikit-learn is needed for fitting only.
        from sklearn.ensemble import HistGradientBoostingRegressor
        from threadpoolctl import threadpool_limits

        regressor = HistGradientBoostingRegressor(
            loss="absolute_error",
            max_iter=settings.iterations,
            learning_rate=settings.learning_rate,
            max_leaf_nodes=settings.leaves,
            min_samples_leaf=settings.leaf_rows,
            l2_regularization=settings.l2,
            max_features=settings.feature_fraction,
            early_stopping=False,
            random_state=seed,
        )
        # Its threads spin while they wait for one another, which on a busy machine takes minutes instead of seconds.
        with threadpool_limits(1), _number_of_threads_given():
            regressor.fit(x, y, sample_weight=weights)
        return cls.from_sklearn(regressor)

    @classmethod
    def from_sklearn(cls, regressor: object) -> "BoostedTrees":
        """The trees of a fitted `HistGradientBoostingRegressor` without categories."""
        parts: dict[str, list[np.ndarray]] = {name: [] for name in ("feature", "threshold", "left", "right", "value")}
        roots, offset = [], 0
        for (predictor,) in regressor._predictors:  # type: ignore[attr-defined]
            nodes = predictor.nodes
            is_leaf = nodes["is_leaf"].astype(bool)
            if nodes["is_categorical"].any():
                raise ValueError("expected trees without categories")
            parts["feature"].append(np.where(is_leaf, -1, nodes["feature_idx"]).astype(np.int32))
            parts["threshold"].append(np.where(is_leaf, 0.0, nodes["num_threshold"]))
            for side in ("left", "right"):
                parts[side].append(np.where(is_leaf, 0, nodes[side].astype(np.int64) + offset).astype(np.int32))
            parts["value"].append(np.where(is_leaf, nodes["value"], 0.0))
            roots.append(offset)
            offset += len(nodes)
        baseline = np.asarray(regressor._baseline_prediction, np.float64).reshape(1)  # type: ignore[attr-defined]
        arrays = {name: np.concatenate(each) if each else np.zeros(0) for name, each in parts.items()}
        return cls(**arrays, roots=np.array(roots, np.int32), baseline=baseline)

    def predict(self, x: np.ndarray) -> np.ndarray:
        """`[N, D]` -> `[N]` float64."""
        x = np.asarray(x, np.float64)
        total = np.full(len(x), float(self.baseline[0]))
        rows = np.arange(len(x))
        for root in self.roots:
            node = np.full(len(x), root, np.int64)
            for _ in range(MAX_DEPTH):
                feature = self.feature[node]
                if (feature < 0).all():
                    break
                goes_left = x[rows, np.maximum(feature, 0)] <= self.threshold[node]
                node = np.where(feature < 0, node, np.where(goes_left, self.left[node], self.right[node]))
            total += self.value[node]
        return total

    def arrays(self) -> dict[str, np.ndarray]:
        """What is saved."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], num_features: int) -> "BoostedTrees":
        """The trees that were saved, for D features; raises ValueError if they are none, in one line."""
        fields = {}
        for name, kind in _KINDS.items():
            if name not in arrays or arrays[name].ndim != 1 or arrays[name].dtype != kind:
                raise ValueError(f"trees: expected {name} as one row of {np.dtype(kind)}")
            fields[name] = arrays[name]
        trees = cls(**fields)
        count = len(trees.feature)
        numbers = np.arange(count)
        inner = trees.feature >= 0
        if (
            any(len(fields[name]) != count for name in ("threshold", "left", "right", "value"))
            or len(trees.baseline) != 1
        ):
            raise ValueError("trees: their arrays have different lengths")
        if inner.any() and int(trees.feature.max()) >= num_features:
            raise ValueError(f"trees: a node compares feature {trees.feature.max()}; there are {num_features}")
        for side in (trees.left, trees.right):
            # Behind the node: no walk goes in circles.
            if (side[inner] <= numbers[inner]).any() or (side[inner] >= count).any():
                raise ValueError("trees: a node's child is out of place")
        if len(trees.roots) and (int(trees.roots.min()) < 0 or int(trees.roots.max()) >= count):
            raise ValueError("trees: a root is out of place")
        if not all(np.isfinite(fields[name]).all() for name in ("threshold", "value", "baseline")):
            raise ValueError("trees: not all numbers are finite")
        return trees


@contextlib.contextmanager
def _number_of_threads_given() -> Iterator[None]:
    """Else scikit-learn counts cores; where it cannot, as without /sys, it prints a warning and a traceback."""
    if "OMP_NUM_THREADS" in os.environ:
        yield
        return
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        del os.environ["OMP_NUM_THREADS"]


_KINDS = {
    "feature": np.int32,
    "threshold": np.float64,
    "left": np.int32,
    "right": np.int32,
    "value": np.float64,
    "roots": np.int32,
    "baseline": np.float64,
}
