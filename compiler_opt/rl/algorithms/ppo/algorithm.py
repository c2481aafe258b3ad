"""Proximal policy optimisation (PPO) by TF-Agents: sampled rollouts, and an advantage for each of their decisions.

Legend: N decisions of an iteration.

    ratio = p(action) / p(action) before the update                   # the loss is the mean over decisions, weighted
    loss = -min(ratio * advantage, clip(ratio, 1 - importance_ratio_clipping, 1 + ...) * advantage)
           - entropy_regularization * entropy + value_pred_loss_coef * (return - value) ** 2
           + kl_to_start * KL(policy, start)
    with kl_target: -ratio * advantage + adaptive weight * KL(policy before the update, policy) instead of the minimum

Each decision is a sequence of length 1 (`[N, 1]`): `collect.advantages` assigns credit to decisions, so there is no
discounting over time. A recurrent network learns from truncated sequences (`rl.truncated_sequences`), and computes
log probabilities from the states before them; to the agent, these are single decisions, too.

Source: Schulman et al., *Proximal Policy Optimization Algorithms*, 2017.

Where iterations are collected ahead, an older policy has decided. The ratio is then that to the policy before the
update, so that it bounds the update as it always does, and each advantage is multiplied by its decision's importance:
the probability before the update over the one with which it was taken. Bounded, it lets no few decisions dominate. A
bound of 1 is too low: nothing would push back what has become ten times as probable in the meantime.

Source: Hilton et al., *Batch size-invariance for policy optimization*, 2021 (the decoupled objective).

The losses are the agent's (`get_loss` of `PPOClipAgent` or `PPOKLPenaltyAgent`), the gradient step is ours: the agent's
own would centre and scale the advantages of each minibatch, and leave out decisions whose advantage and return are 0.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from tf_agents.agents.ppo import ppo_utils
from tf_agents.agents.ppo.ppo_clip_agent import PPOClipAgent
from tf_agents.agents.ppo.ppo_kl_penalty_agent import PPOKLPenaltyAgent
from tf_agents.trajectories import time_step as ts

from compiler_opt.collect.advantages import Advantages, standardised
from compiler_opt.collect.groups import Group
from compiler_opt.errors import ConfigError
from compiler_opt.policies.weights import NetworkConfig, NetworkWeights
from compiler_opt.rl.algorithms.ppo import PPOConfig
from compiler_opt.rl.config import RandomNetworkDistillationConfig
from compiler_opt.rl.learner import NetworkLearner
from compiler_opt.rl.random_network_distillation import RandomNetworkDistillation
from compiler_opt.rl.sampled_algorithm import SampledAlgorithm
from compiler_opt.rl.sampled_decisions import Batch
from compiler_opt.rl.training_run import TrainingRun
from compiler_opt.rl.truncated_sequences import sequences_per_step, truncate
from compiler_opt.spaces.heads import networks
from compiler_opt.spaces.heads.head import Head

_MAX_LOG_RATIO = 50.0
"""Log-ratios are clipped here so that exp() cannot overflow."""
_MAX_IMPORTANCE = 10.0
"""Of a decision that an older policy took."""
_MOVEMENT_SAMPLE = 20_000
"""Most decisions from which the distance of an update is estimated."""
_KL_PENALTY = {"initial_adaptive_kl_beta": 1.0, "adaptive_kl_tolerance": 0.5, "kl_cutoff_factor": 0.0}
"""The penalty's first weight, and the distance from the target, as a share of it, beyond which the weight changes."""


