"""A non-negative number of bytes for each count: the first stage, whose prediction the other models correct.

Sizes are sums over instructions, which trees and networks extrapolate badly: a function ten times as large as all that
were trained on gets ten times the bytes only by a linear model. N rows, D counts.
"""

import re
from collections.abc import Sequence

import numpy as np

MIN_BYTES = 1.0
"""No function is predicted smaller."""

_COUNTS = re.compile(r"(tok|op|cost)\.|(op|blocks|fn|fn\.vararg|fn\.frame_over128)$")
_LIVE = re.compile(r"live\.(int|float)\.(saved|across|crossing|spilled_across)$")


def is_additive(columns: Sequence[str]) -> np.ndarray:
    """`[D]` bool: which features are counts of what has bytes; others, such as the size of a frame, have none."""
    return np.array([bool(_COUNTS.match(name) or _LIVE.match(name)) for name in columns], bool)


def fit_linear(
    x: np.ndarray, y: np.ndarray, weights: np.ndarray, *, prior_rows: float = 20.0, rounds: int = 3, steps: int = 400
) -> np.ndarray:
    """Bytes `[D]` by which counts `[N, D]` best give sizes `[N]`, in relative terms; rows have weights `[N]`.

    Each round minimises the squared error relative to the prediction of the round before, by projected accelerated
    gradient descent (FISTA; Beck and Teboulle 2009). What is rare is drawn to zero bytes, as by `prior_rows` functions
    of median size that have it once and are not larger for it, so that its opcode's bytes, another count, apply.
    """
    x = np.asarray(x, np.float64)
    total = weights / weights.sum()
    predicted = np.maximum(y, MIN_BYTES).astype(np.float64)
    coefficients = np.zeros(x.shape[1])
    for _ in range(rounds):
        relative = np.sqrt(total) / np.maximum(predicted, 8.0)  # [N]
        scaled = x * relative[:, None]
        prior = prior_rows / len(x) / float(np.median(np.maximum(predicted, 8.0))) ** 2
        scale = 1.0 / np.sqrt((scaled * scaled).sum(axis=0) + prior)
        scaled *= scale
        gram = scaled.T @ scaled  # [D, D], whose diagonal becomes ones
        gram[np.diag_indices_from(gram)] += prior * scale**2
        right = scaled.T @ (y * relative)
        step = 1.0 / _largest_eigenvalue(gram)
        current = ahead = coefficients / scale
        momentum = 1.0
        for _ in range(steps):
            following = np.maximum(ahead - step * (gram @ ahead - right), 0.0)
            grown = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
            ahead = following + (momentum - 1) / grown * (following - current)
            current, momentum = following, grown
        coefficients = current * scale
        predicted = predict_linear(coefficients, x)
    return coefficients


def predict_linear(coefficients: np.ndarray, x: np.ndarray) -> np.ndarray:
    """`[D]`, `[N, D]` -> `[N]` bytes."""
    return np.maximum(np.asarray(x, np.float64) @ coefficients, MIN_BYTES)


def _largest_eigenvalue(gram: np.ndarray) -> float:
    """An upper bound, which is near: of a symmetric matrix `[D, D]` with entries that are not negative."""
    # Collatz-Wielandt: for a positive vector, the largest ratio bounds the Perron root from above.
    vector = np.ones(len(gram))
    bound = float(np.abs(gram).sum(axis=1).max())
    for _ in range(10):
        following = gram @ vector
        bound = min(bound, float((following / vector).max()))
        vector = following / following.max() + 1e-9
    return max(bound, 1e-12)
