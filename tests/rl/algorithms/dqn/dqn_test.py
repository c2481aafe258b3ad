"""DQN learns the values of actions, explores by them as TF-Agents does, and values what follows."""

import dataclasses
import types
from typing import cast

import numpy as np
import pytest

from compiler_opt import problem as problems
from compiler_opt.collect.advantages import AdvantagesConfig
from compiler_opt.errors import ConfigError
from compiler_opt.tensorflow_loading import load_tensorflow

load_tensorflow()

from compiler_opt.rl.algorithm import AlgorithmConfigs  # noqa: E402
from compiler_opt.rl.algorithms.dqn import ALGORITHM, DQNConfig  # noqa: E402
from compiler_opt.rl.algorithms.dqn.algorithm import DQNLearner  # noqa: E402
from compiler_opt.rl.config import TrainingConfig  # noqa: E402
from compiler_opt.rl.sampled_decisions import Batch  # noqa: E402
from compiler_opt.rl.training_run import TrainingRun  # noqa: E402
from compiler_opt.spaces.heads.categorical import CategoricalHead  # noqa: E402
from tests.rl.algorithms.toy_decisions import (  # noqa: E402
    HEADS,
    NETWORK,
    binary_head,
    features,
    probabilities,
    quality,
    sampled,
)


def _learner(head: CategoricalHead | None = None, **config: float) -> DQNLearner:
    settings = {"learning_rate": 0.01, "minibatch_size": 128, "steps": 60, "gradient_clipping": 10.0, **config}
    return DQNLearner(head or binary_head(), "decision", NETWORK, DQNConfig(**settings), seed=1)  # type: ignore[arg-type]


def _head(name: str) -> CategoricalHead:
    head = HEADS[name]()
    assert isinstance(head, CategoricalHead)
    return head


def _train(learner: DQNLearner, head: CategoricalHead, iterations: int, rng: np.random.Generator) -> dict[str, float]:
    metrics = {}
    for _ in range(iterations):
        batch = sampled(head, learner.weights(), rng, temperature=learner.temperature)
        metrics = learner.update(batch, rng)
    return metrics


@pytest.mark.ci
@pytest.mark.parametrize("name", ["binary", "masked"])
def test_it_learns_a_rule(name: str) -> None:
    head, rng = _head(name), np.random.default_rng(0)
    learner = _learner(head)
    metrics = _train(learner, head, 5, rng)
    assert quality(head, learner.weights()) > 0.9
    batch = sampled(head, learner.weights(), rng)
    assert learner.value_correlation(batch) > 0.5
    assert metrics["loss"] < 0.9 and metrics["entropy"] > 0


@pytest.mark.ci
def test_values_are_the_expected_rewards() -> None:
    """In episodes of one step: the mean of rewards, whatever follows."""
    head, rng = binary_head(), np.random.default_rng(0)
    learner = _learner(head)
    batch = sampled(head, learner.weights(), rng)
    rewards = (np.where(batch.actions == 1, 0.7, -0.3) + rng.normal(0, 0.5, len(batch))).astype("f4")
    for _ in range(4):
        learner.update(dataclasses.replace(batch, advantages=rewards), rng)
    values = head.logits(learner.weights(), batch.observations).mean(axis=0)
    np.testing.assert_allclose(values, [-0.3, 0.7], atol=0.1)


@pytest.mark.ci
@pytest.mark.parametrize("double", [False, True])
def test_values_include_what_follows(double: bool) -> None:
    """Four decisions of reward 1 each: 1 + 1/2 + 1/4 + 1/8 is what the first is worth, 1 the last."""
    head, rng = binary_head(), np.random.default_rng(0)
    learner = _learner(head, discount=0.5, double=double, target_update_period=10)
    batch = sampled(head, learner.weights(), rng)
    place = np.arange(len(batch)) % 4
    observations = head.observe({**features(head, rng, len(batch)), "a": 5 * place - 8})
    batch = dataclasses.replace(batch, observations=observations, advantages=np.ones(len(batch), "f4"))
    for _ in range(6):
        learner.update(batch, rng)
    values = head.logits(learner.weights(), batch.observations)
    means = [values[place == each].mean() for each in range(4)]
    np.testing.assert_allclose(means, [1.875, 1.75, 1.5, 1.0], atol=0.15)


@pytest.mark.parametrize("name", ["binary", "masked"])
def test_exploration_is_the_agents(name: str) -> None:
    import tensorflow as tf
    from tf_agents.trajectories import time_step as ts

    head, rng = _head(name), np.random.default_rng(0)
    learner = _learner(head)
    learner.set_progress(0.5)
    # Halfway, in the exponent, from 1 to 0.1.
    assert learner.temperature == pytest.approx(10**-0.5)
    observations = head.observe(features(head, rng, 50))
    step = ts.restart({key: tf.constant(values) for key, values in observations.items()}, batch_size=50)
    distribution = learner.agent.collect_policy.distribution(step).action
    found = probabilities(learner.weights().scaled(1 / learner.temperature), observations, head)
    np.testing.assert_allclose(found, tf.nn.softmax(distribution.logits).numpy(), atol=1e-5)
    legal = head.legal(observations)
    assert (found[~legal] == 0).all()


def test_the_start_keeps_its_probabilities() -> None:
    head, rng = binary_head(), np.random.default_rng(0)
    start = _learner(learning_rate=0.1)
    _train(start, head, 1, rng)
    config = DQNConfig(first_temperature=0.3)
    learner = DQNLearner(head, "decision", NETWORK, config, 2, start.weights())
    observations = head.observe(features(head, rng, 50))
    np.testing.assert_allclose(
        probabilities(learner.weights().scaled(1 / 0.3), observations),
        probabilities(start.weights(), observations),
        rtol=1e-4,
    )


def test_odd_batches() -> None:
    head, rng = binary_head(), np.random.default_rng(0)
    learner = _learner(head, steps=2)
    assert learner.value_correlation(Batch.empty(head)) == 0
    batch = sampled(head, learner.weights(), rng, 10)
    # Fewer decisions than a minibatch, all equally good.
    batch = dataclasses.replace(batch, advantages=np.zeros(10, "f4"))
    assert np.isfinite(learner.update(batch, rng)["loss"])
    assert learner.value_correlation(batch) == 0


def test_a_large_iteration_is_cut_to_whole_rollouts() -> None:
    head, rng = binary_head(), np.random.default_rng(0)
    batch = dataclasses.replace(sampled(head, _learner().weights(), rng, 40), returns=np.arange(40, dtype="f4"))
    assert batch.sample_rollouts(40, rng) is batch
    part = batch.sample_rollouts(10, rng)
    assert len(part) == 10 and part.is_last.sum() == 3 and part.is_last[-1]
    # Each is followed by what followed it.
    steps = np.diff(part.returns)
    assert (steps[~part.is_last[:-1]] == 1).all()
    rows = part.rows()
    for name, values in Batch.from_rows(rows).rows().items():
        np.testing.assert_array_equal(values, rows[name])


def _build(problem: str, **config: float) -> None:
    training = TrainingConfig()
    run = types.SimpleNamespace(config=training, problem=problems.load(problem))
    configs = AlgorithmConfigs([AdvantagesConfig(), DQNConfig(**config)])  # type: ignore[arg-type]
    ALGORITHM.build(cast(TrainingRun, run), configs)


def test_what_it_cannot_learn_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"regalloc_priority: dqn learns a value for each action; .* use ppo"):
        _build("regalloc_priority")
    with pytest.raises(ConfigError, match=r"dqn\.double: .* expected dqn\.discount over 0, found 0"):
        _build("inlining", double=True)
