"""The head of `Continuous`.

Legend: N decisions, F features.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from tf_agents.networks import network
from tf_agents.specs import tensor_spec

from compiler_opt.policies.weights import NetworkConfig, NetworkWeights
from compiler_opt.spaces.distributions import gaussian_log_density, learnable_log_deviation, mean_and_log_deviation
from compiler_opt.spaces.heads import networks
from compiler_opt.spaces.heads.head import Head
from compiler_opt.spaces.learned_policy import outputs
from compiler_opt.spaces.quantizer import ActionQuantizer
from compiler_opt.tensor_spec import TensorSpec


class ContinuousHead(Head):
    """A real number from a Gaussian, quantized to advice by `quantizer`; from scalar features of any type."""

    advice_is_float = True

    def __init__(
        self, quantiles: Mapping[str, np.ndarray], quantizer: ActionQuantizer, compiler_features: Sequence[TensorSpec]
    ):
        super().__init__(quantiles, compiler_features)
        self.quantizer = quantizer

    def actions(self, advice: np.ndarray) -> np.ndarray:
        return self.quantizer.to_actions(advice)

    def action_spec(self, action_name: str) -> tensor_spec.BoundedTensorSpec:
        lowest, highest = self.quantizer.lowest, self.quantizer.highest
        return tensor_spec.BoundedTensorSpec((), tf.float32, lowest, highest, action_name)

    def advice_spec(self, action_name: str) -> tensor_spec.BoundedTensorSpec:
        return tensor_spec.BoundedTensorSpec((), tf.float32, 0.0, self.quantizer.largest_advice, action_name)

    def evaluate_actions(
        self, weights: NetworkWeights, observations: Mapping[str, np.ndarray], actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        mean, log_deviation = self._gaussian(weights, observations)
        entropy = log_deviation + 0.5 * np.log(2 * np.pi * np.e)
        return gaussian_log_density(actions, mean, log_deviation), entropy

    def labels(self, observations: Mapping[str, np.ndarray], actions: np.ndarray, smoothing: float) -> np.ndarray:
        """`[N, 2]`: the action, and the logarithm of the standard deviation to explore with."""
        log_deviation = np.full(len(actions), learnable_log_deviation(smoothing))
        return np.stack([actions, log_deviation], axis=-1).astype(np.float32)

    def cloning_loss(self, distribution: tfp.distributions.Distribution, labels: tf.Tensor) -> tf.Tensor:
        # Not the likelihood, which a wide Gaussian would raise without learning the mean.
        return tf.square(distribution.loc - labels[:, 0]) + tf.square(tf.math.log(distribution.scale) - labels[:, 1])

    def cloning_metrics(
        self, weights: NetworkWeights, observations: Mapping[str, np.ndarray], actions: np.ndarray, labels: np.ndarray
    ) -> dict[str, float]:
        """`accuracy` is the share of pairs of decisions that are ordered correctly, ties included."""
        mean, log_deviation = self._gaussian(weights, observations)
        loss = np.square(mean - labels[:, 0]) + np.square(log_deviation - labels[:, 1])
        others = np.random.default_rng(len(actions)).permutation(len(actions))
        advised, decided = (self.quantizer.to_advice(values) for values in (mean, actions))
        expected = np.sign(decided - decided[others])
        return {
            "loss": float(loss.mean()),
            "accuracy": float((np.sign(advised - advised[others]) == expected).mean()),
            "majority_rate": float((expected == 0).mean()),
            "mean_error": float(np.abs(mean - actions).mean()),
            "deviation": float(np.exp(log_deviation).mean()),
        }

    def actor(self, action_name: str, config: NetworkConfig, seed: int) -> network.DistributionNetwork:
        return networks.gaussian_actor(self.observation_spec(), self.action_spec(action_name), config, seed)

    def advice(self, outputs: tf.Tensor, observations: Mapping[str, tf.Tensor], margin: float) -> tf.Tensor:
        del observations, margin
        quantizer = self.quantizer
        # In this order, float32 is exact if there are a power of two steps, and an even number of them below 0.
        steps = tf.round(outputs[..., 0] * quantizer.steps) - quantizer.lowest * quantizer.steps
        return tf.clip_by_value(steps, 0.0, float(quantizer.largest_advice))

    def _gaussian(
        self, weights: NetworkWeights, observations: Mapping[str, np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        return mean_and_log_deviation(outputs(weights, observations[networks.RANKS]))
