"""What the learners of networks share: network, optimiser, moving average of weights, and training over minibatches.

Legend: N examples, S minibatches, B examples of each.
"""

import abc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tf_agents.agents import tf_agent
from tf_agents.networks import network

from compiler_opt.export.saved_model import save_policy
from compiler_opt.policies.weights import NetworkConfig, NetworkWeights
from compiler_opt.rl.config import POLICY_DIR, LearnerConfig
from compiler_opt.rl.sampled_decisions import Batch
from compiler_opt.rl.unfinished_policy import link_policy
from compiler_opt.spaces.action_space import ActionSpace
from compiler_opt.spaces.heads import networks
from compiler_opt.spaces.heads.head import Head
from compiler_opt.tensor_spec import TensorSpec

SEEDS_PER_NETWORK = 100
"""More than the layers of a network, each of which has its own seed."""


def correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Of `[N]` and `[N]`; 0 if it is undefined."""
    if len(one) < 2 or one.std() == 0 or other.std() == 0:
        return 0.0
    return float(np.corrcoef(one, other)[0, 1])


def minibatch_order(count: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """Minibatches of `size` of the indices 0 to `count` - 1 in random order, `[S, B]`; of fewer, all in one.

    Drops the incomplete last minibatch; reshuffling varies what is dropped.
    """
    size = min(size, count)
    return rng.permutation(count)[: count // size * size].reshape(-1, size)


def gradient_steps(
    loss: Callable[[tf.Tensor], tf.Tensor],
    order: tf.Tensor,
    optimizer: tf.keras.optimizers.Optimizer,
    variables: Sequence[tf.Variable],
    weight_decay: float = 0.0,
) -> tf.Tensor:
    """Minimises the loss of indices `[B]`, in a step for each minibatch of `order`, `[S, B]`; part of a `tf.function`.

    With `weight_decay`, also half the squared norm of the kernels times it; then, kernels and biases have to alternate.

    Returns:
      the mean loss before each step, without the decay.
    """

    def step(total: tf.Tensor, indices: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            value = loss(indices)
            norm = tf.add_n([tf.nn.l2_loss(kernel) for kernel in variables[0::2]]) if weight_decay else 0.0
            minimised = value + weight_decay * norm
        optimizer.apply_gradients(zip(tape.gradient(minimised, variables), variables, strict=True))
        return total + value

    return tf.foldl(step, order, initializer=tf.constant(0.0)) / tf.cast(tf.shape(order)[0], tf.float32)


def save_run_policy(
    root_dir: Path,
    weights: NetworkWeights,
    space: ActionSpace,
    action_name: str,
    compiler_features: Sequence[TensorSpec],
) -> Path:
    """Saves the policy of a run into its folder, see `save_policy`; returns the policy's folder.

    Also links to it by the name that google/ml-compiler-opt gives it.

    Raises:
      OutputError: the folder cannot be written.
    """
    policy_dir = root_dir / POLICY_DIR
    save_policy(policy_dir, weights, space, action_name, compiler_features)
    link_policy(root_dir)
    return policy_dir


class AveragedWeights:
    """The exponential moving average of an actor's weights, which decides better than the weights of any one step.

    Attributes:
      variables: the averages, in the order of the actor's variables; for checkpoints.
    """

    def __init__(self, head: Head, actor: network.DistributionNetwork, decay: float):
        """Starts from the actor's current weights; each `add` keeps `decay` of the average before it."""
        self._head = head
        self._actor = actor
        self._average = tf.train.ExponentialMovingAverage(decay)
        self.add()
        self.variables = [self._average.average(variable) for variable in actor.trainable_weights]

    def add(self) -> None:
        """Adds the actor's current weights."""
        self._average.apply(self._actor.trainable_weights)

    def warm_start(self, weights: NetworkWeights) -> None:
        """Loads a policy's weights into the actor and restarts from them. Raises PolicyError if their shapes differ."""
        networks.assign(self._actor, weights)
        for mean, variable in zip(self.variables, self._actor.trainable_weights, strict=True):
            mean.assign(variable)

    def weights(self) -> NetworkWeights:
        """The average, in the form that decides."""
        return self._head.to_weights(self._actor, [variable.numpy() for variable in self.variables])


class NetworkLearner(abc.ABC):
    """Owns a policy network, and an agent of TF-Agents that trains it with Adam; a subclass adds the loss.

    Attributes:
      actor: the policy network.
      optimizer: of all networks.
      average: the moving average of the policy's weights over iterations.
      agent: has the loss; a subclass makes it, and calls `_train_by`.
    """

    agent: tf_agent.TFAgent

    def __init__(
        self,
        head: Head,
        action_name: str,
        network: NetworkConfig,
        config: LearnerConfig,
        seed: int,
        start: NetworkWeights | None,
        epsilon: float = 1e-7,
    ):
        """Begins with the weights `start`, or random ones; `epsilon` is Adam's.

        Raises:
          PolicyError: `start` has another shape.
        """
        self._head = head
        self._network = network
        self._learning_rate = config.learning_rate
        self.actor = head.actor(action_name, network, seed)
        self.optimizer = tf.keras.optimizers.Adam(config.learning_rate, epsilon=epsilon)
        self.average = AveragedWeights(head, self.actor, config.averaging)
        if start is not None:
            self.average.warm_start(start)

    def _train_by(self, agent: tf_agent.TFAgent, variables: Sequence[tf.Variable]) -> None:
        """Initialises the agent, whose loss trains these variables."""
        self.agent = agent
        agent.initialize()
        # Creates the optimiser's slots before the first step, so that a checkpoint can restore them.
        self.optimizer.build(variables)

    @abc.abstractmethod
    def update(self, batch: Batch, rng: np.random.Generator) -> dict[str, float]:
        """Learns from decisions, those of each rollout in order; returns metrics, none for an empty batch."""

    def checkpointed(self) -> dict[str, Any]:
        """TensorFlow objects to checkpoint."""
        return {"agent": self.agent, "optimizer": self.optimizer, "average": self.average.variables}

    def set_learning_rate(self, share: float) -> None:
        """Sets it to a share of the configured rate."""
        self.optimizer.learning_rate.assign(self._learning_rate * share)

    @property
    def temperature(self) -> float:
        """Of the softmax from which the next rollouts sample."""
        return 1.0

    def weights(self) -> NetworkWeights:
        """The policy of the next rollouts."""
        return self._head.to_weights(self.actor)
