"""PPO learns a rule, and measures how far each update moved the policy."""

import numpy as np
import pytest

from compiler_opt.tensorflow_loading import load_tensorflow

load_tensorflow()

from compiler_opt.policies.weights import NetworkConfig  # noqa: E402
from compiler_opt.rl.algorithms.ppo import PPOConfig  # noqa: E402
from compiler_opt.rl.algorithms.ppo import algorithm as ppo  # noqa: E402
from compiler_opt.spaces.binary import BinaryPolicy  # noqa: E402
from compiler_opt.spaces.heads.categorical import BinaryHead  # noqa: E402

_FEATURES = ("a", "b", "c")


def _learner(seed: int = 1, **config: float) -> ppo.PPOLearner:
    return ppo.PPOLearner(
        BinaryHead(dict.fromkeys(_FEATURES, np.arange(-10.0, 10.0))),
        "decision",
        NetworkConfig((16,), (8,)),
        PPOConfig(learning_rate=0.01, minibatch_size=256, **config),  # type: ignore[arg-type]
        seed,
    )


def _batch(learner: ppo.PPOLearner, rng: np.random.Generator, size: int = 2000) -> ppo.Batch:
    """Decisions sampled from the learner's policy; 1 is right when `b` is positive."""
    features = {name: rng.integers(-12, 12, size) for name in _FEATURES}
    logits = BinaryPolicy(learner.weights()).logits(features).astype(np.float64)
    probability = 1 / (1 + np.exp(logits[:, 0] - logits[:, 1]))
    actions = (rng.random(size) < probability).astype(np.int64)
    log_probs = np.log(np.where(actions == 1, probability, 1 - probability))
    advantages = np.where(actions == (features["b"] > 0), 1.0, -1.0)
    return ppo.Batch(features, actions, log_probs.astype("f4"), advantages.astype("f4"), advantages.astype("f4"))


def test_it_learns_a_rule() -> None:
    learner, rng = _learner(), np.random.default_rng(0)
    for _ in range(15):
        metrics = learner.update(_batch(learner, rng), rng)
    features = {name: rng.integers(-12, 12, 500) for name in _FEATURES}
    decisions = BinaryPolicy(learner.weights()).logits(features).argmax(axis=1)
    assert np.mean(decisions == (features["b"] > 0)) > 0.95
    assert 0 < metrics["entropy"] < np.log(2)
    assert metrics["kl"] >= 0


def test_the_same_seed_learns_the_same() -> None:
    kernels = []
    for _ in range(2):
        learner, rng = _learner(seed=5), np.random.default_rng(5)
        learner.update(_batch(learner, rng, 500), rng)
        kernels.append(learner.weights().kernels[0])
    np.testing.assert_allclose(kernels[0], kernels[1], rtol=1e-5, atol=1e-7)


def test_the_tensorflow_network_is_the_numpy_network() -> None:
    import tensorflow as tf

    learner, rng = _learner(), np.random.default_rng(2)
    features = {name: rng.integers(-(2**40), 2**40, 300) // 2 ** rng.integers(0, 40, 300) for name in _FEATURES}
    observation = {name: tf.constant(values) for name, values in features.items()}
    distribution, _ = learner.actor(observation, step_type=tf.ones(300, tf.int32), network_state=())
    np.testing.assert_allclose(distribution.logits.numpy(), BinaryPolicy(learner.weights()).logits(features), atol=1e-5)


def test_the_value_network_learns_returns() -> None:
    learner, rng = _learner(value_pred_loss_coef=1.0), np.random.default_rng(0)
    for _ in range(30):
        batch = _batch(learner, rng)
        batch = ppo.Batch(
            batch.observations, batch.actions, batch.log_probs, np.zeros(2000, "f4"), np.full(2000, 3.0, "f4")
        )
        learner.update(batch, rng)
    assert learner.expected_returns(batch.observations).mean() == pytest.approx(3.0, abs=0.3)


def test_the_average_follows_the_weights() -> None:
    learner, rng = _learner(averaging=0.75), np.random.default_rng(0)
    before = learner.weights().kernels[0]
    learner.update(_batch(learner, rng, 500), rng)
    after = learner.weights().kernels[0]
    averaged = learner.average.weights()
    np.testing.assert_allclose(averaged.kernels[0], 0.75 * before + 0.25 * after, rtol=1e-5, atol=1e-6)
    learner.average.warm_start(averaged)
    np.testing.assert_array_equal(learner.average.weights().kernels[0], averaged.kernels[0])


def test_a_large_iteration_is_sampled_down() -> None:
    learner, rng = _learner(max_decisions=100), np.random.default_rng(0)
    learner.update(_batch(learner, rng, 300), rng)
    # 3 epochs of one minibatch of 100 decisions.
    assert int(learner.agent.train_step_counter.numpy()) == 3
