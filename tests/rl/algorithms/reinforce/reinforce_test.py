"""REINFORCE learns a rule by the gradient that the paper gives."""

import dataclasses

import numpy as np
import pytest

from compiler_opt.tensorflow_loading import load_tensorflow

load_tensorflow()

from compiler_opt.rl.algorithms.reinforce import ReinforceConfig  # noqa: E402
from compiler_opt.rl.algorithms.reinforce.algorithm import ReinforceLearner  # noqa: E402
from compiler_opt.spaces.heads.head import Head  # noqa: E402
from compiler_opt.spaces.heads.networks import RANKS  # noqa: E402
from tests.rl.algorithms.toy_decisions import HEADS, NETWORK, binary_head, probabilities, quality, sampled  # noqa: E402


def _learner(head: Head | None = None, *, values: bool = False, **config: float) -> ReinforceLearner:
    settings = ReinforceConfig(**{"learning_rate": 0.02, "minibatch_size": 256, **config})  # type: ignore[arg-type]
    return ReinforceLearner(head or binary_head(), "decision", NETWORK, settings, seed=1, uses_value_network=values)


def _train(learner: ReinforceLearner, head: Head, iterations: int, rng: np.random.Generator) -> dict[str, float]:
    metrics = {}
    for _ in range(iterations):
        metrics = learner.update(sampled(head, learner.weights(), rng), rng)
    return metrics


@pytest.mark.ci
@pytest.mark.parametrize(
    ("name", "learning_rate", "entropy", "iterations"),
    [("binary", 0.01, 0.01, 25), ("masked", 0.02, 0.01, 10), ("continuous", 0.003, 0.01, 10)],
)
def test_it_learns_a_rule(name: str, learning_rate: float, entropy: float, iterations: int) -> None:
    head, rng = HEADS[name](), np.random.default_rng(0)
    learner = _learner(head, learning_rate=learning_rate, entropy_regularization=entropy)
    start = learner.weights()
    # Numbers begin at 0 with a deviation of 0.3.
    biases = np.array([0, 0.4], "f4") if name == "continuous" else start.biases[-1]
    learner.average.warm_start(dataclasses.replace(start.scaled(0), biases=(*start.biases[:-1], biases)))
    assert quality(head, learner.weights()) < 0.8
    metrics = _train(learner, head, iterations, rng)
    assert quality(head, learner.weights()) > 0.9
    assert metrics["gradient_steps"] == 8 and np.isfinite(metrics["entropy"])


def test_the_gradient_is_that_of_the_paper() -> None:
    """Neither centred nor scaled; one step of gradient descent at a rate of 1."""
    import tensorflow as tf

    rng = np.random.default_rng(3)
    learner = _learner(entropy_regularization=0.0, gradient_clipping=1e9, minibatch_size=400)
    learner.agent._optimizer = tf.keras.optimizers.SGD(1.0)
    batch = sampled(binary_head(), learner.weights(), rng, 400)
    batch = dataclasses.replace(
        batch, advantages=(7 + 3 * batch.advantages).astype("f4"), weights=rng.random(400).astype("f4")
    )
    before = learner.weights()
    chosen = np.arange(2) == batch.actions[:, np.newaxis]
    # Of -A log p(action) by the last bias.
    each = (batch.weights * batch.advantages)[:, np.newaxis] * (chosen - probabilities(before, batch.observations))
    learner.update(batch, rng)
    np.testing.assert_allclose(learner.weights().biases[-1] - before.biases[-1], each.mean(axis=0), rtol=1e-3)


@pytest.mark.ci
def test_the_value_network_is_a_baseline() -> None:
    """Returns that depend on the observation alone change nothing once the value network knows them."""
    head, rng = binary_head(), np.random.default_rng(0)
    learner = _learner(head, values=True, learning_rate=0.01, entropy_regularization=0.1, value_pred_loss_coef=0.5)
    for _ in range(30):
        batch = sampled(head, learner.weights(), rng)
        extra = np.where(batch.observations[RANKS][:, 0] > 0.5, 3, 1).astype("f4")
        learner.update(dataclasses.replace(batch, advantages=batch.advantages + extra), rng)
    assert quality(head, learner.weights()) > 0.85


@pytest.mark.ci
def test_odd_batches() -> None:
    head, rng = binary_head(), np.random.default_rng(0)
    learner = _learner(head, minibatch_size=160, entropy_regularization=0.0)
    batch = sampled(head, learner.weights(), rng, 300)
    assert learner.update(batch, rng)["gradient_steps"] == 2
    learner = _learner(head, entropy_regularization=0.0)
    before = learner.weights().kernels[0]
    # Rollouts that do not differ have no advantages.
    metrics = learner.update(dataclasses.replace(batch, advantages=np.zeros(300, "f4")), rng)
    assert metrics["loss"] == 0
    np.testing.assert_array_equal(learner.weights().kernels[0], before)
