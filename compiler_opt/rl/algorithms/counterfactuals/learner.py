"""Learning the gains of counterfactuals: one decision of each function is changed, and the module compiled again.

Legend: N samples, F inputs, K counterfactual rollouts, S steps, B samples of a minibatch.

    compile a module as the policy decides                                              # the score of each function
    K times: change one decision of each function to another candidate; compile again
    regress: score(other candidate) - score(policy's candidate) = what the function gained
    from now on, decide for the candidate with the highest score

Policy iteration by rollouts (Bertsekas, *Rollout Algorithms*, 1997; Lagoudakis and Parr, *Reinforcement Learning as
Classification*, 2003), with one network for all decisions. Nothing but that one decision changes a function's score, so
a compilation yields as many samples as the module has functions; where many decisions of a function are drawn at random
at once, the effect of each drowns in those of the others. Samples stay valid for long, so they are kept and replayed.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.rl.algorithms.counterfactuals import CounterfactualsConfig
from compiler_opt.rl.algorithms.counterfactuals.samples import Samples
from compiler_opt.rl.averages import AveragedWeights
from compiler_opt.spaces.heads import networks
from compiler_opt.spaces.heads.masked_categorical import MaskedCategoricalHead
from compiler_opt.spaces.network_config import NetworkConfig

_STEPS_TO_AVERAGE = 20
"""Gradient steps between two that the average of the weights takes in."""


def log_gain(before: float, after: float, offset: float, largest: float) -> float:
    """What a function gained when its score went from `before` to `after`: the logarithm of their ratio.

    A ratio, since functions differ by orders of magnitude; a logarithm, since twice the score is to outweigh half of
    it. `offset` is added to both: of a function that costs next to nothing, even half is not much.
    """
    return float(np.clip(np.log((before + offset) / (after + offset)), -largest, largest))


class GainLearner:
    """Owns the network, the optimiser and the average of the weights."""

    def __init__(
        self,
        kind: MaskedCategoricalHead,
        action_name: str,
        network: NetworkConfig,
        config: CounterfactualsConfig,
        seed: int,
    ):
        self._kind = kind
        self._config = config
        self.actor = kind.actor(action_name, network, seed)
        self.optimizer = tf.keras.optimizers.Adam(config.learning_rate)
        self.optimizer.build(self.actor.trainable_weights)
        self._average = AveragedWeights(kind, self.actor, config.averaging)
        self._has_learned = tf.Variable(False)
        self._many_steps = tf.function(self._train_many, reduce_retracing=True, autograph=False)

    def checkpointed(self) -> dict[str, Any]:
        """What a checkpoint must keep."""
        return {
            "actor": self.actor,
            "optimizer": self.optimizer,
            "average": self._average.variables,
            "has_learned": self._has_learned,
        }

    def set_learning_rate(self, share: float) -> None:
        """Sets it to a share of what was configured."""
        self.optimizer.learning_rate.assign(self._config.learning_rate * share)

    def warm_start(self, weights: NetworkWeights) -> None:
        """Decides as that policy does until there is something to learn from; its network is not continued.

        Raises:
          PolicyError: its shape is not ours.
        """
        actor = networks.to_weights(self.actor, self._kind.features, self._kind.quantiles)
        networks.assign(self.actor, weights)
        self._average.restart()
        networks.assign(self.actor, actor)

    def averaged_weights(self) -> NetworkWeights:
        """What decides: the mean over the last steps."""
        return self._average.weights()

    def update(self, samples: Samples, margin: float, steps: int, rng: np.random.Generator) -> dict[str, float]:
        """Learns from samples, drawn again and again.

        Args:
          samples: all there are.
          margin: what leaving the default must promise.
          steps: how many gradient steps.
          rng: what draws.

        Returns:
          `loss`; `gain_correlation`, the correlation of what the network expects and what the samples say.
        """
        size = min(self._config.minibatch_size, len(samples))
        targets = samples.gains - margin * self._leaves_default(samples)
        tensors = tf.constant(samples.positions), tf.constant(targets)
        losses = []
        for start in range(0, steps, _STEPS_TO_AVERAGE):
            order = rng.integers(len(samples), size=(min(_STEPS_TO_AVERAGE, steps - start), size))
            losses.append(float(self._many_steps(*tensors, tf.constant(order))))
            if not self._has_learned:
                # What decided so far was another network.
                self._has_learned.assign(True)
                self._average.restart()
            self._average.add()
        return {"loss": float(np.mean(losses)), "gain_correlation": self.gain_correlation(samples, margin)}

    def gain_correlation(self, samples: Samples, margin: float) -> float:
        """Correlation of gains and what the network expects of them; 0 where there is none."""
        expected = self.expected_gains(samples.positions) + margin * self._leaves_default(samples)
        if len(samples) < 2 or expected.std() == 0 or samples.gains.std() == 0:
            return 0.0
        return float(np.corrcoef(expected, samples.gains)[0, 1])

    def expected_gains(self, positions: np.ndarray) -> np.ndarray:
        """`[N, 2, F]` to `[N]` float32, as the network is now."""
        scores = self.actor.outputs(tf.constant(positions))[..., 0]
        result: np.ndarray = (scores[:, 1] - scores[:, 0]).numpy()
        return result

    def _leaves_default(self, samples: Samples) -> np.ndarray:
        """`[N]` float32: 1 where what was tried leaves the default's choice, -1 where it comes back to it, else 0."""
        default = self._kind.inputs.default_input
        if default is None:
            return np.zeros(len(samples), np.float32)
        is_default = samples.positions[:, :, self._kind.features.index(default)]
        result: np.ndarray = np.sign(is_default[:, 0] - is_default[:, 1]).astype(np.float32)
        return result

    def _train_many(self, positions: tf.Tensor, targets: tf.Tensor, order: tf.Tensor) -> tf.Tensor:
        """`[N, 2, F]`, `[N]` and `[S, B]` to the mean loss of S steps."""

        def step(total: tf.Tensor, batch: tf.Tensor) -> tf.Tensor:
            return total + self._train_step(tf.gather(positions, batch), tf.gather(targets, batch))

        total: tf.Tensor = tf.foldl(step, order, initializer=tf.constant(0.0))
        return total / tf.cast(tf.shape(order)[0], tf.float32)

    def _train_step(self, positions: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        """`[B, 2, F]` and `[B]` to the loss before the step."""
        config = self._config
        variables = self.actor.trainable_variables
        with tf.GradientTape() as tape:
            scores = self.actor.outputs(positions)[..., 0]
            # Squares: rare great losses are to count as what they cost on average.
            loss = tf.reduce_mean(tf.square(scores[:, 1] - scores[:, 0] - targets))
            penalty = config.weight_decay * tf.add_n([tf.nn.l2_loss(variable) for variable in variables[0::2]])
            total = loss + penalty
        self.optimizer.apply_gradients(zip(tape.gradient(total, variables), variables, strict=True))
        return loss
