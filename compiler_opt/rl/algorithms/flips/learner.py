"""Learning what flips save.

Legend: N flips or decisions, F features, S gradient steps, B flips of a minibatch.

    regress, with several networks: logit(inline) - logit(do not) = bytes saved by inlining / largest_gain_bytes
    regress, with one network: the same difference = the mean of theirs
    scale its last layer: logit(inline) - logit(do not) = bytes saved by inlining / bytes_per_logit

A policy that decides by it is one step of policy iteration (Lagoudakis and Parr, *Reinforcement Learning as
Classification*, 2003); a margin in its logits is one in bytes. Errors are squared, so the mean gain is estimated, in
which rare large losses count in full up to `largest_gain_bytes`.
"""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from compiler_opt.collect.flip_store import Flips
from compiler_opt.corpus.sampling import project_weights
from compiler_opt.policies.weights import NetworkConfig, NetworkWeights
from compiler_opt.rl.algorithms.flips import FlipsConfig
from compiler_opt.rl.learner import SEEDS_PER_NETWORK, correlation, gradient_steps
from compiler_opt.spaces.heads.head import Head

_STEPS_AT_ONCE = 50


@dataclasses.dataclass(frozen=True)
class Samples:
    """N decisions and what inlining saves there.

    Attributes:
      observations: `[N, F]` int64.
      saved: `[N]` float32, -1 to 1, where 1 is `largest_gain_bytes`.
      weights: `[N]` float32, 1 in the mean.
    """

    observations: np.ndarray
    saved: np.ndarray
    weights: np.ndarray

    @classmethod
    def of(cls, parts: Sequence[Flips], config: FlipsConfig) -> "Samples":
        """The samples of all flips; there is at least one."""
        projects = [flips.projects[owner] for flips in parts for owner in flips.owners.tolist()]
        by_project = project_weights(Counter(projects), config.project_balance)
        inlining = np.concatenate([np.where(flips.actions == 1, flips.gains, -flips.gains) for flips in parts])
        bounded = np.clip(inlining, -config.largest_gain_bytes, config.largest_gain_bytes)
        return cls(
            np.concatenate([flips.observations for flips in parts]),
            (bounded / config.largest_gain_bytes).astype(np.float32),
            np.array([by_project[project] for project in projects], np.float32),
        )

    def __len__(self) -> int:
        return len(self.saved)


class SavingsLearner:
    """Trains networks of one shape."""

    def __init__(self, head: Head, action_name: str, network: NetworkConfig, config: FlipsConfig):
        self._head, self._action_name, self._network, self._config = head, action_name, network, config

    def learn(self, samples: Samples, seed: int) -> tuple[NetworkWeights, dict[str, float]]:
        """The policy, and `loss`, `saved_correlation` (of samples) and `distilled_correlation` of it."""
        actors, losses = [], []
        for index in range(self._config.networks):
            actor, loss = self._trained(samples, self._config.weight_decay, seed + SEEDS_PER_NETWORK * index)
            actors.append(actor)
            losses.append(loss)
        saved = np.mean([self._saved(actor, samples.observations) for actor in actors], axis=0)
        metrics = {"loss": float(np.mean(losses)), "saved_correlation": correlation(saved, samples.saved)}
        if len(actors) > 1:
            distilled = dataclasses.replace(samples, saved=saved, weights=np.ones_like(saved))
            actors[0], _ = self._trained(distilled, 0.0, seed)
        metrics["distilled_correlation"] = correlation(self._saved(actors[0], samples.observations), saved)
        scale = self._config.largest_gain_bytes / self._config.bytes_per_logit
        return self._head.to_weights(actors[0]).scaled(scale), metrics

    def _trained(self, samples: Samples, weight_decay: float, seed: int) -> tuple[Any, float]:
        """An actor, and its loss in the last steps."""
        config, rng = self._config, np.random.default_rng(seed)
        actor = self._head.actor(self._action_name, self._network, seed)
        size = min(config.minibatch_size, len(samples))
        num_steps = -(-config.num_epochs * len(samples) // size)
        schedule = tf.keras.optimizers.schedules.CosineDecay(config.learning_rate, num_steps, 0.02)
        optimizer = tf.keras.optimizers.Adam(schedule)
        optimizer.build(actor.trainable_weights)
        columns = self._columns(samples.observations)
        saved, weights = tf.constant(samples.saved), tf.constant(samples.weights)

        def loss(batch: tf.Tensor) -> tf.Tensor:
            found = _difference(actor, {name: tf.gather(column, batch) for name, column in columns.items()})
            return tf.reduce_mean(tf.gather(weights, batch) * tf.square(found - tf.gather(saved, batch)))

        @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int64)], autograph=False)
        def train(order: tf.Tensor) -> tf.Tensor:
            return gradient_steps(loss, order, optimizer, actor.trainable_variables, weight_decay)

        last = 0.0
        for start in range(0, num_steps, _STEPS_AT_ONCE):
            order = rng.integers(len(samples), size=(min(_STEPS_AT_ONCE, num_steps - start), size))
            last = float(train(tf.constant(order)))
        return actor, last

    def _columns(self, observations: np.ndarray) -> dict[str, tf.Tensor]:
        features = {name: observations[:, index] for index, name in enumerate(self._head.features)}
        return {name: tf.constant(values) for name, values in self._head.observe(features).items()}

    def _saved(self, actor: Any, observations: np.ndarray) -> np.ndarray:
        """`[N]` float32, as `Samples.saved`."""
        parts = [
            _difference(actor, self._columns(observations[start : start + 8192])).numpy()
            for start in range(0, len(observations), 8192)
        ]
        return np.concatenate(parts).astype(np.float32)


def _difference(actor: Any, observation: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """How much larger the logit of inlining is, `[N]`."""
    count = tf.shape(next(iter(observation.values())))[0]
    distribution, _ = actor(observation, step_type=tf.ones(count, tf.int32), network_state=())
    return distribution.logits[:, 1] - distribution.logits[:, 0]