class PPOLearner(NetworkLearner):
    """The update of policy and value network."""

    def __init__(
        self,
        head: Head,
        action_name: str,
        network: NetworkConfig,
        config: PPOConfig,
        seed: int,
        start: NetworkWeights | None = None,
    ):
        """See the base; raises ConfigError if there is no `start` to stay close to, as `kl_to_start` demands."""
        super().__init__(head, action_name, network, config, seed, start, epsilon=1e-5)
        self._config = config
        action = head.action_spec(action_name)
        self._start: Any = None
        if start is not None:
            self._start = head.actor(action_name, network, seed)
            networks.assign(self._start, start)
        elif config.kl_to_start:
            raise ConfigError(
                "ppo.kl_to_start: expected a policy to start from (--warmstart_policy_dir), found none; set it to 0"
            )
        if not config.value_pred_loss_coef:
            # The agent evaluates a critic all the same.
            network = dataclasses.replace(network, value_fc_layer_params=())
        self._critic = head.critic(network, seed)
        specific, agent_class = {"importance_ratio_clipping": config.importance_ratio_clipping}, PPOClipAgent
        self._before: Any = None  # the policy before the update
        if config.kl_target:
            specific, agent_class = {**_KL_PENALTY, "adaptive_kl_target": config.kl_target}, PPOKLPenaltyAgent
            self._before = head.actor(action_name, network, seed)
        agent = agent_class(
            ts.time_step_spec(self.actor.input_tensor_spec),
            action,
            optimizer=self.optimizer,
            actor_net=self.actor,
            value_net=self._critic,
            num_epochs=config.num_epochs,
            entropy_regularization=config.entropy_regularization,
            value_pred_loss_coef=config.value_pred_loss_coef,
            gradient_clipping=config.gradient_clipping,
            normalize_observations=False,
            normalize_rewards=False,
            compute_value_and_advantage_in_train=False,
            update_normalizers_in_train=False,
            train_step_counter=tf.Variable(0, dtype=tf.int64, name="train_step"),
            **specific,
        )
        self._action_dtype = action.dtype
        self._variables = self.actor.trainable_weights + self._critic.trainable_weights
        self._train_by(agent, self._variables)
        observation = self.actor.input_tensor_spec
        columns = {"action": action.dtype, **dict.fromkeys(("log_prob", "advantage", "return", "weight"), tf.float32)}
        signature = {
            "observation": {
                name: tf.TensorSpec([None, 1, *spec.shape], spec.dtype) for name, spec in observation.items()
            },
            **{name: tf.TensorSpec([None, 1], dtype) for name, dtype in columns.items()},
        }
        # Traces once for all batch sizes.
        self._train = tf.function(self._gradient_step, autograph=False, input_signature=[signature])

    def expected_returns(self, observations: Mapping[str, np.ndarray]) -> np.ndarray:
        """The value network's estimates, from observations `[N, ...]` by name to `[N]` float32."""
        observation = {name: tf.constant(values) for name, values in observations.items()}
        count = len(next(iter(observations.values())))
        values, _ = self._critic(observation, step_type=tf.ones(count, tf.int32), network_state=())
        result: np.ndarray = values.numpy()
        return result

    def corrected(self, batch: Batch) -> Batch:
        """Decisions of an older policy, with the latest one's `log_probs`.

        Their `advantages` are multiplied by their importance, which is bounded.
        """
        if not len(batch):
            return batch
        log_probs, _ = self._head.evaluate_actions(self.weights(), batch.observations, batch.actions)
        importance = np.exp(np.minimum(log_probs - batch.log_probs, np.log(_MAX_IMPORTANCE)))
        advantages = (batch.advantages * importance).astype(np.float32)
        return dataclasses.replace(batch, log_probs=log_probs.astype(np.float32), advantages=advantages)

    def update(self, batch: Batch, rng: np.random.Generator) -> dict[str, float]:
        """Updates the policy from the decisions of one iteration.

        Returns:
          means over the iteration: `loss`, `gradient_norm` (before clipping) and, with a weight of its own,
          `kl_to_start` of its minibatches; `gradient_steps`; `entropy`, and the distance from the policy of the
          batch's `log_probs`, as `kl` and `clip_fraction`; with `kl_target`, `kl_weight`, the penalty's weight in the
          next iteration. Nothing for an empty batch.
        """
        config = self._config
        if not len(batch):
            return {}
        if self._before is not None:
            networks.assign(self._before, self.weights())
        sequences = truncate(self.weights(), batch.observations, self._network, rng)
        visited = min(sequences_per_step(config.max_decisions, self._network), len(sequences))
        size = min(sequences_per_step(config.minibatch_size, self._network), visited)
        steps: list[dict[str, float]] = []
        for order in epochs(len(sequences), visited, config.num_epochs, rng):
            # Drops the incomplete last minibatch; reshuffling varies what is dropped.
            for start in range(0, visited - size + 1, size):
                step = self._train(self._columns(sequences.take(batch, order[start : start + size])))
                steps.append({name: float(value) for name, value in step.items()})
        self.average.add()
        means = {name: float(np.mean([step[name] for step in steps])) for name in steps[0]}
        # A recurrent network decides whole rollouts.
        moved = batch if self._network.lstm_units else batch.sample(_MOVEMENT_SAMPLE, rng)
        metrics = {**means, "gradient_steps": len(steps), **self._movement(moved)}
        if self._before is not None:
            metrics["kl_weight"] = float(self.agent.update_adaptive_kl_beta(tf.constant(metrics["kl"], tf.float32)))
        return metrics

    def gradients(self, batch: Batch) -> list[np.ndarray]:
        """The gradient of the loss by each variable of the policy network, of all decisions as one minibatch.

        Of a recurrent network, they are sequences, see `Sequences.take`.
        """
        _, gradients, _ = self._losses_and_gradients(self._columns(batch))
        return [gradient.numpy() for gradient in gradients[: len(self.actor.trainable_weights)]]

    def _gradient_step(self, columns: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        loss, gradients, kl_to_start = self._losses_and_gradients(columns)
        clipped, norm = tf.clip_by_global_norm(gradients, self._config.gradient_clipping)
        self.optimizer.apply_gradients(zip(clipped, self._variables, strict=True))
        self.agent.train_step_counter.assign_add(1)
        metrics = {"loss": loss, "gradient_norm": norm}
        return metrics if kl_to_start is None else {**metrics, "kl_to_start": kl_to_start}

    def _losses_and_gradients(self, columns: Mapping[str, Any]) -> tuple[tf.Tensor, list[tf.Tensor], tf.Tensor | None]:
        """The loss, its gradient by each variable, and the mean KL divergence from the policy to the start."""
        count = tf.shape(columns["action"])[0]
        shape = tf.stack([count, 1])
        steps = ts.TimeStep(
            step_type=tf.fill(shape, int(ts.StepType.MID)),
            reward=tf.zeros(shape),
            discount=tf.ones(shape),
            observation=columns["observation"],
        )
        before: Any = None
        if self._before is not None:
            decided, _ = self._before(columns["observation"], step_type=steps.step_type, network_state=())
            before = ppo_utils.get_distribution_params(decided, legacy_distribution_network=True)
        with tf.GradientTape() as tape:
            loss = self.agent.get_loss(
                steps,
                columns["action"],
                columns["log_prob"],
                columns["return"],
                columns["advantage"],
                action_distribution_parameters=before,
                weights=columns["weight"],
                train_step=self.agent.train_step_counter,
                debug_summaries=False,
                training=True,
            ).loss
            kl_to_start = None
            if self._config.kl_to_start:
                observation = {name: column[:, 0] for name, column in columns["observation"].items()}
                step_type = tf.fill([count], int(ts.StepType.MID))
                now, at_start = (
                    actor(observation, step_type=step_type, network_state=())[0] for actor in (self.actor, self._start)
                )
                divergence = tfp.distributions.kl_divergence(now, at_start)
                kl_to_start = tf.reduce_mean(columns["weight"][:, 0] * divergence)
                loss += self._config.kl_to_start * kl_to_start
        gradients = tape.gradient(loss, self._variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return loss, gradients, kl_to_start

    def _columns(self, batch: Batch) -> dict[str, Any]:
        """The decisions as tensors `[N, 1, ...]`."""

        def column(values: np.ndarray, dtype: tf.DType) -> tf.Tensor:
            return tf.constant(values[:, np.newaxis], dtype)

        return {
            "observation": {name: tf.constant(values[:, np.newaxis]) for name, values in batch.observations.items()},
            "action": column(batch.actions, self._action_dtype),
            "log_prob": column(batch.log_probs, tf.float32),
            "advantage": column(batch.advantages, tf.float32),
            "return": column(batch.returns, tf.float32),
            "weight": column(batch.weights, tf.float32),
        }

    def _movement(self, batch: Batch) -> dict[str, float]:
        """Metrics of how far the update moved the policy, on the decisions of the iteration."""
        log_probs, entropy = self._head.evaluate_actions(self.weights(), batch.observations, batch.actions)
        log_ratio = np.minimum(log_probs - batch.log_probs, _MAX_LOG_RATIO)
        ratio = np.exp(log_ratio)
        return {
            # Schulman's estimator, never negative: http://joschu.net/blog/kl-approx.html
            "kl": float(np.mean(ratio - 1 - log_ratio)),
            "entropy": float(np.mean(entropy)),
            "clip_fraction": float(np.mean(np.abs(ratio - 1) > self._config.importance_ratio_clipping)),
        }


def epochs(count: int, visited: int, num_epochs: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """For each epoch, `[visited]` indices of `count` decisions, in random order.

    An epoch begins where the last one has ended, so that all decisions are visited equally often, within one.
    """
    order = np.empty(0, np.int64)
    for _ in range(num_epochs):
        while len(order) < visited:
            order = np.concatenate([order, rng.permutation(count)])
        yield order[:visited]
        order = order[visited:]


class PPO(SampledAlgorithm):
    """Proximal policy optimisation in the training loop."""

    _learner: PPOLearner

    off_policy = True
    log_metrics = (("entropy", "entropy", ".3f"), ("kl", "KL", ".4f"), ("clip_fraction", "clipped", ".1%"))

    def __init__(
        self,
        run: TrainingRun,
        config: PPOConfig,
        advantages: Advantages,
        novelty: RandomNetworkDistillationConfig,
    ):
        """Raises PolicyError or ConfigError if the policy to start from does not suit the settings."""
        start, seed = run.warm_start_weights(), run.config.seed
        learner = PPOLearner(run.head, run.action_name, run.network, config, seed, start)
        super().__init__(run, advantages, config, learner)
        objective = "policy gradient with KL penalty" if config.kl_target else "clipped policy gradient"
        self.description = f"{objective} (PPO), {type(advantages).__name__} advantages"
        self._uses_value_network = advantages.uses_value_network
        self._max_decisions = config.num_epochs * config.max_decisions
        self._collects_ahead = run.config.max_staleness > 0
        self._distillation = RandomNetworkDistillation(run.head, novelty, seed) if novelty.weight else None

    def learn(self, groups: Sequence[Group], rng: np.random.Generator, progress: float) -> dict[str, float]:
        self._set_learning_rate(progress)
        batch = self._sampler.batch(groups, rng, self._max_decisions)
        if self._uses_value_network:
            advantages = batch.returns - self._learner.expected_returns(batch.observations)
            # Rewards are a few percent; the other advantages have unit variance already.
            batch = dataclasses.replace(batch, advantages=standardised(advantages))
        metrics: dict[str, float] = {}
        if self._distillation is not None:
            batch, metrics = self._distillation.with_bonus(batch, rng)
        if self._collects_ahead:
            batch = self._learner.corrected(batch)
        return {**metrics, **self._learner.update(batch, rng)}

    def checkpointed(self) -> dict[str, Any]:
        distillation = {} if self._distillation is None else self._distillation.checkpointed()
        return {**super().checkpointed(), **distillation}
