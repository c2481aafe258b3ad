"""Training by clipped policy gradients: sampled rollouts, and what each decision of them was worth."""

import dataclasses
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np

from compiler_opt.collect.advantages import Advantages
from compiler_opt.collect.groups import Collection, collect
from compiler_opt.collect.rollout import RolloutSettings
from compiler_opt.export.development import models_folder
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.rl.config import PPOConfig
from compiler_opt.rl.ppo import Batch, PPOLearner
from compiler_opt.rl.training import Run, Training
from compiler_opt.spaces.network_config import NetworkConfig


class PPOTraining(Training[Collection]):
    """See `rl.ppo`."""

    told = (("entropy", "entropy", ".3f"), ("kl", "KL", ".4f"))

    def __init__(self, run: Run, ppo: PPOConfig, advantages: Advantages):
        """Prepares a run, or continues the one in its folder.

        Args:
          run: see there.
          ppo: how the policy learns.
          advantages: what decisions are worth.

        Raises:
          CorpusError, PolicyError, OutputError, ConfigError: something does not fit.
        """
        self._ppo = ppo
        self._advantages = advantages
        self.method = f"clipped policy gradient (PPO), {type(self._advantages).__name__} advantages"
        super().__init__(run)

    def _make_learner(self, network: NetworkConfig) -> PPOLearner:
        self._ppo_learner = PPOLearner(self._kind, self._action_name, network, self._ppo, self._config.seed)
        return self._ppo_learner

    def _method_state(self) -> dict[str, Any]:
        return {"advantages": self._advantages.state()}

    def _restore_method(self, state: Mapping[str, Any]) -> None:
        self._advantages.restore(state["advantages"])

    def _collect(self) -> Collection:
        config = self._config
        policy = self._problem.policy(self._ppo_learner.weights(), temperature=1.0)
        models = models_folder(config.backend, policy, self._action_name, self._pool.scratch)
        settings = RolloutSettings(
            timeout_s=config.compile_timeout_s, record_call_sites=True, backend=config.backend, models=models
        )
        return collect(
            self._draw_modules(),
            policy,
            self._baseline,
            self._pool,
            rollouts_per_module=config.rollouts_per_module,
            settings=settings,
            seed=(config.seed, self._iteration),
            description=f"iteration {self._iteration + 1}",
        )

    def _improve(self, collection: Collection) -> dict[str, float]:
        remaining = 1 - min(1.0, self._progress())
        decay = self._config.learning_rate_decay
        self._ppo_learner.set_learning_rate(decay + (1 - decay) * remaining)
        return self._ppo_learner.update(self._batch(collection), self._rng())

    def _final_weights(self) -> NetworkWeights:
        return self._ppo_learner.averaged_weights()

    def _batch(self, collection: Collection) -> Batch:
        advantages = self._advantages(collection.groups, self._problem)
        observations: defaultdict[str, list[np.ndarray]] = defaultdict(list)
        actions, log_probs, values, returns = [], [], [], []
        for group, group_advantages in zip(collection.groups, advantages, strict=True):
            rewards = group.rewards(self._problem)
            for trajectory, advantage, reward in zip(group.trajectories(), group_advantages, rewards, strict=True):
                for name, observed in self._kind.observe(trajectory.features()).items():
                    observations[name].append(observed)
                sampled = trajectory.sampled_actions
                actions.append(self._kind.actions(trajectory.advice) if sampled is None else sampled)
                assert trajectory.log_probs is not None
                log_probs.append(trajectory.log_probs)
                values.append(advantage)
                returns.append(advantage if self._advantages.uses_value_network else np.full_like(advantage, reward))
        columns = {name: np.concatenate(parts) for name, parts in observations.items()}
        batch = Batch(columns, *(np.concatenate(parts) for parts in (actions, log_probs, values, returns)))
        if self._advantages.uses_value_network:
            batch = dataclasses.replace(batch, advantages=batch.returns - self._ppo_learner.expected_returns(columns))
        return batch
