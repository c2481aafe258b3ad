"""The heads of the action spaces: TensorFlow's networks equal numpy's, and they learn tiny problems."""

from collections.abc import Mapping

import numpy as np
import pytest

from compiler_opt.tensorflow_loading import load_tensorflow

load_tensorflow()

import tensorflow as tf  # noqa: E402

from compiler_opt import problem as problems  # noqa: E402
from compiler_opt.errors import PolicyError  # noqa: E402
from compiler_opt.llvm.training_log import Header  # noqa: E402
from compiler_opt.policies.weights import NetworkConfig  # noqa: E402
from compiler_opt.rl.algorithms.ppo import PPOConfig  # noqa: E402
from compiler_opt.rl.algorithms.ppo import algorithm as ppo  # noqa: E402
from compiler_opt.rl.behavioral_cloning import Cloner, Examples  # noqa: E402
from compiler_opt.rl.config import BehavioralCloningConfig  # noqa: E402
from compiler_opt.rl.sampled_decisions import Batch  # noqa: E402
from compiler_opt.spaces.candidates import CandidateInputs  # noqa: E402
from compiler_opt.spaces.continuous import Continuous, ContinuousPolicy  # noqa: E402
from compiler_opt.spaces.distributions import log_softmax, smoothed_labels  # noqa: E402
from compiler_opt.spaces.heads.categorical import BinaryHead, MaskedCategoricalHead  # noqa: E402
from compiler_opt.spaces.heads.continuous import ContinuousHead  # noqa: E402
from compiler_opt.spaces.quantizer import ActionQuantizer  # noqa: E402
from compiler_opt.tensor_spec import TensorSpec  # noqa: E402

_PLACES = 6
_NETWORK = NetworkConfig((16,), (8,))


class _Inputs(CandidateInputs):
    mask = "mask"
    features = ("mask", "cost", "noise")
    names = ("cost", "noise")

    def legal(self, features: Mapping[str, np.ndarray]) -> np.ndarray:
        return features["mask"] != 0

    def values(self, features: Mapping[str, np.ndarray]) -> np.ndarray:
        return np.stack([features[name] for name in self.names], axis=-1).astype(np.float32)


def _mask(places: int) -> TensorSpec:
    return TensorSpec("mask", np.dtype("i8"), (1, places))


def _candidates_head() -> MaskedCategoricalHead:
    return MaskedCategoricalHead(dict.fromkeys(_Inputs.names, np.linspace(-2.0, 2.0, 21)), _Inputs(), [_mask(_PLACES)])


