"""Learning the gains of counterfactuals: one decision of each function is changed, and the module compiled again.

Legend: N samples, F inputs of a candidate, K counterfactual rollouts, S gradient steps, B samples of a minibatch.

    compile a module under the policy                                                   # the score of each function
    K times: change one decision of each function to another candidate; compile again
    regress: output(other candidate) - output(policy's candidate) = the function's gain
    from now on, choose the candidate with the highest output

Policy iteration by rollouts (Bertsekas, *Rollout Algorithms*, 1997; Lagoudakis and Parr, *Reinforcement Learning as
Classification*, 2003), with one network for all decisions. Only that one decision changes a function's score, so a
compilation yields as many samples as the module has functions; if many decisions of a function were sampled at once,
the effect of each would drown in those of the others. Samples stay valid for long, so they are kept and replayed.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from compiler_opt.policies.weights import NetworkConfig, NetworkWeights
from compiler_opt.rl.algorithms.counterfactuals import CounterfactualsConfig
from compiler_opt.rl.learner import AveragedWeights, correlation, gradient_steps
from compiler_opt.spaces.heads import networks
from compiler_opt.spaces.heads.categorical import MaskedCategoricalHead

_STEPS_TO_AVERAGE = 20
"""Gradient steps between two updates of the moving average of the weights."""


@dataclasses.dataclass(frozen=True)
class Samples:
    """The gains of N counterfactuals.

    Attributes:
      ranks: `[N, 2, F]` float32, quantile ranks of the candidate that the policy chose and of the other one.
      gains: `[N]` float32, the function's gain from the other candidate, see `log_gain`.
    """

    ranks: np.ndarray
    gains: np.ndarray

    def __len__(self) -> int:
        return len(self.gains)

    def take(self, indices: np.ndarray) -> "Samples":
        return Samples(self.ranks[indices], self.gains[indices])

    @classmethod
    def from_rows(cls, rows: Mapping[str, np.ndarray]) -> "Samples":
        """The samples of a `Replay`."""
        return cls(rows["positions"], rows["gains"])

    def rows(self) -> dict[str, np.ndarray]:
        """The samples for a `Replay`."""
        return {"positions": self.ranks, "gains": self.gains}

    @classmethod
    def concatenate(cls, parts: Sequence["Samples"]) -> "Samples":
        if not parts:
            return cls(np.empty((0, 2, 0), np.float32), np.empty(0, np.float32))
        return cls(np.concatenate([part.ranks for part in parts]), np.concatenate([part.gains for part in parts]))


def log_gain(before: float, after: float, offset: float, largest: float) -> float:
    """A function's gain when its score goes from `before` to `after`: the logarithm of their ratio, within `largest`.

    A ratio, because functions differ by orders of magnitude; its logarithm, so that doubling and halving a score cancel
    out. `offset` is added to both scores, because even half of a tiny score is not much.
    """
    return float(np.clip(np.log((before + offset) / (after + offset)), -largest, largest))


class GainLearner:
    """Owns the network and the optimiser.

    Attributes:
      average: the moving average of the weights, which decides.
    """

    def __init__(
        self,
        head: MaskedCategoricalHead,
        action_name: str,
        network: NetworkConfig,
        config: CounterfactualsConfig,
        seed: int,
    ):
        self._head = head
        self._config = config
        self.actor = head.actor(action_name, network, seed)
        self.optimizer = tf.keras.optimizers.Adam(config.learning_rate)
        self.optimizer.build(self.actor.trainable_weights)
        self.average = AveragedWeights(head, self.actor, config.averaging)
        self._has_learned = tf.Variable(False)
        self._many_steps = tf.function(self._train_many, reduce_retracing=True, autograph=False)

    def checkpointed(self) -> dict[str, Any]:
        """TensorFlow objects to checkpoint."""
        return {
            "actor": self.actor,
            "optimizer": self.optimizer,
            "average": self.average.variables,
            "has_learned": self._has_learned,
        }

    def set_learning_rate(self, share: float) -> None:
        """Sets it to a share of the configured rate."""
        self.optimizer.learning_rate.assign(self._config.learning_rate * share)

    def warm_start(self, weights: NetworkWeights) -> None:
        """Decides like that policy until the first update, which starts from initial weights all the same.

        Raises:
          PolicyError: the policy's network has another shape.
        """
        initial = self._head.to_weights(self.actor)
        self.average.warm_start(weights)
        networks.assign(self.actor, initial)

    def update(self, samples: Samples, margin: float, steps: int, rng: np.random.Generator) -> dict[str, float]:
        """Learns from minibatches of samples.

        Args:
          samples: all samples.
          margin: expected gain over which to depart from the default's choice.
          steps: number of gradient steps.
          rng: source of random numbers.

        Returns:
          `loss` and `gain_correlation`, see there.
        """
        size = min(self._config.minibatch_size, len(samples))
        targets = samples.gains - margin * self._leaves_default(samples)
        tensors = tf.constant(samples.ranks), tf.constant(targets)
        losses = []
        for start in range(0, steps, _STEPS_TO_AVERAGE):
            order = rng.integers(len(samples), size=(min(_STEPS_TO_AVERAGE, steps - start), size))
            losses.append(float(self._many_steps(*tensors, tf.constant(order))))
            if not self._has_learned:
                # Before, the average was that of the warm start.
                self._has_learned.assign(True)
                self.average.restart()
            self.average.add()
        return {"loss": float(np.mean(losses)), "gain_correlation": self.gain_correlation(samples, margin)}

    def gain_correlation(self, samples: Samples, margin: float) -> float:
        """Correlation of observed and expected gains; 0 if it is undefined."""
        scores = self.actor.outputs(tf.constant(samples.ranks))[..., 0]
        expected = (scores[:, 1] - scores[:, 0]).numpy() + margin * self._leaves_default(samples)
        return correlation(expected, samples.gains)

    def _leaves_default(self, samples: Samples) -> np.ndarray:
        """`[N]` float32: 1 for counterfactuals that leave the default's choice, -1 for those that return to it."""
        default = self._head.inputs.default_input
        if default is None:
            return np.zeros(len(samples), np.float32)
        is_default = samples.ranks[:, :, self._head.features.index(default)]
        result: np.ndarray = np.sign(is_default[:, 0] - is_default[:, 1]).astype(np.float32)
        return result

    def _train_many(self, ranks: tf.Tensor, targets: tf.Tensor, order: tf.Tensor) -> tf.Tensor:
        """Ranks `[N, 2, F]`, targets `[N]` and indices `[S, B]` to the mean loss before the steps."""

        def loss(batch: tf.Tensor) -> tf.Tensor:
            scores = self.actor.outputs(tf.gather(ranks, batch))[..., 0]
            # Squared errors estimate the mean gain, in which rare large losses count in full.
            return tf.reduce_mean(tf.square(scores[:, 1] - scores[:, 0] - tf.gather(targets, batch)))

        return gradient_steps(loss, order, self.optimizer, self.actor.trainable_variables, self._config.weight_decay)
