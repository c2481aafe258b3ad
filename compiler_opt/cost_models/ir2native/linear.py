"""A non-negative number of bytes for each count: the first stage, whose prediction the other models correct.

Sizes are sums over instructions, which trees and networks extrapolate badly: a function ten times as large as all that
were trained on gets ten times the bytes only by a linear model. N rows, D counts.
"""

import numpy as np

MIN_BYTES = 1.0
"""No function is predicted smaller."""


def fit_linear(
    x: np.ndarray, y: np.ndarray, weights: np.ndarray, *, ridge: float = 3.0, rounds: int = 3, steps: int = 300
) -> np.ndarray:
    """Bytes `[D]` by which counts `[N, D]` best give sizes `[N]`, in relative terms; rows have weights `[N]`.

    Each round minimises the squared error relative to the prediction of the round before, with the ridge on what one
    typical count contributes, by projected accelerated gradient descent (FISTA; Beck and Teboulle 2009).
    """
    x = np.asarray(x, np.float64)
    scale = 1.0 / np.sqrt(np.maximum((x * x).mean(axis=0), 1e-12))  # [D]
    total = weights / weights.sum()
    predicted = np.maximum(y, MIN_BYTES)
    coefficients = np.zeros(x.shape[1])
    for _ in range(rounds):
        relative = np.sqrt(total) / np.maximum(predicted, 8.0)  # [N]
        scaled = x * relative[:, None]
        scale = 1.0 / np.sqrt((scaled * scaled).sum(axis=0) + 1e-12)
        scaled *= scale
        gram = scaled.T @ scaled  # [D, D]
        gram[np.diag_indices_from(gram)] += ridge / len(x) * len(gram) ** 0.5
        right = scaled.T @ (y * relative)
        step = 1.0 / float(np.linalg.eigvalsh(gram)[-1])
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
