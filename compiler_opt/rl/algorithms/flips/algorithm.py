"""Flips in the training loop: what is tried, and what is learned from."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from compiler_opt.collect.flip_store import Flips as FlipsOfStore
from compiler_opt.collect.flip_store import FlipStore
from compiler_opt.collect.groups import CollectionPolicy, Group, Tagged
from compiler_opt.collect.rollout import DefaultPolicy, Rollout
from compiler_opt.corpus.module import Module
from compiler_opt.policies.decisions import DEFAULT_BASE, Decisions, OverridingPolicy
from compiler_opt.policies.policy import Policy
from compiler_opt.policies.weights import ALWAYS_DEFAULT, NetworkWeights
from compiler_opt.rl.algorithm import Algorithm
from compiler_opt.rl.algorithms.flips import FlipsConfig
from compiler_opt.rl.algorithms.flips.learner import Samples, SavingsLearner
from compiler_opt.rl.training_run import TrainingRun
from compiler_opt.search.compiling import compiled_of
from compiler_opt.search.flips import GROUP_FEATURES, ModuleFlips
from compiler_opt.spaces.heads import networks

STORE_DIR = "flips"
"""The flips of a run, in its folder."""


class _WithFlips(CollectionPolicy):
    """One rollout of a module under a policy, and others in which some of its decisions are flipped."""

    def __init__(self, run: TrainingRun, config: FlipsConfig, base: Policy):
        settings = run.rollout_settings(record_call_sites=True)
        self.settings = dataclasses.replace(settings, backend="plugin")
        self._run, self._config, self._base = run, config, base

    def policies(self, module: Module, rng: np.random.Generator) -> Sequence[Policy]:
        del module, rng
        return (OverridingPolicy(self._base, Decisions()),)

    def follow_ups(self, rollouts: Sequence[Rollout[Any]], rng: np.random.Generator) -> Sequence[Tagged]:
        [rollout] = rollouts
        if rollout.failure is not None or rollout.trajectory is None:
            return ()
        module = _module_flips(rollout, self._run.baseline().contexts[rollout.project], self._config)
        drawn = module.draw(self._run.config.rollouts_per_module - 1, self._config.max_flips, rng)
        return [Tagged(OverridingPolicy(self._base, flips), tag=flips) for flips in drawn]


class Flips(Algorithm):
    """Learns what flips save, see `learner`."""

    description = "flips of single decisions, their gains learned by regression"
    log_metrics = (
        ("flips", "flips", ".0f"),
        ("share_better", "better", ".1%"),
        ("saved_correlation", "correlation", ".2f"),
    )

    def __init__(self, run: TrainingRun, config: FlipsConfig):
        """Raises PolicyError if the policy to start from has other features."""
        self._run, self._config = run, config
        self._learner = SavingsLearner(run.head, run.action_name, run.network, config)
        self._stores = [FlipStore(run.root_dir / STORE_DIR), *map(FlipStore, map(Path, config.stores))]
        self._start = run.warm_start_weights()
        self._actor = run.head.actor(run.action_name, run.network, run.config.seed)
        self._has_learned = tf.Variable(False)
        self._num_iterations = 0
        self._num_new = 0  # flips since the networks were trained

    def collection_policy(self) -> CollectionPolicy:
        problem, weights = self._run.problem, self._weights()
        base = DefaultPolicy(problem) if weights is None else problem.decision.policy(weights)
        return _WithFlips(self._run, self._config, base)

    def learn(self, groups: Sequence[Group], rng: np.random.Generator, progress: float) -> dict[str, float]:
        del rng, progress
        self._num_iterations += 1
        metrics: dict[str, float] = {}
        if (new := self._flips(groups)) is not None:
            self._stores[0].add(new)
            self._num_new += len(new)
            metrics = {"flips": float(len(new)), "share_better": float((new.gains > 0).mean())}
        if self._num_iterations % self._config.learn_every == 0:
            metrics |= self._learn()
        return metrics

    def policy(self) -> NetworkWeights:
        """What all flips so far teach; with too few, the policy to start from, or one that keeps the default."""
        if self._num_new or not self._has_learned:
            self._learn()
        return self.policy_so_far()

    def policy_so_far(self) -> NetworkWeights:
        weights = self._weights()
        if weights is not None:
            return weights
        return dataclasses.replace(self._run.head.to_weights(self._actor), margin=ALWAYS_DEFAULT)

    def checkpointed(self) -> dict[str, Any]:
        return {"actor": self._actor, "has_learned": self._has_learned}

    def state(self) -> dict[str, Any]:
        return {"num_iterations": self._num_iterations, "num_new": self._num_new}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._num_iterations, self._num_new = state["num_iterations"], state["num_new"]

    def _weights(self) -> NetworkWeights | None:
        """The policy; None if it is the default."""
        return self._run.head.to_weights(self._actor) if self._has_learned else self._start

    def _learn(self) -> dict[str, float]:
        """Trains networks of all flips, unless there are too few."""
        features = self._run.head.features
        parts = [
            flips for store in self._stores for flips in store.read(self._run.problem.name, features) if len(flips)
        ]
        count = sum(map(len, parts))
        if count < max(1, self._config.first_samples):
            return {"samples": float(count)}
        seed = self._run.config.seed
        weights, metrics = self._learner.learn(Samples.of(parts, self._config), seed)
        networks.assign(self._actor, weights)
        self._has_learned.assign(True)
        self._num_new = 0
        return {"samples": float(count), **metrics}

    def _flips(self, groups: Sequence[Group]) -> FlipsOfStore | None:
        """The flips of an iteration; None if there are none."""
        run, weights = self._run, self._weights()
        names = [spec.name for spec in run.compiler_features]
        rows, advice, gains, owners = [], [], [], []
        for owner, group in enumerate(groups):
            [trajectory], [rollout] = group.trajectories(), group.rollouts
            module, features = _module_flips(rollout, group.context, self._config), trajectory.features()
            observations = np.stack([features[name].reshape(-1) for name in names], axis=-1)
            for attempt in group.follow_ups:
                for position, saved_bytes in module.gains(compiled_of(attempt.rollout), attempt.tag):
                    rows.append(observations[position])
                    advice.append(int(trajectory.advice[position]))
                    gains.append(saved_bytes)
                    owners.append(owner)
        if not rows:
            return None
        base_actions = np.array(advice, np.int64)
        return FlipsOfStore(
            problem=run.problem.name,
            compiler=".".join(map(str, run.toolchain.version)),
            base=DEFAULT_BASE if weights is None else weights.checksum(),
            features=tuple(names),
            modules=tuple(group.module for group in groups),
            projects=tuple(group.project for group in groups),
            observations=np.stack(rows),
            actions=1 - base_actions,
            base_actions=base_actions,
            gains=np.array(gains),
            linked_gains=np.full(len(gains), np.nan),
            owners=np.array(owners, np.int32),
        )


def _module_flips(rollout: Rollout[Any], copies: Mapping[str, float], config: FlipsConfig) -> ModuleFlips:
    assert rollout.trajectory is not None
    recorded = {spec.name for spec in rollout.trajectory.header.features}
    return ModuleFlips(rollout, copies, groups=config.groups and recorded.issuperset(GROUP_FEATURES))
