"""A tiny problem for each action space, whose best decisions are known. Import after `load_tensorflow()`."""

from collections.abc import Callable, Mapping

import numpy as np

from compiler_opt.collect.advantages import standardised
from compiler_opt.policies.weights import NetworkConfig, NetworkWeights
from compiler_opt.rl.sampled_decisions import Batch
from compiler_opt.spaces.candidates import CandidateInputs
from compiler_opt.spaces.distributions import mean_and_log_deviation
from compiler_opt.spaces.heads.categorical import BinaryHead, CategoricalHead, MaskedCategoricalHead
from compiler_opt.spaces.heads.continuous import ContinuousHead
from compiler_opt.spaces.heads.head import Head
from compiler_opt.spaces.heads.networks import RANKS
from compiler_opt.spaces.learned_policy import outputs
from compiler_opt.spaces.quantizer import ActionQuantizer
from compiler_opt.tensor_spec import TensorSpec

NETWORK = NetworkConfig((16,), (8,))
PLACES = 5


class _Inputs(CandidateInputs):
    mask = "mask"
    features = ("mask", "a", "b")
    names = ("a", "b")

    def legal(self, features: Mapping[str, np.ndarray]) -> np.ndarray:
        return features["mask"] != 0

    def values(self, features: Mapping[str, np.ndarray]) -> np.ndarray:
        return np.stack([features["a"], features["b"]], axis=-1).astype(np.float32)


def binary_head() -> BinaryHead:
    """1 is right where `b` is positive."""
    return BinaryHead(dict.fromkeys("abc", np.arange(-10.0, 10.0)))


def masked_head() -> MaskedCategoricalHead:
    """The legal candidate with the largest `b` is right."""
    quantiles = dict.fromkeys("ab", np.arange(-10.0, 10.0))
    return MaskedCategoricalHead(quantiles, _Inputs(), [TensorSpec("mask", np.dtype("i8"), (1, PLACES))])


def continuous_head() -> ContinuousHead:
    """The quantile rank of `b` is right."""
    return ContinuousHead(dict.fromkeys("ab", np.arange(-10.0, 10.0)), ActionQuantizer(-2.0, 2.0, 100), [])


HEADS: dict[str, Callable[[], Head]] = {
    "binary": binary_head,
    "masked": masked_head,
    "continuous": continuous_head,
}


def features(head: Head, rng: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    """Of so many decisions."""
    if not isinstance(head, MaskedCategoricalHead):
        return {name: rng.integers(-12, 12, count) for name in head.features}
    mask = rng.random((count, PLACES)) < 0.6
    mask[:, -1] = True
    return {"mask": mask, **{name: rng.integers(-12, 12, (count, PLACES)) for name in "ab"}}


def probabilities(
    weights: NetworkWeights, observations: Mapping[str, np.ndarray], head: Head | None = None
) -> np.ndarray:
    """Of all actions, `[N, A]`; by default of binary ones."""
    head = head or binary_head()
    assert isinstance(head, CategoricalHead)
    logits = head.logits(weights, observations)
    likelihood = np.exp(logits - logits.max(axis=1, keepdims=True))
    result: np.ndarray = likelihood / likelihood.sum(axis=1, keepdims=True)
    return result


def sampled(
    head: Head, weights: NetworkWeights, rng: np.random.Generator, count: int = 2000, temperature: float = 1.0
) -> Batch:
    """Decisions of a policy, whose advantages say how good they are; in rollouts of four."""
    values = features(head, rng, count)
    observations = head.observe(values)
    if isinstance(head, ContinuousHead):
        mean, log_deviation = mean_and_log_deviation(outputs(weights, observations[RANKS]))
        actions = (mean + np.exp(log_deviation) * rng.standard_normal(count)).astype(np.float32)
    else:
        assert isinstance(head, CategoricalHead)
        logits = head.logits(weights, observations) / temperature
        gumbel = logits - np.log(-np.log(rng.random(logits.shape)))
        actions = gumbel.argmax(axis=1).astype(np.int64)
    log_probs = head.evaluate_actions(weights, observations, actions)[0].astype("f4")
    advantages = _goodness(head, values, observations, actions)
    if isinstance(head, ContinuousHead):
        advantages = standardised(advantages)
    advantages, is_last = advantages.astype("f4"), np.arange(count) % 4 == 3
    return Batch(observations, actions, log_probs, advantages, advantages, np.ones(count, "f4"), is_last)


def quality(head: Head, weights: NetworkWeights) -> float:
    """The share of the greedy policy's decisions that are right, or almost."""
    values = features(head, np.random.default_rng(99), 500)
    observations = head.observe(values)
    if isinstance(head, ContinuousHead):
        actions = mean_and_log_deviation(outputs(weights, observations[RANKS]))[0]
        return float(np.mean(_goodness(head, values, observations, actions) > 0))
    assert isinstance(head, CategoricalHead)
    actions = head.logits(weights, observations).argmax(axis=1)
    return float(np.mean(_goodness(head, values, observations, actions) > 0))


def _goodness(
    head: Head, values: Mapping[str, np.ndarray], observations: Mapping[str, np.ndarray], actions: np.ndarray
) -> np.ndarray:
    """Of actions `[N]`, 1 at most; over 0 if they are right, or almost."""
    if isinstance(head, ContinuousHead):
        result: np.ndarray = 1 - np.abs(actions - observations[RANKS][:, 1]) / 0.2
        return np.maximum(result, -3.0)
    if isinstance(head, MaskedCategoricalHead):
        b = np.where(values["mask"], values["b"], -np.inf)
        return np.where(b.max(axis=1) - b[np.arange(len(b)), actions] < 3, 1.0, -1.0)
    return np.where(actions == (values["b"] > 0), 1.0, -1.0)
