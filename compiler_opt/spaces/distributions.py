"""Distributions over actions, in numpy: categorical ones, and Gaussians.

Legend: N decisions, A actions to choose from.
"""

import math
from collections.abc import Callable

import numpy as np

from compiler_opt.policies.policy import uniforms

MIDDLE_LOG_DEVIATION, LOG_DEVIATION_RANGE = math.log(0.1), math.log(20)
"""Deviations are between 1/20 of the middle one and 20 times it, whatever the weights are."""

_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """`[N, A]` to `[N, A]`; minus infinity stays minus infinity."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def categorical_entropy(log_probs: np.ndarray) -> np.ndarray:
    """`[N, A]`, minus infinity for illegal actions, to `[N]`."""
    possible = np.where(np.isfinite(log_probs), log_probs, 0.0)
    return -(np.exp(log_probs) * possible).sum(axis=-1)


def smoothed_labels(actions: np.ndarray, legal: np.ndarray, smoothing: float) -> np.ndarray:
    """Target probabilities for cloning, `[N, A]` float32: `1 - smoothing` for the action `[N]`.

    The other `legal` actions `[N, A]` share the rest.
    """
    chosen = np.arange(legal.shape[1]) == actions[:, np.newaxis]
    others = legal & ~chosen
    count = others.sum(axis=-1, keepdims=True)
    share = np.where(count > 0, smoothing, 0.0)
    return np.where(chosen, 1 - share, others * share / np.maximum(count, 1)).astype(np.float32)


def bernoulli_log_probs(actions: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """`[N]` float32 log probabilities of actions 0 and 1 `[N]`.

    `logits` `[N]` float64 are the logit of 1 minus the logit of 0, over the temperature.
    """
    signs = 2 * actions.astype(np.float64) - 1
    return -np.logaddexp(0, -signs * logits).astype(np.float32)


def mean_and_log_deviation(outputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A network's two outputs `[..., 2]` as mean and log deviation of a Gaussian, each `[...]` float64."""
    outputs = outputs.astype(np.float64)
    return outputs[..., 0], MIDDLE_LOG_DEVIATION + LOG_DEVIATION_RANGE * np.tanh(outputs[..., 1])


def learnable_log_deviation(deviation: float) -> float:
    """The logarithm of a deviation, or of the nearest that a network can learn."""
    # A network cannot reach the ends of the range.
    reach = 0.95 * LOG_DEVIATION_RANGE
    return min(max(math.log(max(deviation, 1e-9)), MIDDLE_LOG_DEVIATION - reach), MIDDLE_LOG_DEVIATION + reach)


def gaussian_log_density(actions: np.ndarray, mean: np.ndarray, log_deviation: np.ndarray) -> np.ndarray:
    """Log density of a Gaussian at each action; `[N]` to `[N]` float64."""
    distance = (np.asarray(actions, np.float64) - mean) / np.exp(log_deviation)
    return -0.5 * np.square(distance) - log_deviation - _HALF_LOG_TWO_PI


def normals(seed: int) -> Callable[[], float]:
    """A stream of standard normal numbers (Box and Muller 1958), one for each two of `uniforms`."""
    uniform = uniforms(seed)

    def draw() -> float:
        # 1 - u lies in (0, 1]: its logarithm is finite.
        radius = math.sqrt(-2 * math.log(1 - uniform()))
        return radius * math.cos(2 * math.pi * uniform())

    return draw
