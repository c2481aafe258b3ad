"""Searching for the parameters of a rule: evolution strategies, with one perturbation for each module.

Legend: P parameters, N pairs of rollouts.

    draw a direction for each module; compile it with the parameters moved along it, and against it
    the difference of the two scores estimates the gradient along that direction
    move each parameter by its mean gradient, in units of the standard error

Evolution strategies with mirrored directions (Salimans et al., 2017, after Rechenberg, 1973), in which modules and
directions are drawn together, so that every pair explores another direction. A parameter moves by the significance of
its gradient: at most a step, and hardly at all where the pairs contradict each other.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from compiler_opt.rl.algorithms.evolution import EvolutionConfig


class ParameterSearch:
    """Owns the parameters."""

    def __init__(self, start: np.ndarray, scale: np.ndarray, config: EvolutionConfig):
        """Begins.

        Args:
          start: `[P]`.
          scale: `[P]`, see `RuleParameter.scale`.
          config: how to search.
        """
        self._scale = scale
        self._config = config
        self._current = start.astype(np.float64)
        self._sum = np.zeros_like(self._current)
        self._weight = 0.0
        self._gradient = np.zeros_like(self._current)
        self._variance = np.zeros_like(self._current)

    @property
    def current(self) -> np.ndarray:
        """`[P]`: the centre of the search."""
        return self._current

    @property
    def averaged(self) -> np.ndarray:
        """`[P]`: the mean over the last updates, which is less noisy."""
        result: np.ndarray = self._sum / self._weight if self._weight else self._current
        return result

    def directions(self, number: int, rng: np.random.Generator) -> np.ndarray:
        """`[N, P]`: to be added to the current parameters, and subtracted from them."""
        return self._config.exploration * self._scale * rng.standard_normal((number, len(self._current)))

    def update(self, directions: np.ndarray, gains: np.ndarray) -> np.ndarray:
        """Moves the parameters.

        Args:
          directions: `[N, P]`, N > 1, as drawn.
          gains: `[N]`, by how much going along each was better than going against it.

        Returns:
          `[P]`: the gradient, averaged with those before it, as a multiple of its standard error.
        """
        config = self._config
        each = gains[:, np.newaxis] * directions / (2 * config.exploration**2 * self._scale)
        kept = config.momentum
        self._gradient = kept * self._gradient + (1 - kept) * each.mean(axis=0)
        self._variance = kept**2 * self._variance + (1 - kept) ** 2 * each.var(axis=0, ddof=1) / len(each)
        deviation = np.sqrt(self._variance)
        z_scores: np.ndarray = np.divide(self._gradient, deviation, out=np.zeros_like(deviation), where=deviation > 0)
        self._current = self._current + config.step * self._scale * np.clip(z_scores / config.z_threshold, -1, 1)
        self._sum = config.averaging * self._sum + self._current
        self._weight = config.averaging * self._weight + 1
        return z_scores

    def state(self) -> dict[str, Any]:
        """What an interrupted search continues from; JSON."""
        return {
            "current": self._current.tolist(),
            "sum": self._sum.tolist(),
            "weight": self._weight,
            "gradient": self._gradient.tolist(),
            "variance": self._variance.tolist(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues from `state()`."""
        self._current, self._sum = np.array(state["current"]), np.array(state["sum"])
        self._weight = state["weight"]
        self._gradient, self._variance = np.array(state["gradient"]), np.array(state["variance"])


def weighted_gain(
    along: Mapping[str, float], against: Mapping[str, float], *, score_exponent: float, offset: float
) -> float:
    """By how much less one rollout of a module scores than another.

    What a function saved is divided by the mean of its two scores to the power of `1 - score_exponent`: with 0 the
    share that was saved counts, with 1 all of it. Most functions cost little and a few very much, so these few would
    drown all others in a search by total scores.

    Args:
      along: scores by function.
      against: of the other rollout.
      score_exponent: see above.
      offset: added to the means.
    """
    names = sorted(along.keys() | against.keys())
    scores = np.array([[side.get(name, 0.0) for name in names] for side in (along, against)]).reshape(2, -1)
    return float(((scores[1] - scores[0]) / (scores.mean(axis=0) + offset) ** (1 - score_exponent)).sum())
