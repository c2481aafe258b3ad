"""PPO learns a rule, and measures how far each update moved the policy."""

import dataclasses
from typing import cast

import numpy as np
import pytest

from compiler_opt.collect.advantages import AdvantagesConfig
from compiler_opt.errors import ConfigError
from compiler_opt.tensorflow_loading import load_tensorflow

load_tensorflow()

from compiler_opt.policies.weights import NetworkConfig, NetworkWeights  # noqa: E402
from compiler_opt.rl.algorithm import AlgorithmConfigs  # noqa: E402
from compiler_opt.rl.algorithms.ppo import ALGORITHM, PPOConfig  # noqa: E402
from compiler_opt.rl.algorithms.ppo import algorithm as ppo  # noqa: E402
from compiler_opt.rl.sampled_decisions import Batch  # noqa: E402
from compiler_opt.rl.training_run import TrainingRun  # noqa: E402
from compiler_opt.spaces.binary import BinaryPolicy  # noqa: E402
from compiler_opt.spaces.heads.categorical import BinaryHead  # noqa: E402

_FEATURES = ("a", "b", "c")


def _head() -> BinaryHead:
    return BinaryHead(dict.fromkeys(_FEATURES, np.arange(-10.0, 10.0)))


def _learner(seed: int = 1, start: NetworkWeights | None = None, **config: float) -> ppo.PPOLearner:
    return ppo.PPOLearner(
        _head(),
        "decision",
        NetworkConfig((16,), (8,)),
        PPOConfig(learning_rate=0.01, minibatch_size=256, **config),  # type: ignore[arg-type]
        seed,
        start,
    )


def _batch(learner: ppo.PPOLearner, rng: np.random.Generator, size: int = 2000) -> Batch:
    """Decisions sampled from the learner's policy; 1 is right when `b` is positive."""
    features = {name: rng.integers(-12, 12, size) for name in _FEATURES}
    logits = BinaryPolicy(learner.weights()).logits(features).astype(np.float64)
    probability = 1 / (1 + np.exp(logits[:, 0] - logits[:, 1]))
    actions = (rng.random(size) < probability).astype(np.int64)
    log_probs = np.log(np.where(actions == 1, probability, 1 - probability))
    advantages = np.where(actions == (features["b"] > 0), 1.0, -1.0)
    log_probs, advantages = log_probs.astype("f4"), advantages.astype("f4")
    observations, ones = _head().observe(features), np.ones(size, "f4")
    return Batch(observations, actions, log_probs, advantages, advantages, ones, np.ones(size, bool))


@pytest.mark.ci
def test_it_learns_a_rule() -> None:
    learner, rng = _learner(), np.random.default_rng(0)
    for _ in range(15):
        metrics = learner.update(_batch(learner, rng), rng)
    features = {name: rng.integers(-12, 12, 500) for name in _FEATURES}
    decisions = BinaryPolicy(learner.weights()).logits(features).argmax(axis=1)
    assert np.mean(decisions == (features["b"] > 0)) > 0.95
    assert 0 < metrics["entropy"] < np.log(2)
    assert metrics["kl"] >= 0


