"""A problem that only a memory solves: recurrent networks learn it by each algorithm, feed-forward ones cannot."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from compiler_opt.errors import ConfigError, PolicyError
from compiler_opt.tensorflow_loading import load_tensorflow

load_tensorflow()

import tensorflow as tf  # noqa: E402

from compiler_opt.policies.lstm import LSTM  # noqa: E402
from compiler_opt.policies.weights import NetworkConfig, NetworkWeights  # noqa: E402
from compiler_opt.rl.algorithm import AlgorithmConfigs  # noqa: E402
from compiler_opt.rl.algorithms.dqn import DQNConfig  # noqa: E402
from compiler_opt.rl.algorithms.dqn.algorithm import DQNLearner  # noqa: E402
from compiler_opt.rl.algorithms.ppo import ALGORITHM, PPOConfig  # noqa: E402
from compiler_opt.rl.algorithms.ppo.algorithm import PPOLearner  # noqa: E402
from compiler_opt.rl.algorithms.reinforce import ReinforceConfig  # noqa: E402
from compiler_opt.rl.algorithms.reinforce.algorithm import ReinforceLearner  # noqa: E402
from compiler_opt.rl.behavioral_cloning import Cloned, Cloner, Examples  # noqa: E402
from compiler_opt.rl.config import BehavioralCloningConfig, TrainingConfig  # noqa: E402
from compiler_opt.rl.learner import NetworkLearner  # noqa: E402
from compiler_opt.rl.sampled_decisions import Batch  # noqa: E402
from compiler_opt.rl.training_run import TrainingRun  # noqa: E402
from compiler_opt.rl.truncated_sequences import truncate  # noqa: E402
from compiler_opt.spaces.heads import networks  # noqa: E402
from compiler_opt.spaces.heads.categorical import BinaryHead  # noqa: E402
from compiler_opt.spaces.heads.networks import FIRST  # noqa: E402

_FEATURES = ("a", "b")
_RECURRENT = NetworkConfig((8,), (8,), lstm_units=8, lstm_steps=8)
_FEED_FORWARD = NetworkConfig((8,), (8,))
_LENGTH = 12
"""Decisions of a module; more than a sequence."""


def _head() -> BinaryHead:
    return BinaryHead(dict.fromkeys(_FEATURES, np.arange(-10.0, 10.0)))


def _observed(rng: np.random.Generator, count: int, network: NetworkConfig) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Observations, and the right actions: 1 if `b` was positive in the decision before, 0 in a module's first."""
    features = {name: rng.integers(-12, 12, count) for name in _FEATURES}
    is_first = np.arange(count) % _LENGTH == 0
    right = (np.roll(features["b"], 1) > 0) & ~is_first
    observations = _head().observe(features)
    if network.lstm_units:
        observations[FIRST] = is_first.astype("f4")
    return observations, right.astype(np.int64)


def _sampled(weights: NetworkWeights, network: NetworkConfig, rng: np.random.Generator, temperature: float) -> Batch:
    """Modules decided by sampling; the advantage of a decision is 1 if it is right, else -1."""
    observations, right = _observed(rng, 100 * _LENGTH, network)
    logits = _head().logits(weights, observations) / temperature
    probability = 0.5 + 0.5 * np.tanh((logits[:, 1] - logits[:, 0]) / 2)
    actions = (rng.random(len(right)) < probability).astype(np.int64)
    log_probs = _head().evaluate_actions(weights.scaled(1 / temperature), observations, actions)[0].astype("f4")
    advantages = np.where(actions == right, 1.0, -1.0).astype("f4")
    is_last = np.arange(len(right)) % _LENGTH == _LENGTH - 1
    return Batch(observations, actions, log_probs, advantages, advantages, np.ones(len(right), "f4"), is_last)


def _quality(weights: NetworkWeights, network: NetworkConfig) -> float:
    """The share of greedy decisions that are right."""
    observations, right = _observed(np.random.default_rng(99), 100 * _LENGTH, network)
    return float(np.mean(_head().logits(weights, observations).argmax(axis=1) == right))


def _ppo(network: NetworkConfig, **settings: Any) -> PPOLearner:
    config = PPOConfig(learning_rate=0.02, minibatch_size=256, entropy_regularization=0.01, **settings)
    return PPOLearner(_head(), "decision", network, config, seed=1)


def _reinforce(network: NetworkConfig) -> ReinforceLearner:
    config = ReinforceConfig(learning_rate=0.02, minibatch_size=64, entropy_regularization=0.01)
    return ReinforceLearner(_head(), "decision", network, config, seed=1)


def _dqn(network: NetworkConfig, **settings: Any) -> DQNLearner:
    config = DQNConfig(learning_rate=0.01, minibatch_size=256, steps=20, **settings)
    return DQNLearner(_head(), "decision", network, config, seed=1)


_LEARNERS: dict[str, tuple[Callable[[NetworkConfig], NetworkLearner], int]] = {
    "ppo": (_ppo, 20),
    "reinforce": (_reinforce, 10),
    "dqn": (_dqn, 20),
    "double dqn": (lambda network: _dqn(network, discount=0.3, double=True), 20),
}
"""By name: a learner of a network, and after how many iterations it has learned."""


