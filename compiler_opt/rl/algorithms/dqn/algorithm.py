"""DQN and double DQN by TF-Agents: rollouts that explore, a replay of their decisions, and a target network.

Legend: N decisions, A actions, B decisions of a minibatch: of a recurrent network, those of
`rl.truncated_sequences`.

    sample actions from softmax(Q / temperature)                     # TF-Agents' Boltzmann policy, shipped as a network
    remember the latest decisions
    regress: Q(action) = reward + discount * Q of the next decision  # 0 after the last decision of an episode

The reward of a decision is its advantage (`collect.advantages`). With a discount of 0, each decision is an episode.
Sources: Mnih et al., *Human-level control through deep reinforcement learning*, 2015; van Hasselt et al., *Deep
Reinforcement Learning with Double Q-learning*, 2015.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tf_agents.agents.dqn import dqn_agent
from tf_agents.networks import network as tf_agents_network
from tf_agents.trajectories import policy_step, trajectory
from tf_agents.trajectories import time_step as ts
from tf_agents.utils import common

from compiler_opt.collect.advantages import Advantages
from compiler_opt.collect.groups import Group
from compiler_opt.policies.weights import NetworkConfig, NetworkWeights
from compiler_opt.rl.algorithms.dqn import DQNConfig
from compiler_opt.rl.learner import NetworkLearner, correlation
from compiler_opt.rl.replay import Replay
from compiler_opt.rl.sampled_algorithm import SampledAlgorithm
from compiler_opt.rl.sampled_decisions import Batch
from compiler_opt.rl.training_run import TrainingRun
from compiler_opt.rl.truncated_sequences import sequences_per_step, truncate
from compiler_opt.spaces.heads import networks
from compiler_opt.spaces.heads.categorical import CategoricalHead


class QNetwork(tf_agents_network.Network):
    """The logits of an actor as the values of actions, `[..., A]`; those of illegal actions are lowest by far."""

    def __init__(self, observation: Mapping[str, tf.TensorSpec], actor: tf_agents_network.DistributionNetwork):
        super().__init__(input_tensor_spec=observation, state_spec=(), name="q_network")
        self._actor = actor

    def call(
        self, observation: Any, step_type: Any = None, network_state: Any = (), training: bool = False
    ) -> tuple[Any, Any]:
        distribution, _ = self._actor(observation, step_type=step_type, network_state=(), training=training)
        return distribution.logits, network_state


class DQNLearner(NetworkLearner):
    """The update of the values of actions, which are the logits of the policy network."""

    _head: CategoricalHead

    def __init__(
        self,
        head: CategoricalHead,
        action_name: str,
        network: NetworkConfig,
        config: DQNConfig,
        seed: int,
        start: NetworkWeights | None = None,
    ):
        """The logits of `start` become values; for the rest, see the base."""
        values = None if start is None else start.scaled(config.first_temperature)
        super().__init__(head, action_name, network, config, seed, values)
        self._config = config
        action, observation = head.action_spec(action_name), self.actor.input_tensor_spec
        self._temperature = tf.Variable(config.first_temperature, trainable=False, name="temperature")
        agent_class = dqn_agent.DdqnAgent if config.double else dqn_agent.DqnAgent
        agent = agent_class(
            ts.time_step_spec(observation),
            action,
            q_network=QNetwork(observation, self.actor),
            target_q_network=QNetwork(observation, head.actor(action_name, network, seed)),
            optimizer=self.optimizer,
            epsilon_greedy=None,
            boltzmann_temperature=self._temperature,
            target_update_period=config.target_update_period,
            # Squared errors estimate the mean, in which rare large losses count in full.
            td_errors_loss_fn=common.element_wise_squared_loss,
            gamma=config.discount,
            gradient_clipping=config.gradient_clipping,
            train_step_counter=tf.Variable(0, dtype=tf.int64, name="train_step"),
        )
        self._train_by(agent, self.actor.trainable_weights)
        observations = {name: tf.TensorSpec([None, *spec.shape], spec.dtype) for name, spec in observation.items()}
        actions, numbers, flags = (tf.TensorSpec([None], dtype) for dtype in (action.dtype, tf.float32, tf.bool))
        # Traces once for all batch sizes.
        signature = [observations, actions, numbers, observations, flags, numbers]
        self._train = tf.function(self._train_step, autograph=False, input_signature=signature)

    @property
    def temperature(self) -> float:
        return float(self._temperature.numpy())

    def checkpointed(self) -> dict[str, Any]:
        return {**super().checkpointed(), "temperature": self._temperature}

    def set_progress(self, progress: float) -> None:
        """Sets the temperature after a share of the training, 0 to 1."""
        first, last = self._config.first_temperature, self._config.last_temperature
        self._temperature.assign(first * (last / first) ** min(1.0, progress))

    def value_correlation(self, batch: Batch) -> float:
        """Correlation of the values of actions with their rewards; 0 if it is undefined."""
        if not len(batch):
            return 0.0
        values = self._head.logits(self.weights(), batch.observations)
        return correlation(values[np.arange(len(batch)), batch.actions], batch.advantages)

    def update(self, batch: Batch, rng: np.random.Generator) -> dict[str, float]:
        """Learns from minibatches of the decisions that are remembered, those of each rollout in order up to the last.

        Returns:
          `loss`, the mean over the gradient steps, and `entropy` of exploration after them. Nothing without decisions.
        """
        if not len(batch):
            return {}
        config, losses = self._config, []
        weights = self.weights()
        sequences = truncate(weights, batch.observations, self._network, rng)
        # Nothing is observed after the end; whatever stands there has no weight.
        later = sequences.following(weights, batch.observations) if config.discount else sequences
        for _ in range(config.steps):
            indices = rng.integers(len(sequences), size=sequences_per_step(config.minibatch_size, self._network))
            part, following = sequences.take(batch, indices), later.take(batch, indices)
            ends = part.is_last | (config.discount == 0)
            loss = self._train(
                dict(part.observations), part.actions, part.advantages, dict(following.observations), ends, part.weights
            )
            losses.append(float(loss))
        self.average.add()
        exploring = self.weights().scaled(1 / self.temperature)
        # A recurrent network decides whole rollouts.
        sample = batch if self._network.lstm_units else part
        _, entropy = self._head.evaluate_actions(exploring, sample.observations, sample.actions)
        return {"loss": float(np.mean(losses)), "entropy": float(np.mean(entropy))}

    def _train_step(
        self,
        observations: Mapping[str, tf.Tensor],
        actions: tf.Tensor,
        rewards: tf.Tensor,
        following: Mapping[str, tf.Tensor],
        ends: tf.Tensor,
        weights: tf.Tensor,
    ) -> tf.Tensor:
        """Decisions `[B, ...]` and those that follow, unless the episode ends, to the loss before the step."""
        middle = tf.fill(tf.shape(ends), int(ts.StepType.MID))
        nothing = tf.zeros_like(rewards)
        after = ts.TimeStep(
            step_type=tf.where(ends, int(ts.StepType.LAST), middle),
            reward=rewards,
            discount=tf.where(ends, nothing, 1.0),
            observation=following,
        )
        before = ts.TimeStep(middle, nothing, tf.ones_like(rewards), observations)
        transition = trajectory.Transition(before, policy_step.PolicyStep(actions), after)
        return self.agent.train(transition, weights).loss


class DQN(SampledAlgorithm):
    """DQN in the training loop."""

    _learner: DQNLearner

    off_policy = True
    log_metrics = (
        ("entropy", "entropy", ".3f"),
        ("loss", "loss", ".3f"),
        ("value_correlation", "correlation with new rewards", ".2f"),
    )

    def __init__(self, run: TrainingRun, config: DQNConfig, advantages: Advantages):
        """Raises PolicyError if the policy to start from does not suit the settings."""
        head, seed = run.head, run.config.seed
        assert isinstance(head, CategoricalHead)
        start = run.warm_start_weights()
        learner = DQNLearner(head, run.action_name, run.network, config, seed, start)
        super().__init__(run, advantages, config, learner)
        self.description = f"{'double ' if config.double else ''}DQN, {type(advantages).__name__} advantages"
        self._config = config
        self._replay = Replay(run.root_dir / "replay", Batch.empty(head, run.network).rows(), config.max_decisions)
        self._num_updates = 0

    def learn(self, groups: Sequence[Group], rng: np.random.Generator, progress: float) -> dict[str, float]:
        batch = self._sampler.batch(groups, rng)
        value_correlation = self._learner.value_correlation(batch)
        self._num_updates += 1
        self._replay.add(self._num_updates, batch.sample_rollouts(self._config.max_decisions, rng).rows())
        self._set_learning_rate(progress)
        self._learner.set_progress(progress)
        return {
            **self._learner.update(self._remembered(), rng),
            "value_correlation": value_correlation,
            "replayed_decisions": float(len(self._replay)),
            "temperature": self._learner.temperature,
        }

    def _remembered(self) -> Batch:
        batch = Batch.from_rows(self._replay.rows())
        if networks.FIRST in batch.observations and len(batch):
            # The oldest rollout may have lost its beginning; a recurrent network starts where the rest does.
            batch.observations[networks.FIRST][0] = 1
        return batch

    def state(self) -> dict[str, Any]:
        return {**super().state(), "num_updates": self._num_updates}

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        self._num_updates = state["num_updates"]
        self._replay.restore(self._num_updates)