def test_the_tensorflow_network_is_the_numpy_network() -> None:
    import tensorflow as tf

    learner, rng = _learner(), np.random.default_rng(2)
    features = {name: rng.integers(-(2**40), 2**40, 300) // 2 ** rng.integers(0, 40, 300) for name in _FEATURES}
    observation = {name: tf.constant(values) for name, values in _head().observe(features).items()}
    distribution, _ = learner.actor(observation, step_type=tf.ones(300, tf.int32), network_state=())
    np.testing.assert_allclose(distribution.logits.numpy(), BinaryPolicy(learner.weights()).logits(features), atol=1e-5)


@pytest.mark.ci
def test_the_value_network_learns_returns() -> None:
    learner, rng = _learner(value_pred_loss_coef=1.0), np.random.default_rng(0)
    for _ in range(30):
        batch = _batch(learner, rng)
        batch = dataclasses.replace(batch, advantages=np.zeros(2000, "f4"), returns=np.full(2000, 3.0, "f4"))
        learner.update(batch, rng)
    assert learner.expected_returns(batch.observations).mean() == pytest.approx(3.0, abs=0.3)


def _probabilities(learner: ppo.PPOLearner, batch: Batch) -> np.ndarray:
    """`[N, 2]`."""
    logits = _head().logits(learner.weights(), batch.observations)
    likelihood = np.exp(logits - logits.max(axis=1, keepdims=True))
    return likelihood / likelihood.sum(axis=1, keepdims=True)


def test_the_gradient_is_that_of_our_advantages() -> None:
    """Neither centred nor scaled, and decisions whose advantage and return are 0 count like the others."""
    learner, rng = _learner(entropy_regularization=0.0), np.random.default_rng(3)
    batch = _batch(learner, rng, 400)
    advantages = (7 + 3 * batch.advantages).astype("f4")
    advantages[::2] = 0
    batch = dataclasses.replace(batch, advantages=advantages, returns=np.zeros(400, "f4"))
    # On the decisions of the policy itself the ratio is 1; the gradient by the last bias is that of -A log p(action).
    chosen = np.arange(2) == batch.actions[:, np.newaxis]
    expected = -(advantages[:, np.newaxis] * (chosen - _probabilities(learner, batch))).mean(axis=0)
    np.testing.assert_allclose(learner.gradients(batch)[-1], expected, rtol=1e-4)
    doubled = learner.gradients(dataclasses.replace(batch, advantages=2 * advantages))
    for once, twice in zip(learner.gradients(batch), doubled, strict=True):
        np.testing.assert_allclose(2 * once, twice, rtol=1e-4, atol=1e-5)


@pytest.mark.ci
@pytest.mark.parametrize("term", ["advantages", "entropy_regularization", "kl_to_start"])
def test_decisions_count_by_their_weight(term: str) -> None:
    entropy, kl = (0.5 if term == name else 0.0 for name in ("entropy_regularization", "kl_to_start"))
    learner = _learner(start=_learner(seed=8).weights(), entropy_regularization=entropy, kl_to_start=kl)
    rng = np.random.default_rng(3)
    learner.update(_batch(learner, rng), rng)  # away from the start
    batch = _batch(learner, rng, 400)
    if term != "advantages":
        batch = dataclasses.replace(batch, advantages=np.zeros(400, "f4"))
    weights = np.where(np.arange(400) < 100, 4, 0).astype("f4")
    expected = learner.gradients(batch.take(np.arange(100)))
    assert np.abs(expected[-1]).max() > 0
    for found, wanted in zip(learner.gradients(dataclasses.replace(batch, weights=weights)), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-6)


def test_the_gradient_stops_where_the_ratio_is_clipped() -> None:
    learner, rng = _learner(entropy_regularization=0.0, importance_ratio_clipping=0.2), np.random.default_rng(3)
    batch = _batch(learner, rng, 400)
    good = dataclasses.replace(batch, advantages=np.ones(400, "f4"), log_probs=batch.log_probs - np.float32(0.3))
    assert all(np.abs(gradient).max() == 0 for gradient in learner.gradients(good))
    bad = dataclasses.replace(good, advantages=-np.ones(400, "f4"))
    assert np.abs(learner.gradients(bad)[-1]).max() > 0


@pytest.mark.ci
def test_decisions_of_an_older_policy_count_by_their_importance() -> None:
    learner, rng = _learner(entropy_regularization=0.0), np.random.default_rng(3)
    old = _batch(learner, rng, 4000)
    np.testing.assert_allclose(learner.corrected(old).advantages, old.advantages, rtol=1e-5)
    for _ in range(3):
        learner.update(_batch(learner, rng), rng)
    now = _probabilities(learner, old)[np.arange(len(old)), old.actions]
    then = np.exp(old.log_probs.astype(float))
    assert (now > 1.3 * then).any() and (now < 0.7 * then).any()
    rare = dataclasses.replace(old, log_probs=old.log_probs - np.float32(9))
    np.testing.assert_allclose(learner.corrected(rare).advantages, 10 * old.advantages, rtol=1e-5)
    assert not len(learner.corrected(Batch.empty(_head())))
    corrected = learner.corrected(old)
    np.testing.assert_allclose(corrected.log_probs, np.log(now), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(corrected.advantages, old.advantages * np.minimum(10, now / then), rtol=1e-4, atol=1e-5)
    # The ratio is 1 before the update, so nothing is clipped, however far the policy has moved since.
    chosen = np.arange(2) == old.actions[:, np.newaxis]
    expected = -(corrected.advantages[:, np.newaxis] * (chosen - _probabilities(learner, old))).mean(axis=0)
    np.testing.assert_allclose(learner.gradients(corrected)[-1], expected, rtol=1e-3, atol=1e-5)


@pytest.mark.ci
def test_the_policy_is_drawn_towards_its_start() -> None:
    from compiler_opt.spaces.heads import networks

    start = _learner(seed=8).weights()
    with_kl, without = (_learner(entropy_regularization=0.0, kl_to_start=weight, start=start) for weight in (0.5, 0.0))
    np.testing.assert_array_equal(with_kl.weights().kernels[0], start.kernels[0])
    for learner in (with_kl, without):
        networks.assign(learner.actor, _learner(seed=9).weights())
    batch = _batch(with_kl, np.random.default_rng(3), 400)
    now = _probabilities(with_kl, batch)
    logits = _head().logits(start, batch.observations)
    log_ratio = np.log(now) - logits + np.logaddexp(logits[:, 0], logits[:, 1])[:, np.newaxis]
    kl = (now * log_ratio).sum(axis=1, keepdims=True)
    # The gradient of KL(p || q) by a logit is p (log(p / q) - KL).
    expected = 0.5 * (now * (log_ratio - kl)).mean(axis=0)
    difference = with_kl.gradients(batch)[-1] - without.gradients(batch)[-1]
    np.testing.assert_allclose(difference, expected, rtol=1e-3, atol=1e-5)
    metrics = with_kl.update(dataclasses.replace(batch, advantages=np.zeros(400, "f4")), np.random.default_rng(0))
    assert 0 < metrics["kl_to_start"] <= kl.mean() * 1.2
    with pytest.raises(ConfigError, match=r"ppo\.kl_to_start: expected a policy to start from"):
        _learner(kl_to_start=0.5)


@pytest.mark.ci
def test_the_kl_penalty_is_that_of_the_policy_that_decided() -> None:
    from compiler_opt.spaces.heads import networks

    with_kl, without = (
        _learner(entropy_regularization=0.0, kl_target=target, importance_ratio_clipping=1e9) for target in (0.01, 0.0)
    )
    batch = _batch(with_kl, np.random.default_rng(3), 400)
    batch = dataclasses.replace(batch, advantages=np.zeros(400, "f4"))
    before = _probabilities(with_kl, batch)
    with_kl.update(batch, np.random.default_rng(0))  # remembers the policy that decided; it has weight 1 / 1.5 then
    for learner in (with_kl, without):
        networks.assign(learner.actor, _learner(seed=9).weights())
    # The gradient of KL(p || q) by a logit of q is q - p.
    expected = (_probabilities(with_kl, batch) - before).mean(axis=0) / 1.5
    difference = with_kl.gradients(batch)[-1] - without.gradients(batch)[-1]
    np.testing.assert_allclose(difference, expected, rtol=1e-3, atol=1e-6)


@pytest.mark.slow
def test_the_kl_penalty_adapts_to_its_target() -> None:
    rules, weights = [], []
    for target in (1e-4, 1e-2):
        learner, rng = _learner(kl_target=target), np.random.default_rng(0)
        metrics = [learner.update(_batch(learner, rng), rng) for _ in range(12)]
        weights.append(metrics[-1]["kl_weight"])
        rules.append(np.mean([each["kl"] for each in metrics]))
        # Above 1.5 times the target, the weight rises by half; below half of it, it falls by a third.
        factors = np.array([each["kl_weight"] for each in metrics]) / [1, *(each["kl_weight"] for each in metrics[:-1])]
        ratio = np.array([each["kl"] for each in metrics]) / target
        expected = np.where(ratio > 1.5, 1.5, np.where(ratio < 0.5, 1 / 1.5, 1.0))
        np.testing.assert_allclose(factors, expected, rtol=1e-5)
    assert rules[0] < rules[1] and weights[0] > weights[1]


def test_an_untrained_value_network_is_refused() -> None:
    configs = AlgorithmConfigs([AdvantagesConfig("moving_average"), PPOConfig(value_pred_loss_coef=0.0)])
    with pytest.raises(ConfigError, match=r"expected ppo\.value_pred_loss_coef over 0, found 0"):
        ALGORITHM.build(cast(TrainingRun, None), configs)


@pytest.mark.ci
def test_a_pass_over_a_large_iteration_is_bounded() -> None:
    learner, rng = _learner(max_decisions=100), np.random.default_rng(0)
    batch = _batch(learner, rng, 300)
    metrics = learner.update(batch, rng)
    assert metrics["gradient_steps"] == 3 and metrics["gradient_norm"] > 0
    # 3 epochs of one minibatch of 100 decisions.
    assert int(learner.agent.train_step_counter.numpy()) == 3


@pytest.mark.parametrize(("count", "visited", "num_epochs"), [(10, 4, 5), (300, 100, 3), (7, 7, 2)])
def test_passes_visit_all_decisions_equally_often(count: int, visited: int, num_epochs: int) -> None:
    orders = list(ppo.epochs(count, visited, num_epochs, np.random.default_rng(0)))
    assert [len(order) for order in orders] == [visited] * num_epochs
    assert np.bincount(np.concatenate(orders), minlength=count).tolist() == [visited * num_epochs // count] * count
    assert not np.array_equal(orders[0], np.sort(orders[0]))
