"""Evolution strategies over the weights of a network.

Legend: D weights, N directions.

    for each module, or for a few together: draw directions
    compile each module under the weights moved along each direction, and under those moved against it
    gain of a direction: how much more reward there is along it than against it, in the mean of its modules
    gradient: the mean of the directions, weighted by the ranks of their gains
    an optimiser follows the gradient

All these policies decide greedily. Sources: Salimans et al., *Evolution Strategies as a Scalable Alternative to
Reinforcement Learning*, 2017, for mirrored sampling and Adam; Wierstra et al., *Natural Evolution Strategies*, 2014,
for ranks.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from compiler_opt.collect.groups import CollectionPolicy, Group
from compiler_opt.corpus.module import Module
from compiler_opt.policies.policy import Policy
from compiler_opt.policies.weights import NetworkConfig, NetworkWeights
from compiler_opt.rl.algorithm import Algorithm
from compiler_opt.rl.algorithms.es import TRUST_REGION, ESConfig
from compiler_opt.rl.algorithms.es.trust_region import TrustRegion
from compiler_opt.rl.learner import AveragedWeights
from compiler_opt.rl.training_context import TrainingContext
from compiler_opt.spaces.heads.head import Head

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


class WeightSearch:
    """Owns the weights and the optimiser.

    Attributes:
      average: the moving average of the weights over iterations.
    """

    def __init__(self, head: Head, action_name: str, network: NetworkConfig, config: ESConfig, seed: int):
        """Begins with random weights."""
        self._head = head
        self._config = config
        self._actor = head.actor(action_name, network, seed)
        num_weights = sum(variable.shape.num_elements() for variable in self._actor.trainable_weights)
        self._region: TrustRegion | None = None
        if config.optimizer == TRUST_REGION:
            # The expected length of a perturbation is its deviation times the root of the number of weights.
            self._region = TrustRegion(config.radius * config.noise * math.sqrt(num_weights))
        self._optimizer = _OPTIMIZERS[config.optimizer](config) if self._region is None else self._region
        self._optimizer.build(self._actor.trainable_weights)
        self.average = AveragedWeights(head, self._actor, config.averaging)

    def checkpointed(self) -> dict[str, Any]:
        """TensorFlow objects to checkpoint."""
        return {"actor": self._actor, "optimizer": self._optimizer, "average": self.average.variables}

    def direction(self, rng: np.random.Generator) -> np.ndarray:
        """A random direction, `[D]` float32."""
        return rng.standard_normal(sum(map(len, map(np.ravel, self._values()))), np.float32)

    def moved(self, direction: np.ndarray) -> NetworkWeights:
        """The weights, moved along a direction `[D]` by the noise."""
        values = self._values()
        parts = self._parts(self._config.noise * direction)
        return self._head.to_weights(self._actor, [value + part for value, part in zip(values, parts, strict=True)])

    def probe(self) -> np.ndarray | None:
        """A direction `[D]` along which the weights move by the last step, if its gain shall be judged."""
        step = None if self._region is None else self._region.probe()
        return None if step is None else step / self._config.noise

    def judge(self, gain: float) -> dict[str, float]:
        """Trusts the next step more or less, by the gain of the `probe`; returns its length, as `radius`."""
        assert self._region is not None
        self._region.judge(gain)
        return {"radius": float(self._region.radius.numpy())}

    def update(self, directions: np.ndarray, gains: np.ndarray) -> dict[str, float]:
        """Follows the gradient that `gains` `[N]` of `directions` `[N, D]` estimate.

        Returns:
          `gradient_norm`; nothing without directions.
        """
        if not len(gains):
            return {}
        gradient = centred_ranks(gains).astype(np.float32) @ directions / (len(gains) * self._config.noise)
        # Optimisers descend.
        downhill = [tf.constant(-part) for part in self._parts(gradient)]
        self._optimizer.apply_gradients(zip(downhill, self._actor.trainable_weights, strict=True))
        self.average.add()
        return {"gradient_norm": float(np.linalg.norm(gradient))}

    def _values(self) -> list[np.ndarray]:
        return [variable.numpy() for variable in self._actor.trainable_weights]

    def _parts(self, flat: np.ndarray) -> list[np.ndarray]:
        """`[D]` in the shapes of the variables."""
        shapes = [tuple(variable.shape) for variable in self._actor.trainable_weights]
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
        return [part.reshape(shape) for part, shape in zip(np.split(flat, ends[:-1]), shapes, strict=True)]


class AntitheticPairs(CollectionPolicy):
    """For each module, pairs of rollouts: along a direction, and against it.

    Attributes:
      directions: those drawn so far, `[D]` each.
      has_probe: whether the first of them is not random, but the search's `probe`, which all modules try.
    """

    min_decided = 2

    def __init__(self, context: TrainingContext, search: WeightSearch, modules_per_direction: int):
        self.settings = context.rollout_settings()
        self.directions: list[np.ndarray] = []
        self._context = context
        self._search = search
        self._modules_per_direction = modules_per_direction
        self._num_modules = 0
        self._policies: list[Policy] = []
        self._places: dict[Policy, tuple[int, int]] = {}
        probe = search.probe()
        self.has_probe = probe is not None
        self._probing = [] if probe is None else self._pair(probe)

    def policies(self, module: Module, rng: np.random.Generator) -> Sequence[Policy]:
        del module
        if self._num_modules % self._modules_per_direction == 0:
            self._policies = list(self._probing)
            while len(self._policies) < self._context.config.rollouts_per_module:
                self._policies += self._pair(self._search.direction(rng))
        self._num_modules += 1
        return self._policies

    def gains(self, groups: Sequence[Group]) -> dict[int, float]:
        """The gains of directions, by their places in `directions`.

        Those of which no pair is complete, because a rollout failed or had no decisions, are absent.
        """
        differences: defaultdict[int, list[float]] = defaultdict(list)
        for group in groups:
            rewards: defaultdict[int, dict[int, float]] = defaultdict(dict)
            for attempt, reward in zip(group.attempts, group.rewards(self._context.problem), strict=True):
                place, sign = self._places[attempt.policy]
                rewards[place][sign] = float(reward)
            for place, by_sign in rewards.items():
                if len(by_sign) == 2:
                    differences[place].append(by_sign[1] - by_sign[-1])
        return {place: float(np.mean(found)) for place, found in sorted(differences.items())}

    def _pair(self, direction: np.ndarray) -> list[Policy]:
        """The policies along a direction and against it."""
        policies: list[Policy] = []
        for sign in (1, -1):
            policy = self._context.problem.decision.policy(self._search.moved(sign * direction))
            self._places[policy] = len(self.directions), sign
            policies.append(policy)
        self.directions.append(direction)
        return policies


class ES(Algorithm):
    """Evolution strategies in the training loop."""

    description = "evolution strategies over the weights of a network"
    log_metrics = (("gain_size", "mean difference of a pair", ".3%"), ("directions", "directions", ".0f"))

    def __init__(self, context: TrainingContext, config: ESConfig):
        """Raises PolicyError if the policy to start from does not suit the settings."""
        self._context = context
        self._config = config
        self._search = WeightSearch(context.head, context.action_name, context.network, config, context.config.seed)
        start = context.warm_start_weights()
        if start is not None:
            self._search.average.warm_start(start)
        self._pairs = AntitheticPairs(context, self._search, config.modules_per_direction)

    def collection_policy(self) -> CollectionPolicy:
        self._pairs = AntitheticPairs(self._context, self._search, self._config.modules_per_direction)
        return self._pairs

    def learn(self, groups: Sequence[Group], rng: np.random.Generator, progress: float) -> dict[str, float]:
        del rng, progress
        found = self._pairs.gains(groups)
        metrics: dict[str, float] = {}
        if self._pairs.has_probe and 0 in found:
            metrics = self._search.judge(found.pop(0))
        if not found:
            return {**metrics, "directions": 0.0}
        gains = np.array(list(found.values()))
        metrics |= self._search.update(np.stack([self._pairs.directions[place] for place in found]), gains)
        return {**metrics, "gain_size": float(np.abs(gains).mean()), "directions": float(len(gains))}

    def policy(self) -> NetworkWeights:
        return self._search.average.weights()

    def checkpointed(self) -> dict[str, Any]:
        return self._search.checkpointed()
