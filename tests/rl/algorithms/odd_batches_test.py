"""Batches without anything to learn from, or with features that are not numbers, leave learners with finite weights."""

import dataclasses
from collections.abc import Callable
from typing import Protocol

import numpy as np
import pytest

from compiler_opt.tensorflow_loading import load_tensorflow

load_tensorflow()

from compiler_opt.policies.weights import NetworkWeights  # noqa: E402
from compiler_opt.rl.algorithms.dqn import DQNConfig  # noqa: E402
from compiler_opt.rl.algorithms.dqn.algorithm import DQNLearner  # noqa: E402
from compiler_opt.rl.algorithms.ppo import PPOConfig  # noqa: E402
from compiler_opt.rl.algorithms.ppo.algorithm import PPOLearner  # noqa: E402
from compiler_opt.rl.algorithms.reinforce import ReinforceConfig  # noqa: E402
from compiler_opt.rl.algorithms.reinforce.algorithm import ReinforceLearner  # noqa: E402
from compiler_opt.rl.sampled_decisions import Batch  # noqa: E402
from compiler_opt.spaces.heads.categorical import CategoricalHead  # noqa: E402
from tests.rl.algorithms.toy_decisions import NETWORK, binary_head, features, masked_head, sampled  # noqa: E402


class _Learner(Protocol):
    def update(self, batch: Batch, rng: np.random.Generator) -> dict[str, float]: ...

    def weights(self) -> NetworkWeights: ...


_LEARNERS: dict[str, Callable[[CategoricalHead], _Learner]] = {
    "ppo": lambda head: PPOLearner(head, "decision", NETWORK, PPOConfig(), seed=1),
    "reinforce": lambda head: ReinforceLearner(head, "decision", NETWORK, ReinforceConfig(), seed=1),
    "dqn": lambda head: DQNLearner(head, "decision", NETWORK, DQNConfig(steps=3), seed=1),
}


@pytest.mark.parametrize("name", _LEARNERS)
def test_without_a_better_decision(name: str) -> None:
    head, rng = binary_head(), np.random.default_rng(0)
    learner = _LEARNERS[name](head)
    batch = sampled(head, learner.weights(), rng, 12)
    nothing = np.zeros(12, "f4")
    _learns_finitely(learner, dataclasses.replace(batch, advantages=nothing, returns=nothing), rng)


@pytest.mark.parametrize("name", _LEARNERS)
def test_features_that_are_not_numbers(name: str) -> None:
    head, rng = masked_head(), np.random.default_rng(0)
    learner = _LEARNERS[name](head)
    values = features(head, rng, 12)
    values["a"] = np.where(rng.random(values["a"].shape) < 0.5, np.nan, np.inf).astype("f4")
    batch = dataclasses.replace(sampled(head, learner.weights(), rng, 12), observations=head.observe(values))
    # What is sampled has to be legal.
    actions = values["mask"].argmax(axis=1)
    log_probs = head.evaluate_actions(learner.weights(), batch.observations, actions)[0].astype("f4")
    _learns_finitely(learner, dataclasses.replace(batch, actions=actions, log_probs=log_probs), rng)


def _learns_finitely(learner: _Learner, batch: Batch, rng: np.random.Generator) -> None:
    metrics = learner.update(batch, rng)
    assert metrics and all(np.isfinite(list(metrics.values()))), metrics
    assert all(np.isfinite(kernel).all() for kernel in learner.weights().kernels)
