"""Evolution strategies over the weights of a network.

Legend: D weights, N directions.

The mean of the directions, weighted by the ranks of their gains, is a gradient, which an optimiser follows. Sources:
Salimans et al., *Evolution Strategies as a Scalable Alternative to Reinforcement Learning*, 2017, for mirrored sampling
and Adam; Wierstra et al., *Natural Evolution Strategies*, 2014, for ranks.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from compiler_opt.collect.groups import Group
from compiler_opt.collect.rollout import Rollout
from compiler_opt.policies.policy import Policy
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.problem import reward
from compiler_opt.rl.algorithms.es import TRUST_REGION, ESConfig
from compiler_opt.rl.algorithms.es.algorithm import EvolutionStrategies
from compiler_opt.rl.algorithms.es.trust_region import TrustRegion
from compiler_opt.rl.learner import AveragedWeights
from compiler_opt.rl.training_run import TrainingRun

_OPTIMIZERS: Mapping[str, Callable[[ESConfig], Any]] = {
    "plain": lambda config: tf.keras.optimizers.SGD(config.learning_rate),
    "momentum": lambda config: tf.keras.optimizers.SGD(config.learning_rate, momentum=config.momentum),
    "adam": lambda config: tf.keras.optimizers.Adam(config.learning_rate),
}
"""Those whose steps are as long as the gradient says."""


def centred_ranks(gains: np.ndarray) -> np.ndarray:
    """Gains `[N]` to their ranks among all gains and all losses, from -1/2 to 1/2, `[N]`; 0 for no gain.

    Ties share a rank. A gain and a loss of the same size have opposite ranks.
    """
    both = np.sort(np.concatenate([gains, -gains]))
    ranks: np.ndarray = (np.searchsorted(both, gains, "left") + np.searchsorted(both, gains, "right") - 1) / 2
    return ranks / max(1, len(both) - 1) - 0.5


class NetworkES(EvolutionStrategies):
    """Owns the weights and the optimiser.

    The policy to save is the moving average of the weights over iterations.
    """

    description = "evolution strategies over the weights of a network"
    log_metrics = (("gain_size", "mean difference of a pair", ".3%"), ("directions", "directions", ".0f"))

    def __init__(self, run: TrainingRun, config: ESConfig):
        """Begins with random weights. Raises PolicyError if the policy to start from does not suit the settings."""
        super().__init__(run, config)
        self._head = run.head
        self._actor = run.head.actor(run.action_name, run.network, run.config.seed)
        num_weights = sum(variable.shape.num_elements() for variable in self._actor.trainable_weights)
        self._region: TrustRegion | None = None
        if config.optimizer == TRUST_REGION:
            # The expected length of a perturbation is its deviation times the root of the number of weights.
            self._region = TrustRegion(config.radius * config.noise * math.sqrt(num_weights))
        self._optimizer = _OPTIMIZERS[config.optimizer](config) if self._region is None else self._region
        self._optimizer.build(self._actor.trainable_weights)
        self._average = AveragedWeights(run.head, self._actor, config.averaging)
        if (start := run.warm_start_weights()) is not None:
            self._average.warm_start(start)

    def policy(self) -> NetworkWeights:
        return self._average.weights()

    def checkpointed(self) -> dict[str, Any]:
        return {"actor": self._actor, "optimizer": self._optimizer, "average": self._average.variables}

    def direction(self, rng: np.random.Generator) -> np.ndarray:
        return rng.standard_normal(sum(map(len, map(np.ravel, self._values()))), np.float32)

    def moved(self, direction: np.ndarray) -> Policy:
        return self._run.problem.decision.policy(self.weights(direction))

    def gain(self, group: Group, along: Rollout, against: Rollout) -> float:
        scores = (self._run.problem.score(each.measurement, group.context) for each in (along, against))
        further, back = (reward(score, group.baseline) for score in scores)
        return further - back

    def weights(self, direction: np.ndarray) -> NetworkWeights:
        """The weights, moved along a direction `[D]` by the noise."""
        values = self._values()
        parts = self._parts(self._config.noise * direction)
        return self._head.to_weights(self._actor, [value + part for value, part in zip(values, parts, strict=True)])

    def probe(self) -> np.ndarray | None:
        """The last step of a trust region, in units of the noise."""
        step = None if self._region is None else self._region.probe()
        return None if step is None else step / self._config.noise

    def judge(self, gain: float) -> dict[str, float]:
        """Trusts the next step more or less, by the gain of the `probe`; returns its length, as `radius`."""
        assert self._region is not None
        self._region.judge(gain)
        return {"radius": float(self._region.radius.numpy())}

    def update(self, directions: np.ndarray, gains: np.ndarray) -> dict[str, float]:
        """Follows the gradient that `gains` `[N]` of `directions` `[N, D]` estimate; returns `gradient_norm`."""
        gradient = centred_ranks(gains).astype(np.float32) @ directions / (len(gains) * self._config.noise)
        # Optimisers descend.
        downhill = [tf.constant(-part) for part in self._parts(gradient)]
        self._optimizer.apply_gradients(zip(downhill, self._actor.trainable_weights, strict=True))
        self._average.add()
        return {"gradient_norm": float(np.linalg.norm(gradient))}

    def _values(self) -> list[np.ndarray]:
        return [variable.numpy() for variable in self._actor.trainable_weights]

    def _parts(self, flat: np.ndarray) -> list[np.ndarray]:
        """`[D]` in the shapes of the variables."""
        shapes = [tuple(variable.shape) for variable in self._actor.trainable_weights]
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
        return [part.reshape(shape) for part, shape in zip(np.split(flat, ends[:-1]), shapes, strict=True)]
