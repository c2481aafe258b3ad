"""Training by clipped policy gradients: sampled rollouts, and what each decision of them was worth."""

import dataclasses
import logging
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np

from compiler_opt.collect.advantages import Advantages, GroupRelative
from compiler_opt.collect.baseline import check_failures
from compiler_opt.collect.groups import Collection, collect
from compiler_opt.collect.rollout import RolloutSettings
from compiler_opt.policies.export.development import with_model
from compiler_opt.rl.config import NetworkConfig, PPOConfig
from compiler_opt.rl.ppo import Batch, PPOLearner
from compiler_opt.rl.training import Training

_LOG = logging.getLogger(__name__)


class PPOTraining(Training):
    """See `rl.ppo`."""

    told = (("entropy", "entropy", ".3f"), ("kl", "KL", ".4f"))

    def __init__(self, *arguments: Any, ppo: PPOConfig, advantages: Advantages | None = None, **settings: Any):
        """Prepares a run, or continues the one in `root_dir`.

        Args:
          *arguments: see `Training`.
          ppo: how the policy learns.
          advantages: what decisions are worth; group-relative by default.
          **settings: see `Training`.
        """
        self._ppo = ppo
        self._advantages = advantages if advantages is not None else GroupRelative()
        self.method = f"clipped policy gradient (PPO), {type(self._advantages).__name__} advantages"
        super().__init__(*arguments, **settings)

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
        settings = RolloutSettings(timeout_s=config.compile_timeout_s, record_call_sites=True, backend=config.backend)
        collection = collect(
            self._draw_modules(),
            policy,
            self._baseline,
            self._pool,
            rollouts_per_module=config.rollouts_per_module,
            settings=with_model(settings, policy, self._action_name, self._pool.scratch),
            seed=(config.seed, self._iteration),
            description=f"iteration {self._iteration + 1}",
        )
        check_failures({failure: failure for failure in collection.failures}, collection.num_compiles)
        for failure in collection.failures:
            _LOG.warning("rollout failed: %s", failure)
        return collection

    def _improve(self, collection: Collection) -> dict[str, float]:
        remaining = 1 - min(1.0, self._progress())
        decay = self._config.learning_rate_decay
        self._ppo_learner.set_learning_rate(decay + (1 - decay) * remaining)
        return self._ppo_learner.update(self._batch(collection), self._rng())

    def _batch(self, collection: Collection) -> Batch:
        advantages = self._advantages(collection.groups, self._problem)
        observations: defaultdict[str, list[np.ndarray]] = defaultdict(list)
        actions, log_probs, values, returns = [], [], [], []
        for group, group_advantages in zip(collection.groups, advantages, strict=True):
            rewards = group.rewards(self._problem)
            for trajectory, advantage, reward in zip(group.trajectories(), group_advantages, rewards, strict=True):
                for name, observed in self._kind.observe(trajectory.features()).items():
                    observations[name].append(observed)
                actions.append(self._kind.actions(trajectory.advice) if trajectory.drawn is None else trajectory.drawn)
                assert trajectory.log_probs is not None
                log_probs.append(trajectory.log_probs)
                values.append(advantage)
                returns.append(advantage if self._advantages.uses_value_network else np.full_like(advantage, reward))
        columns = {name: np.concatenate(parts) for name, parts in observations.items()}
        batch = Batch(columns, *(np.concatenate(parts) for parts in (actions, log_probs, values, returns)))
        if self._advantages.uses_value_network:
            batch = dataclasses.replace(batch, advantages=batch.returns - self._ppo_learner.expected_returns(columns))
        return batch