def _features(rng: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    mask = rng.random((count, _PLACES)) < 0.5
    mask[np.arange(count), rng.integers(0, _PLACES, count)] = True
    cost, noise = rng.normal(size=(2, *mask.shape))
    return {"mask": mask, "cost": cost, "noise": noise}


def _cheapest(features: Mapping[str, np.ndarray]) -> np.ndarray:
    cheapest: np.ndarray = np.where(features["mask"], features["cost"], np.inf).argmin(axis=-1)
    return cheapest


def test_the_candidates_network_equals_numpys() -> None:
    head, rng = _candidates_head(), np.random.default_rng(1)
    learner = ppo.PPOLearner(head, "index", _NETWORK, PPOConfig(), seed=1)
    observations = head.observe(_features(rng, 300))
    observation = {name: tf.constant(values) for name, values in observations.items()}
    distribution, _ = learner.actor(observation, step_type=tf.ones(300, tf.int32), network_state=())
    expected = head.logits(learner.weights(), observations)
    legal = head.legal(observations)
    np.testing.assert_allclose(distribution.logits.numpy()[legal], expected[legal], atol=1e-5)
    probabilities = distribution.probs_parameter().numpy()
    assert (probabilities[~legal] == 0).all()
    np.testing.assert_allclose(probabilities, np.exp(log_softmax(expected)), atol=1e-5)


@pytest.mark.ci
def test_reinforcement_finds_the_cheapest_candidate() -> None:
    head, rng = _candidates_head(), np.random.default_rng(0)
    learner = ppo.PPOLearner(head, "index", _NETWORK, PPOConfig(learning_rate=0.01, minibatch_size=256), seed=1)
    for _ in range(20):
        features = _features(rng, 2000)
        observations = head.observe(features)
        log_probs = log_softmax(head.logits(learner.weights(), observations))
        actions = (log_probs + rng.gumbel(size=log_probs.shape)).argmax(axis=-1)
        advantages = np.where(actions == _cheapest(features), 1.0, -1.0).astype("f4")
        taken = log_probs[np.arange(2000), actions].astype("f4")
        columns = (actions, taken, advantages, advantages, np.ones_like(advantages), np.ones(2000, bool))
        metrics = learner.update(Batch(observations, *columns), rng)
    features = _features(rng, 500)
    decided = head.logits(learner.weights(), head.observe(features)).argmax(axis=-1)
    assert np.mean(decided == _cheapest(features)) > 0.85
    assert 0 < metrics["entropy"] < np.log(_PLACES)
    assert metrics["kl"] >= 0


def test_the_value_network_sees_legal_candidates_only() -> None:
    head, rng = _candidates_head(), np.random.default_rng(0)
    learner = ppo.PPOLearner(head, "index", _NETWORK, PPOConfig(), seed=1)
    features = _features(rng, 50)
    returns = learner.expected_returns(head.observe(features))
    assert returns.shape == (50,)
    hidden = {**features, "cost": np.where(features["mask"], features["cost"], 99.0)}
    np.testing.assert_array_equal(learner.expected_returns(head.observe(hidden)), returns)


def test_cloning_learns_a_rule() -> None:
    head = _candidates_head()

    def examples(seed: int) -> Examples:
        features = _features(np.random.default_rng(seed), 3000)
        return Examples(head.observe(features), _cheapest(features), num_modules=1)

    config = BehavioralCloningConfig(batch_size=64, num_epochs=12, learning_rate=1e-2, seed=3)
    cloned = Cloner(head, "index", _NETWORK, config).clone(examples(1), examples(2))
    assert cloned.best["accuracy"] > 0.9
    assert cloned.best["majority_rate"] < 0.25


_SCALE = ActionQuantizer(lowest=-4.0, highest=4.0, steps=16)


def _continuous_head() -> ContinuousHead:
    return Continuous(_SCALE).head({"size": np.linspace(0.0, 100.0, 41), "weight": np.linspace(-2.0, 2.0, 21)}, ())


def _numbers(rng: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    return {"size": rng.integers(0, 110, (count, 1)), "weight": rng.normal(size=(count, 1)).astype("f4")}


def _wanted(features: Mapping[str, np.ndarray]) -> np.ndarray:
    wanted: np.ndarray = features["size"][:, 0] / 50 - 1 + np.clip(features["weight"][:, 0], -1.0, 1.0)
    return wanted


def test_the_gaussian_network_equals_numpys() -> None:
    head, rng = _continuous_head(), np.random.default_rng(1)
    learner = ppo.PPOLearner(head, "urgency", _NETWORK, PPOConfig(), seed=1)
    observations = head.observe(_numbers(rng, 300))
    observation = {name: tf.constant(values) for name, values in observations.items()}
    distribution, _ = learner.actor(observation, step_type=tf.ones(300, tf.int32), network_state=())
    actions = distribution.sample(seed=1).numpy()
    log_probs, entropy = head.evaluate_actions(learner.weights(), observations, actions)
    np.testing.assert_allclose(distribution.log_prob(actions).numpy(), log_probs, atol=1e-4)
    np.testing.assert_allclose(distribution.entropy().numpy(), entropy, atol=1e-5)


def test_recorded_probabilities_are_those_of_the_network() -> None:
    """The policy that decides records the same probabilities as the network that learns."""
    head, rng = _continuous_head(), np.random.default_rng(1)
    learner = ppo.PPOLearner(head, "urgency", _NETWORK, PPOConfig(), seed=1)
    specs = (TensorSpec("size", np.dtype("i8"), (1,)), TensorSpec("weight", np.dtype("f4"), (1,)))
    decide = ContinuousPolicy(learner.weights(), _SCALE, temperature=1.0).start(
        Header(specs, TensorSpec("urgency", np.dtype("f4"), (1,))), seed=5
    )
    features = _numbers(rng, 200)
    rows = zip(features["size"], features["weight"], strict=True)
    advice = np.array([decide(size.tobytes() + weight.tobytes()) for size, weight in rows])
    actions, recorded = decide.sampled_actions(), decide.log_probs()
    assert actions is not None and recorded is not None
    np.testing.assert_allclose(
        head.evaluate_actions(learner.weights(), head.observe(features), actions)[0], recorded, atol=1e-4
    )
    within = (actions > _SCALE.lowest) & (actions < _SCALE.highest)
    assert within.mean() > 0.9
    # Half a step of the quantizer.
    np.testing.assert_allclose(head.actions(advice)[within], actions[within], atol=0.5 / 16 + 1e-6)


@pytest.mark.slow
def test_reinforcement_finds_the_action() -> None:
    head, rng = _continuous_head(), np.random.default_rng(0)
    learner = ppo.PPOLearner(
        head, "urgency", _NETWORK, PPOConfig(learning_rate=0.01, minibatch_size=256, entropy_regularization=0.01), 1
    )
    for _ in range(40):
        features = _numbers(rng, 2000)
        observations = head.observe(features)
        # Sampled from the learner's policy, whose deviation follows from the density at its mean.
        mean = ContinuousPolicy(learner.weights(), _SCALE).means(features)
        deviation = np.exp(-head.evaluate_actions(learner.weights(), observations, mean)[0]) / np.sqrt(2 * np.pi)
        actions = (mean + deviation * rng.normal(size=2000)).astype("f4")
        taken = head.evaluate_actions(learner.weights(), observations, actions)[0].astype("f4")
        loss = np.abs(actions - _wanted(features))
        advantages = ((loss.mean() - loss) / loss.std()).astype("f4")
        columns = (actions, taken, advantages, advantages, np.ones_like(advantages), np.ones(2000, bool))
        metrics = learner.update(Batch(observations, *columns), rng)
    features = _numbers(rng, 500)
    means = ContinuousPolicy(learner.weights(), _SCALE).means(features)
    # Always predicting the mean would be off by 0.8.
    assert np.mean(np.abs(means - _wanted(features))) < 0.4
    assert np.isfinite(metrics["entropy"]) and metrics["kl"] >= 0


def test_cloning_learns_numbers_and_the_deviation_to_explore_with() -> None:
    head = _continuous_head()

    def examples(seed: int) -> Examples:
        features = _numbers(np.random.default_rng(seed), 3000)
        # Quantized, as in a trace.
        return Examples(head.observe(features), head.actions(_SCALE.to_advice(_wanted(features))), num_modules=1)

    config = BehavioralCloningConfig(batch_size=64, num_epochs=12, learning_rate=1e-2, seed=3, label_smoothing=0.05)
    cloned = Cloner(head, "urgency", _NETWORK, config).clone(examples(1), examples(2))
    assert cloned.best["accuracy"] > 0.75
    assert cloned.best["majority_rate"] < 0.1
    assert cloned.best["mean_error"] < 0.25
    assert cloned.best["deviation"] == pytest.approx(0.05, rel=0.1)


def test_the_labels_of_a_teacher_are_its_probabilities() -> None:
    head, features = _candidates_head(), _features(np.random.default_rng(1), 50)
    observations = head.observe(features)
    weights = ppo.PPOLearner(head, "index", _NETWORK, PPOConfig(), seed=1).weights()
    actions, labels = head.taught(weights, observations)
    np.testing.assert_allclose(labels.sum(axis=1), 1.0, atol=1e-6)
    assert not labels[~head.legal(observations)].any()
    log_probs, _ = head.evaluate_actions(weights, observations, actions)
    np.testing.assert_allclose(labels[np.arange(50), actions], np.exp(log_probs), atol=1e-6)
    np.testing.assert_allclose(labels[np.arange(50), actions], labels.max(axis=1), atol=1e-6)


def test_only_choices_can_be_taught() -> None:
    head = _continuous_head()
    weights = ppo.PPOLearner(head, "urgency", _NETWORK, PPOConfig(), seed=1).weights()
    with pytest.raises(PolicyError, match="only policies that choose among actions"):
        head.taught(weights, head.observe(_numbers(np.random.default_rng(1), 3)))


def test_smoothing_is_shared_among_the_other_legal_actions() -> None:
    legal = np.array([[True, True, True, False], [False, True, False, False]])
    expected = np.array([[0.05, 0.9, 0.05, 0], [0, 1, 0, 0]])
    np.testing.assert_allclose(smoothed_labels(np.array([1, 1]), legal, 0.1), expected)


def test_the_compiler_determines_the_number_of_candidates() -> None:
    problem = problems.load("regalloc_eviction")
    quantiles = dict.fromkeys(problem.decision.feature_names, np.arange(3.0))
    head = problem.decision.head(quantiles, [_mask(7)])
    assert isinstance(head, MaskedCategoricalHead)
    assert (head.num_actions, head.noop_action) == (7, 6)
    with pytest.raises(PolicyError, match="does not send 'mask'"):
        problem.decision.head(quantiles, [])
    with pytest.raises(PolicyError, match="is for other inputs than this problem's: rank"):
        problem.decision.head({name: quantiles[name] for name in quantiles if name != "rank"}, [_mask(7)])
    priority = problems.load("regalloc_priority")
    assert isinstance(
        priority.decision.head(dict.fromkeys(priority.decision.feature_names, np.arange(3.0)), []), ContinuousHead
    )
    inlining = problems.load("inlining")
    assert isinstance(inlining.decision.head({"callsite_cost": np.arange(3.0)}, []), BinaryHead)
