"""REINFORCE by TF-Agents: sampled rollouts, and one pass over their decisions.

Legend: N decisions.

    loss = -advantage * log p(action) - entropy_regularization * entropy         # the mean over decisions, weighted
    with a value network: advantage = return - value, scaled to unit variance
                          loss += value_pred_loss_coef * (return - value) ** 2

Each decision is an episode of one step, `[N, 1]`, and its return is its advantage: `collect.advantages` assigns credit
to decisions, so there is no discounting over time. Source: Williams, *Simple Statistical Gradient-Following Algorithms
for Connectionist Reinforcement Learning*, 1992.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
from tf_agents.agents.reinforce import reinforce_agent
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory

from compiler_opt.collect.advantages import Advantages
from compiler_opt.collect.groups import Group
from compiler_opt.policies.weights import NetworkConfig, NetworkWeights
from compiler_opt.rl.algorithms.reinforce import ReinforceConfig
from compiler_opt.rl.learner import NetworkLearner
from compiler_opt.rl.sampled_algorithm import SampledAlgorithm
from compiler_opt.rl.sampled_decisions import Batch
from compiler_opt.rl.training_run import TrainingRun
from compiler_opt.rl.truncated_sequences import sequences_per_step, truncate
from compiler_opt.spaces.heads.head import Head


class ReinforceLearner(NetworkLearner):
    """The update of policy and value network."""

    def __init__(
        self,
        head: Head,
        action_name: str,
        network: NetworkConfig,
        config: ReinforceConfig,
        seed: int,
        start: NetworkWeights | None = None,
        *,
        uses_value_network: bool = False,
    ):
        """`uses_value_network`: whether its predictions are subtracted from returns; for the rest, see the base."""
        super().__init__(head, action_name, network, config, seed, start)
        self._config = config
        action, observation = head.action_spec(action_name), self.actor.input_tensor_spec
        critic = head.critic(network, seed) if uses_value_network else None
        agent = reinforce_agent.ReinforceAgent(
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
        self._train_by(agent, self.actor.trainable_weights + (critic.trainable_weights if critic is not None else []))
        observations = {name: tf.TensorSpec([None, *spec.shape], spec.dtype) for name, spec in observation.items()}
        actions, numbers = (tf.TensorSpec([None], dtype) for dtype in (action.dtype, tf.float32))
        # Traces once for all batch sizes.
        signature = [observations, actions, numbers, numbers]
        self._train = tf.function(self._train_step, autograph=False, input_signature=signature)

    def update(self, batch: Batch, rng: np.random.Generator) -> dict[str, float]:
        """Learns from the decisions of one iteration, once from each.

        Returns:
          `loss`, the mean over the gradient steps; `gradient_steps`; `entropy` after them. Nothing for an empty batch.
        """
        if not len(batch):
            return {}
        sequences = truncate(self.weights(), batch.observations, self._network, rng)
        num_steps = -(-len(sequences) // sequences_per_step(self._config.minibatch_size, self._network))
        losses = []
        for indices in np.array_split(rng.permutation(len(sequences)), num_steps):
            part = sequences.take(batch, indices)
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


class Reinforce(SampledAlgorithm):
    """REINFORCE in the training loop."""

    log_metrics = (("entropy", "entropy", ".3f"), ("loss", "loss", ".3f"))

    def __init__(self, run: TrainingRun, config: ReinforceConfig, advantages: Advantages):
        """Raises PolicyError if the policy to start from does not suit the settings."""
        start, seed, values = run.warm_start_weights(), run.config.seed, advantages.uses_value_network
        learner = ReinforceLearner(
            run.head, run.action_name, run.network, config, seed, start, uses_value_network=values
        )
        super().__init__(run, advantages, config, learner)
        self.description = f"policy gradient (REINFORCE), {type(advantages).__name__} advantages"
        self._max_decisions = config.max_decisions

    def learn(self, groups: Sequence[Group], rng: np.random.Generator, progress: float) -> dict[str, float]:
        self._set_learning_rate(progress)
        return self._learner.update(self._sampler.batch(groups, rng, self._max_decisions), rng)
