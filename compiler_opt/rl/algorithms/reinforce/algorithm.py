"""REINFORCE by TF-Agents: sampled rollouts, and one pass over their decisions.

Legend: N decisions.

Each decision is an episode of one step, `[N, 1]`, and its return is its advantage: `collect.advantages` assigns credit
to decisions, so there is no discounting over time. Source: Williams, *Simple Statistical Gradient-Following Algorithms
for Connectionist Reinforcement Learning*, 1992.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tf_agents.agents.reinforce import reinforce_agent
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory

from compiler_opt.collect.advantages import Advantages
from compiler_opt.collect.groups import CollectionPolicy, Group
from compiler_opt.policies.weights import NetworkConfig, NetworkWeights
from compiler_opt.rl.algorithm import Algorithm
from compiler_opt.rl.algorithms.reinforce import ReinforceConfig
from compiler_opt.rl.learning import AveragedWeights
from compiler_opt.rl.pieces import cut, pieces_per_step
from compiler_opt.rl.sampled_decisions import Batch, DecisionSampler
from compiler_opt.rl.training_context import TrainingContext
from compiler_opt.spaces.heads.head import Head


class ReinforceLearner:
    """Owns the networks, the optimiser and the agent.

    Attributes:
      average: the moving average of the policy's weights over iterations.
    """

    def __init__(
        self,
        head: Head,
        action_name: str,
        network: NetworkConfig,
        config: ReinforceConfig,
        seed: int,
        uses_value_network: bool = False,
    ):
        """Begins with random weights; `uses_value_network`: whether its predictions are subtracted from returns."""
        self._head = head
        self._config = config
        self._network = network
        self.actor = head.actor(action_name, network, seed)
        action, observation = head.action_spec(action_name), self.actor.input_tensor_spec
        critic = head.critic(network, seed) if uses_value_network else None
        self.optimizer = tf.keras.optimizers.Adam(config.learning_rate)
        self.agent = reinforce_agent.ReinforceAgent(
            ts.time_step_spec(observation),
            action,
            actor_network=self.actor,
            optimizer=self.optimizer,
            value_network=critic,
            value_estimation_loss_coef=config.value_pred_loss_coef,
            # The default would train the value network by the policy's loss, too.
            advantage_fn=_above_expected if uses_value_network else None,
            # Rewards are a few percent; advantages without a value network have unit variance already.
            normalize_returns=uses_value_network,
            gradient_clipping=config.gradient_clipping,
            entropy_regularization=config.entropy_regularization,
            train_step_counter=tf.Variable(0, dtype=tf.int64, name="train_step"),
        )
        self.agent.initialize()
        column = tf.TensorSpec([None], tf.float32)
        # Traces once for all batch sizes.
        self._train = tf.function(
            self._train_step,
            autograph=False,
            input_signature=[
                {name: tf.TensorSpec([None, *spec.shape], spec.dtype) for name, spec in observation.items()},
                tf.TensorSpec([None], action.dtype),
                column,
                column,
            ],
        )
        self.average = AveragedWeights(head, self.actor, config.averaging)
        # Creates the optimiser's slots before the first step, so that a checkpoint can restore them.
        self.optimizer.build(self.actor.trainable_weights + (critic.trainable_weights if critic is not None else []))

    def checkpointed(self) -> dict[str, Any]:
        """TensorFlow objects to checkpoint."""
        return {"agent": self.agent, "optimizer": self.optimizer, "average": self.average.variables}

    def set_learning_rate(self, share: float) -> None:
        """Sets it to a share of the configured rate."""
        self.optimizer.learning_rate.assign(self._config.learning_rate * share)

    def weights(self) -> NetworkWeights:
        """The policy of the next rollouts."""
        return self._head.to_weights(self.actor)

    def update(self, batch: Batch, rng: np.random.Generator) -> dict[str, float]:
        """Updates the policy from the decisions of one iteration.

        Returns:
          `loss`, the mean over the gradient steps; `gradient_steps`; `entropy` after them. Nothing for an empty batch.
        """
        if not len(batch):
            return {}
        pieces = cut(self.weights(), batch.observations, self._network, rng)
        num_steps = -(-len(pieces) // pieces_per_step(self._config.minibatch_size, self._network))
        losses = []
        for indices in np.array_split(rng.permutation(len(pieces)), num_steps):
            part = pieces.take(batch, indices)
            observations = {name: tf.constant(values) for name, values in part.observations.items()}
            actions = tf.constant(part.actions, self.agent.action_spec.dtype)
            losses.append(float(self._train(observations, actions, part.advantages, part.weights)))
        self.average.add()
        _, entropy = self._head.evaluate_actions(self.weights(), batch.observations, batch.actions)
        return {
            "loss": float(np.mean(losses)),
            "gradient_steps": float(num_steps),
            "entropy": float(np.mean(entropy)),
        }

    def _train_step(
        self, observations: Mapping[str, tf.Tensor], actions: tf.Tensor, advantages: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        """Decisions `[N, ...]` to the loss before the step."""
        episodes = trajectory.single_step(observations, actions, (), advantages, tf.zeros_like(advantages))
        in_time = tf.nest.map_structure(lambda column: column[:, tf.newaxis], episodes)
        return self.agent.train(in_time, weights[:, tf.newaxis]).loss


def _above_expected(returns: tf.Tensor, expected: tf.Tensor) -> tf.Tensor:
    return returns - tf.stop_gradient(expected)


class Reinforce(Algorithm):
    """REINFORCE in the training loop."""

    log_metrics = (("entropy", "entropy", ".3f"), ("loss", "loss", ".3f"))

    def __init__(self, context: TrainingContext, config: ReinforceConfig, advantages: Advantages):
        """Raises PolicyError if the policy to start from does not suit the settings."""
        self.description = f"policy gradient (REINFORCE), {type(advantages).__name__} advantages"
        self._sampler = DecisionSampler(context, advantages, config.project_balance)
        self._max_decisions = config.max_decisions
        self._learner = ReinforceLearner(
            context.head,
            context.action_name,
            context.network,
            config,
            context.config.seed,
            advantages.uses_value_network,
        )
        start = context.warm_start_weights()
        if start is not None:
            self._learner.average.warm_start(start)

    def collection_policy(self) -> CollectionPolicy:
        return self._sampler.collection_policy(self._learner.weights())

    def learn(self, groups: Sequence[Group], rng: np.random.Generator, progress: float) -> dict[str, float]:
        self._learner.set_learning_rate(self._sampler.learning_rate_share(progress))
        return self._learner.update(self._sampler.batch(groups, rng, self._max_decisions), rng)

    def policy(self) -> NetworkWeights:
        return self._learner.average.weights()

    def checkpointed(self) -> dict[str, Any]:
        return self._learner.checkpointed()

    def state(self) -> dict[str, Any]:
        return self._sampler.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        self._sampler.restore(state)
