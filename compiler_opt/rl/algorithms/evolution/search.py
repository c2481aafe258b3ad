"""Search for the parameters of a rule by evolution strategies, with one perturbation per module.

Legend: P parameters, N pairs of rollouts.

    draw a direction for each module; compile it with the parameters moved along it, and against it
    the difference of the two scores estimates the gradient along that direction
    move each parameter by its mean gradient, in units of its standard error

Evolution strategies with mirrored sampling (Salimans et al., 2017, after Rechenberg, 1973). Each module has its own
direction, so every pair of rollouts explores another one. A parameter moves by the significance of its gradient: at
most by one step, and hardly at all if the pairs contradict each other.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from compiler_opt.rl.algorithms.evolution import EvolutionConfig


class ParameterSearch:
    """Owns the parameters and the estimate of their gradient."""

    def __init__(self, start: np.ndarray, scale: np.ndarray, config: EvolutionConfig):
        """Starts from parameters `[P]`, whose scales are `[P]`, see `RuleParameter.scale`."""
        self._scale = scale
        self._config = config
        self._current = start.astype(np.float64)
        self._sum = np.zeros_like(self._current)
        self._weight = 0.0
        self._gradient = np.zeros_like(self._current)
        self._variance = np.zeros_like(self._current)

    @property
    def current(self) -> np.ndarray:
        """The current parameters, `[P]`."""
        return self._current

    @property
    def averaged(self) -> np.ndarray:
        """The moving average of the parameters, which is less noisy, `[P]`."""
        result: np.ndarray = self._sum / self._weight if self._weight else self._current
        return result

    def directions(self, number: int, rng: np.random.Generator) -> np.ndarray:
        """Random offsets of the current parameters, `[N, P]`."""
        return self._config.exploration * self._scale * rng.standard_normal((number, len(self._current)))

    def update(self, directions: np.ndarray, gains: np.ndarray) -> np.ndarray:
        """Moves the parameters.

        Args:
          directions: `[N, P]`, N > 1.
          gains: `[N]`, gain of the rollout along each direction over the one against it.

        Returns:
          `[P]`: the moving average of the gradient, divided by its standard error.
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
        """State to resume from; JSON."""
        return {
            "current": self._current.tolist(),
            "sum": self._sum.tolist(),
            "weight": self._weight,
            "gradient": self._gradient.tolist(),
            "variance": self._variance.tolist(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Resumes from `state()`."""
        self._current, self._sum = np.array(state["current"]), np.array(state["sum"])
        self._weight = state["weight"]
        self._gradient, self._variance = np.array(state["gradient"]), np.array(state["variance"])


def weighted_gain(
    along: Mapping[str, float], against: Mapping[str, float], *, score_exponent: float, offset: float
) -> float:
    """Gain of one rollout of a module over another, from the scores of its functions.

    The difference of a function's scores is divided by their mean to the power of `1 - score_exponent`: with 0,
    relative gains count, with 1, absolute ones. A few functions cost far more than all others, whose gains would drown
    in a total score.

    Args:
      along: scores by function.
      against: scores by function of the other rollout.
      score_exponent: see above, 0 to 1.
      offset: added to the mean scores.
    """
    names = sorted(along.keys() | against.keys())
    scores = np.array([[side.get(name, 0.0) for name in names] for side in (along, against)]).reshape(2, -1)
    return float(((scores[1] - scores[0]) / (scores.mean(axis=0) + offset) ** (1 - score_exponent)).sum())
