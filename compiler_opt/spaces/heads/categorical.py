"""The head of discrete action spaces.

Legend: N decisions, F features, A actions to choose from.
"""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from tf_agents.networks import network
from tf_agents.specs import tensor_spec

from compiler_opt.errors import PolicyError
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.distributions import categorical_entropy, log_softmax, smoothed_labels
from compiler_opt.spaces.heads import networks
from compiler_opt.spaces.heads.head import Head
from compiler_opt.spaces.learned_policy import outputs
from compiler_opt.spaces.network_config import NetworkConfig


class CategoricalHead(Head):
    """One of A actions, which are the advice. By default all of them are legal.

    Attributes:
      num_actions: A.
      noop_action: the action that changes nothing: not to inline, to evict nothing.
    """

    num_actions: int
    noop_action: int

    def legal(self, observations: Mapping[str, np.ndarray]) -> np.ndarray:
        """Which actions may be chosen, `[N, A]` bool."""
        return np.ones((len(next(iter(observations.values()))), self.num_actions), bool)

    def logits(self, weights: NetworkWeights, observations: Mapping[str, np.ndarray]) -> np.ndarray:
        """Logits in numpy as the policy will decide, `[N, A]` float64; minus infinity for illegal actions."""
        return outputs(weights, observations[networks.RANKS]).astype(np.float64)

    def actions(self, advice: np.ndarray) -> np.ndarray:
        if len(advice) and (advice.min() < 0 or advice.max() >= self.num_actions):
            raise PolicyError(
                f"expected decisions of 0 to {self.num_actions - 1}, found {advice.min()} to {advice.max()}"
            )
        return advice

    def action_spec(self, action_name: str) -> tensor_spec.BoundedTensorSpec:
        return tensor_spec.BoundedTensorSpec((), tf.int64, 0, self.num_actions - 1, action_name)

    def evaluate_actions(
        self, weights: NetworkWeights, observations: Mapping[str, np.ndarray], actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        log_probs = log_softmax(self.logits(weights, observations))
        return log_probs[np.arange(len(actions)), actions], categorical_entropy(log_probs)

    def distribution_parameters(
        self, observations: Mapping[str, np.ndarray], actions: np.ndarray, log_probs: np.ndarray
    ) -> dict[str, np.ndarray]:
        # The action keeps its probability; the other legal actions share the rest.
        legal = self.legal(observations)
        chosen = np.arange(self.num_actions) == actions[:, np.newaxis]
        others = (legal & ~chosen).sum(axis=-1)
        log_prob = np.where(others > 0, np.minimum(log_probs.astype(np.float64), -1e-9), 0.0)
        with np.errstate(divide="ignore"):
            rest = np.log(-np.expm1(log_prob)) - np.log(np.maximum(others, 1))
        logits = np.where(chosen, log_prob[:, np.newaxis], np.where(legal, rest[:, np.newaxis], networks.ILLEGAL_LOGIT))
        return {"logits": logits}

    def labels(self, observations: Mapping[str, np.ndarray], actions: np.ndarray, smoothing: float) -> np.ndarray:
        return smoothed_labels(actions, self.legal(observations), smoothing)

    def cloning_loss(self, distribution: tfp.distributions.Distribution, labels: tf.Tensor) -> tf.Tensor:
        return tf.nn.softmax_cross_entropy_with_logits(labels, distribution.logits)

    def cloning_metrics(
        self, weights: NetworkWeights, observations: Mapping[str, np.ndarray], actions: np.ndarray, labels: np.ndarray
    ) -> dict[str, float]:
        log_probs = log_softmax(self.logits(weights, observations))
        # The label of an illegal action is 0, and so is its loss.
        loss = -(labels * np.where(labels > 0, log_probs, 0.0)).sum(axis=-1)
        advised = log_probs.argmax(axis=-1)
        return {
            "loss": float(loss.mean()),
            "accuracy": float((advised == actions).mean()),
            "majority_rate": float(np.bincount(actions).max() / len(actions)),
            "advised_rate": float((advised != self.noop_action).mean()),
            "default_rate": float((actions != self.noop_action).mean()),
        }

    def actor(self, action_name: str, config: NetworkConfig, seed: int) -> network.DistributionNetwork:
        return networks.categorical_actor(self.observation_spec(), self.action_spec(action_name), config, seed)

    def advice(self, distribution: tfp.distributions.Distribution) -> tf.Tensor:
        return tf.argmax(distribution.logits, axis=-1, output_type=tf.int64)
