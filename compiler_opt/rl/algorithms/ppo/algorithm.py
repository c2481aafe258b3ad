"""PPO in the training loop: sampled rollouts, and an advantage for each of their decisions."""

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from compiler_opt.collect.advantages import Advantages
from compiler_opt.collect.groups import CollectionPolicy, Group, RepeatedPolicy
from compiler_opt.export.development import write_development_model
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.rl.algorithm import Algorithm
from compiler_opt.rl.algorithms.ppo import PPOConfig
from compiler_opt.rl.algorithms.ppo.learner import Batch, PPOLearner
from compiler_opt.rl.training_context import TrainingContext


class PPO(Algorithm):
    """Proximal policy optimisation, see `learner`."""

    log_metrics = (("entropy", "entropy", ".3f"), ("kl", "KL", ".4f"))

    def __init__(self, context: TrainingContext, config: PPOConfig, advantages: Advantages):
        """Raises PolicyError if the policy to start from has other features or another shape."""
        self.description = f"clipped policy gradient (PPO), {type(advantages).__name__} advantages"
        self._context = context
        self._advantages = advantages
        self._learner = PPOLearner(context.head, context.action_name, context.network, config, context.config.seed)
        start = context.warm_start_weights()
        if start is not None:
            self._learner.warm_start(start)

    def collection_policy(self) -> CollectionPolicy:
        context = self._context
        policy = context.problem.policy(self._learner.weights(), temperature=1.0)
        write_development_model(context.pool.policies, policy, context.action_name, context.config.backend)
        settings = context.rollout_settings(record_call_sites=True)
        return RepeatedPolicy(policy, context.config.rollouts_per_module, settings)

    def learn(self, groups: Sequence[Group], rng: np.random.Generator, progress: float) -> dict[str, float]:
        decay = self._context.config.learning_rate_decay
        self._learner.set_learning_rate(decay + (1 - decay) * (1 - min(1.0, progress)))
        return self._learner.update(self._batch(groups), rng)

    def policy(self) -> NetworkWeights:
        return self._learner.averaged_weights()

    def checkpointed(self) -> dict[str, Any]:
        return self._learner.checkpointed()

    def state(self) -> dict[str, Any]:
        return {"advantages": self._advantages.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._advantages.restore(state["advantages"])

    def _batch(self, groups: Sequence[Group]) -> Batch:
        problem, head = self._context.problem, self._context.head
        observations: defaultdict[str, list[np.ndarray]] = defaultdict(list)
        actions, log_probs, values, returns = [], [], [], []
        for group, group_advantages in zip(groups, self._advantages(groups, problem), strict=True):
            rewards = group.rewards(problem)
            for trajectory, advantage, reward in zip(group.trajectories(), group_advantages, rewards, strict=True):
                for name, observed in head.observe(trajectory.features()).items():
                    observations[name].append(observed)
                sampled = trajectory.sampled_actions
                actions.append(head.actions(trajectory.advice) if sampled is None else sampled)
                assert trajectory.log_probs is not None
                log_probs.append(trajectory.log_probs)
                values.append(advantage)
                returns.append(advantage if self._advantages.uses_value_network else np.full_like(advantage, reward))
        columns = {name: np.concatenate(parts) for name, parts in observations.items()}
        batch = Batch(columns, *(np.concatenate(parts) for parts in (actions, log_probs, values, returns)))
        if self._advantages.uses_value_network:
            batch = dataclasses.replace(batch, advantages=batch.returns - self._learner.expected_returns(columns))
        return batch