def _train(learner: NetworkLearner, network: NetworkConfig, iterations: int, seed: int = 0) -> list[dict[str, float]]:
    rng, metrics = np.random.default_rng(seed), []
    for _ in range(iterations):
        metrics.append(learner.update(_sampled(learner.weights(), network, rng, learner.temperature), rng))
    return metrics


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name if name == "ppo" else pytest.param(name, marks=pytest.mark.slow) for name in _LEARNERS]
)
def test_only_a_recurrent_network_learns_what_was_seen_before(name: str) -> None:
    make, iterations = _LEARNERS[name]
    recurrent, feed_forward = make(_RECURRENT), make(_FEED_FORWARD)
    metrics = _train(recurrent, _RECURRENT, iterations)
    _train(feed_forward, _FEED_FORWARD, iterations)
    assert _quality(recurrent.weights(), _RECURRENT) > 0.95
    assert _quality(feed_forward.weights(), _FEED_FORWARD) < 0.65
    assert all(np.isfinite(list(each.values())).all() for each in metrics)
    assert 0 < metrics[-1]["entropy"] < np.log(2)


def _clone(network: NetworkConfig, seed: int = 3) -> Cloned:
    config = BehavioralCloningConfig(batch_size=128, num_epochs=12, learning_rate=0.02, seed=seed)
    parts = [_observed(np.random.default_rng(seed), 200 * _LENGTH, network) for seed in (1, 2)]
    training, held_out = (Examples(observations, right, num_modules=200) for observations, right in parts)
    return Cloner(_head(), "decision", network, config).clone(training, held_out)


@pytest.mark.slow
def test_cloning_imitates_what_depends_on_earlier_decisions() -> None:
    recurrent, feed_forward = _clone(_RECURRENT), _clone(_FEED_FORWARD)
    assert recurrent.best["accuracy"] > 0.97 and _quality(recurrent.weights, _RECURRENT) > 0.97
    assert feed_forward.best["accuracy"] < 0.65
    again = _clone(_RECURRENT).weights
    assert again.checksum() == recurrent.weights.checksum() != _clone(_RECURRENT, seed=4).weights.checksum()


@pytest.mark.parametrize("steps", [1, 5, 12, 100])
def test_the_actor_computes_sequences_as_the_policy_decides_modules(steps: int) -> None:
    network = dataclasses.replace(_RECURRENT, lstm_steps=steps)
    learner, rng = _ppo(network), np.random.default_rng(5)
    # Numbers that depend on the state by far.
    weights = learner.weights()
    assert weights.lstm is not None
    larger = {name: 4 * values for name, values in weights.lstm.arrays().items()}
    networks.assign(learner.actor, dataclasses.replace(weights, lstm=LSTM(**larger)))
    batch = _sampled(learner.weights(), network, rng, 1.0).take(np.arange(80))
    sequences = truncate(learner.weights(), batch.observations, network, rng)
    assert sequences.decisions.shape == (-(-80 // steps), steps)
    assert set(sequences.decisions.reshape(-1).tolist()) == set(range(80))
    part = sequences.take(batch, np.arange(len(sequences)))
    observations = {name: tf.constant(values) for name, values in part.observations.items()}
    distribution, _ = learner.actor(observations, step_type=tf.ones(len(part), tf.int32), network_state=())
    expected = _head().logits(learner.weights(), batch.observations)[sequences.decisions.reshape(-1)]
    np.testing.assert_allclose(distribution.logits.numpy(), expected, atol=1e-4)
    log_probs = distribution.log_prob(part.actions).numpy()
    np.testing.assert_allclose(log_probs, part.log_probs, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ppo", "double dqn"])
def test_a_resumed_learner_learns_the_same(name: str, tmp_path: Path) -> None:
    make, _ = _LEARNERS[name]
    whole, resumed = make(_RECURRENT), make(_RECURRENT)
    _train(whole, _RECURRENT, 2)
    path = tf.train.Checkpoint(**whole.checkpointed()).save(str(tmp_path / "checkpoint"))
    tf.train.Checkpoint(**resumed.checkpointed()).restore(path).assert_consumed()
    assert resumed.weights().checksum() == whole.weights().checksum()
    for learner in (whole, resumed):
        _train(learner, _RECURRENT, 1, seed=7)
    for one, other in zip(_values(whole.weights()), _values(resumed.weights()), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def _values(weights: NetworkWeights) -> list[np.ndarray]:
    assert weights.lstm is not None
    return [*weights.lstm.arrays().values(), *weights.kernels, *weights.biases]


def test_staying_close_to_the_start_is_refused() -> None:
    configs = AlgorithmConfigs([PPOConfig(kl_to_start=0.5)])
    run = cast(TrainingRun, SimpleNamespace(network=_RECURRENT, config=TrainingConfig()))
    with pytest.raises(ConfigError, match=r"ppo\.kl_to_start: expected 0 with network\.lstm_units = 8, found 0\.5"):
        ALGORITHM.build(run, configs)


def test_a_feed_forward_start_is_refused() -> None:
    start = _ppo(_FEED_FORWARD).weights()
    with pytest.raises(PolicyError, match=r"network\.lstm_units"):
        networks.assign(_ppo(_RECURRENT).actor, start)
