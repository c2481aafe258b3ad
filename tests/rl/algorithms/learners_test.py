"""What every learner of a policy network does, whatever its loss."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler_opt.tensorflow_loading import load_tensorflow

load_tensorflow()

from compiler_opt.rl.algorithms.dqn import DQNConfig  # noqa: E402
from compiler_opt.rl.algorithms.dqn.algorithm import DQNLearner  # noqa: E402
from compiler_opt.rl.algorithms.ppo import PPOConfig  # noqa: E402
from compiler_opt.rl.algorithms.ppo.algorithm import PPOLearner  # noqa: E402
from compiler_opt.rl.algorithms.reinforce import ReinforceConfig  # noqa: E402
from compiler_opt.rl.algorithms.reinforce.algorithm import ReinforceLearner  # noqa: E402
from compiler_opt.rl.checkpoints import Checkpoints  # noqa: E402
from compiler_opt.rl.learner import NetworkLearner  # noqa: E402
from compiler_opt.rl.sampled_decisions import Batch  # noqa: E402
from compiler_opt.spaces.heads.categorical import CategoricalHead  # noqa: E402
from tests.rl.algorithms.toy_decisions import NETWORK, binary_head, features, masked_head, sampled  # noqa: E402

_SETTINGS: dict[str, Any] = {"learning_rate": 0.01, "minibatch_size": 128, "averaging": 0.75}
_LEARNERS: dict[str, Callable[[CategoricalHead], NetworkLearner]] = {
    "ppo": lambda head: PPOLearner(head, "decision", NETWORK, PPOConfig(**_SETTINGS), seed=1),
    "reinforce": lambda head: ReinforceLearner(head, "decision", NETWORK, ReinforceConfig(**_SETTINGS), seed=1),
    # Copies the network to the target network within an update, and between the two of a test.
    "dqn": lambda head: DQNLearner(
        head, "decision", NETWORK, DQNConfig(**_SETTINGS, steps=10, discount=0.5, target_update_period=7), seed=1
    ),
}


@pytest.fixture(params=_LEARNERS)
def make(request: pytest.FixtureRequest) -> Callable[[CategoricalHead], NetworkLearner]:
    return _LEARNERS[request.param]


def _update(learner: NetworkLearner, rng: np.random.Generator) -> dict[str, float]:
    return learner.update(sampled(binary_head(), learner.weights(), rng, 500), rng)


def _set_later_rate(learner: NetworkLearner) -> None:
    learner.set_learning_rate(0.7)
    if isinstance(learner, DQNLearner):
        learner.set_progress(0.5)


@pytest.mark.ci
def test_the_same_seed_learns_the_same_and_resumes(
    make: Callable[[CategoricalHead], NetworkLearner], tmp_path: Path
) -> None:
    weights, metrics = [], []
    for interrupted in (False, True):
        learner, rng = make(binary_head()), np.random.default_rng(5)
        _set_later_rate(learner)
        _update(learner, rng)
        if interrupted:
            Checkpoints(tmp_path, **learner.checkpointed()).save(1, {})
            learner = make(binary_head())
            assert Checkpoints(tmp_path, **learner.checkpointed()).restore() == {}
        metrics.append(_update(learner, rng))
        weights.append([*learner.weights().kernels, *learner.average.weights().kernels])
    for one, other in zip(*weights, strict=True):
        np.testing.assert_array_equal(one, other)
    assert metrics[0] == metrics[1]


@pytest.mark.slow
def test_the_average_follows_the_weights(make: Callable[[CategoricalHead], NetworkLearner]) -> None:
    learner = make(binary_head())
    before = learner.weights().kernels[0]
    _update(learner, np.random.default_rng(0))
    after = learner.weights().kernels[0]
    averaged = learner.average.weights()
    np.testing.assert_allclose(averaged.kernels[0], 0.75 * before + 0.25 * after, rtol=1e-5, atol=1e-6)
    learner.average.warm_start(averaged)
    for weights in (learner.weights(), learner.average.weights()):
        np.testing.assert_array_equal(weights.kernels[0], averaged.kernels[0])


def test_without_decisions_there_is_nothing_to_learn(make: Callable[[CategoricalHead], NetworkLearner]) -> None:
    head = binary_head()
    learner = make(head)
    before = learner.weights()
    assert learner.update(Batch.empty(head), np.random.default_rng(0)) == {}
    assert learner.weights().checksum() == before.checksum()


def test_without_a_better_decision(make: Callable[[CategoricalHead], NetworkLearner]) -> None:
    head, rng = binary_head(), np.random.default_rng(0)
    learner = make(head)
    batch = sampled(head, learner.weights(), rng, 12)
    nothing = np.zeros(12, "f4")
    _learns_finitely(learner, dataclasses.replace(batch, advantages=nothing, returns=nothing), rng)


def test_features_that_are_not_numbers(make: Callable[[CategoricalHead], NetworkLearner]) -> None:
    head, rng = masked_head(), np.random.default_rng(0)
    learner = make(head)
    values = features(head, rng, 12)
    values["a"] = np.where(rng.random(values["a"].shape) < 0.5, np.nan, np.inf).astype("f4")
    batch = dataclasses.replace(sampled(head, learner.weights(), rng, 12), observations=head.observe(values))
    # What is sampled has to be legal.
    actions = values["mask"].argmax(axis=1)
    log_probs = head.evaluate_actions(learner.weights(), batch.observations, actions)[0].astype("f4")
    _learns_finitely(learner, dataclasses.replace(batch, actions=actions, log_probs=log_probs), rng)


def _learns_finitely(learner: NetworkLearner, batch: Batch, rng: np.random.Generator) -> None:
    metrics = learner.update(batch, rng)
    assert metrics and all(np.isfinite(list(metrics.values()))), metrics
    assert all(np.isfinite(kernel).all() for kernel in learner.weights().kernels)
