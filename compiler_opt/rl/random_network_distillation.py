"""An exploration bonus for decisions that lead to new observations: random network distillation.

Legend: N decisions of an iteration, E elements of an embedding.

    distillation = RandomNetworkDistillation(head, config, seed)
    batch, metrics = distillation.with_bonus(batch, rng)    # in each iteration; what it saw is less new from then on

A fixed network with random weights embeds each observation, and another one learns to predict the embedding. Where it
is wrong, the observation is new. Each decision is rewarded for the novelty of those that follow it in its rollout,
which it may have brought about, but not for its own: that is the same whatever is decided.

Source: Burda et al., *Exploration by Random Network Distillation*, 2018. There, the novelty of an episode is divided by
its moving deviation, so that the bonus never ends; here by its mean in the first iteration, so that it fades.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from compiler_opt.rl.config import RandomNetworkDistillationConfig
from compiler_opt.rl.learner import SEEDS_PER_NETWORK, gradient_steps, minibatch_order
from compiler_opt.rl.sampled_decisions import Batch
from compiler_opt.spaces.heads.head import Head

_HIDDEN = 64
_ELEMENTS = 32
_MINIBATCH = 1024


class RandomNetworkDistillation:
    """Owns both networks, and the optimiser of the one that learns."""

    def __init__(self, head: Head, config: RandomNetworkDistillationConfig, seed: int):
        """`seed`: of both networks' weights."""
        self._config = config
        self._fixed, self._learning = (_Embedding(head, seed + place * SEEDS_PER_NETWORK) for place in (2, 3))
        self._first = tf.Variable(0.0, name="first_novelty")  # the mean of the first iteration
        self._optimizer = tf.keras.optimizers.Adam(config.learning_rate)
        self._optimizer.build(self._learning.trainable_variables)
        self._learn = tf.function(self._losses, autograph=False, reduce_retracing=True)

    def checkpointed(self) -> dict[str, Any]:
        """TensorFlow objects to checkpoint; the fixed network depends on the seed only."""
        return {"novelty": self._learning, "novelty_optimizer": self._optimizer, "first_novelty": self._first}

    def with_bonus(self, batch: Batch, rng: np.random.Generator) -> tuple[Batch, dict[str, float]]:
        """The batch with the bonus in its advantages; afterwards, its observations are less new.

        Returns:
          the batch, and as `novelty` the mean over its observations, in means of the first iteration; nothing for an
          empty batch.
        """
        if not len(batch):
            return batch, {}
        observations = {name: tf.constant(values) for name, values in batch.observations.items()}
        novelty = self._errors(observations).numpy().astype(np.float64)
        if not self._first.numpy():
            self._first.assign(max(novelty.mean(), np.finfo(np.float32).tiny))
        novelty /= self._first.numpy()
        later = discounted_later(novelty, batch.is_last, self._config.discount)
        # Neither gain nor loss for what is last.
        expected = np.nanmean(later) if np.isfinite(later).any() else 0.0
        bonus = self._config.weight * np.nan_to_num(later - expected)
        self._learn(observations, tf.constant(minibatch_order(len(batch), _MINIBATCH, rng)))
        advantages = (batch.advantages + bonus).astype(np.float32)
        return dataclasses.replace(batch, advantages=advantages), {"novelty": float(novelty.mean())}

    def _losses(self, observations: Mapping[str, tf.Tensor], order: tf.Tensor) -> tf.Tensor:
        """A gradient step for each minibatch `[S, B]` of indices."""

        def loss(indices: tf.Tensor) -> tf.Tensor:
            return tf.reduce_mean(
                self._errors({name: tf.gather(values, indices) for name, values in observations.items()})
            )

        return gradient_steps(loss, order, self._optimizer, self._learning.trainable_variables)

    def _errors(self, observations: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """The novelty of each observation, `[N]` float32."""
        difference = self._learning(observations) - tf.stop_gradient(self._fixed(observations))
        return tf.reduce_mean(tf.square(difference), axis=-1)


def discounted_later(novelty: np.ndarray, is_last: Sequence[bool] | np.ndarray, discount: float) -> np.ndarray:
    """The mean novelty of the decisions after each one in its rollout, `[N]`, with weights `discount ** distance`.

    NaN for the last decision of a rollout.
    """
    total, weight = np.zeros(len(novelty)), np.zeros(len(novelty))
    for place in range(len(novelty) - 2, -1, -1):
        if not is_last[place]:
            total[place] = novelty[place + 1] + discount * total[place + 1]
            weight[place] = 1 + discount * weight[place + 1]
    return np.divide(total, weight, out=np.full(len(novelty), np.nan), where=weight > 0)


class _Embedding(tf.Module):
    """An observation to `[N, E]` float32."""

    def __init__(self, head: Head, seed: int):
        super().__init__()
        self._encoding = head.encoding()
        hidden, last = (tf.keras.initializers.GlorotUniform(seed + layer) for layer in range(2))
        self._layers = [
            tf.keras.layers.Dense(_HIDDEN, activation="relu", kernel_initializer=hidden),
            tf.keras.layers.Dense(_ELEMENTS, kernel_initializer=last),
        ]
        # Makes the variables.
        self({name: tf.zeros((1, *spec.shape), spec.dtype) for name, spec in head.observation_spec().items()})

    def __call__(self, observations: Mapping[str, tf.Tensor]) -> tf.Tensor:
        activations = self._encoding(observations)
        for layer in self._layers:
            activations = layer(activations)
        return activations
