"""The kinds of decisions that can be learned, as learning sees them: yes or no, one of several candidates, a number.

Legend: N decisions, F features of one or of a candidate, C candidates, A actions to choose from.

An *observation* is what the trained network is given: arrays by name, made of what the compiler sends. An *action* is
what is learned: a choice is its own advice, a number becomes advice by a fixed map.
"""

import abc
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from tf_agents.networks import network, value_network
from tf_agents.specs import tensor_spec

from compiler_opt.errors import PolicyError
from compiler_opt.llvm import ir2vec
from compiler_opt.policies.weights import NetworkWeights, outputs, positions_of
from compiler_opt.problems.problem import Problem
from compiler_opt.rl.config import NetworkConfig
from compiler_opt.spaces.continuous import NumberScale, log_density, log_deviation_of, mean_and_log_deviation
from compiler_opt.spaces.heads import networks
from compiler_opt.spaces.masked_categorical import CandidateInputs
from compiler_opt.tensor_spec import TensorSpec


class DecisionKind(abc.ABC):
    """One kind of decision under one vocabulary.

    Attributes:
      features: what the network sees, in order.
      quantiles: of each.
      advice_kind: of NumPy's kinds of types, that of advice.
    """

    advice_kind: str

    def __init__(self, quantiles: Mapping[str, np.ndarray]):
        self.features = tuple(quantiles)
        self.quantiles = tuple(quantiles.values())

    @property
    @abc.abstractmethod
    def sent(self) -> tuple[str, ...]:
        """Names of what the compiler sends that observations are made of."""

    @abc.abstractmethod
    def observe(self, features: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Observations of N decisions, of arrays `[N, ...]` by the compiler's names."""

    @abc.abstractmethod
    def observation_spec(self) -> dict[str, tf.TensorSpec]:
        """Of one decision."""

    @abc.abstractmethod
    def actions(self, advice: np.ndarray) -> np.ndarray:
        """What was decided, as it is learned: `[N]` of the action's type.

        Raises:
          PolicyError: an advice belongs to no action.
        """

    @abc.abstractmethod
    def action_spec(self, action_name: str) -> tensor_spec.BoundedTensorSpec:
        """Of one action."""

    @abc.abstractmethod
    def judge(
        self, weights: NetworkWeights, observations: Mapping[str, np.ndarray], actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Log probability of each action and entropy of its decision, in numpy as a policy decides; `[N]` float64."""

    @abc.abstractmethod
    def distribution_parameters(
        self, observations: Mapping[str, np.ndarray], actions: np.ndarray, log_probs: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Parameters `[N, ...]` of distributions under which the actions have those probabilities."""

    @abc.abstractmethod
    def labels(self, observations: Mapping[str, np.ndarray], actions: np.ndarray, smoothing: float) -> np.ndarray:
        """What cloning is to imitate: `[N, ...]` float32."""

    @abc.abstractmethod
    def cloning_loss(self, distribution: tfp.distributions.Distribution, labels: tf.Tensor) -> tf.Tensor:
        """How far the actor's distribution is from labels; `[N]`."""

    @abc.abstractmethod
    def cloning_metrics(
        self, weights: NetworkWeights, observations: Mapping[str, np.ndarray], actions: np.ndarray, labels: np.ndarray
    ) -> dict[str, float]:
        """What a clone is worth, in numpy as the policy will decide.

        `loss`, as `cloning_loss`; `accuracy`, how often it is right; `majority_rate`, how often always answering the
        same would be.
        """

    @abc.abstractmethod
    def actor(self, action_name: str, config: NetworkConfig, seed: int) -> network.DistributionNetwork:
        """The policy's network, whose variables become `NetworkWeights`."""

    @abc.abstractmethod
    def critic(self, config: NetworkConfig, seed: int) -> value_network.ValueNetwork:
        """Expected return; used by the classical reward only, and never exported."""


class Choice(DecisionKind):
    """One of A actions, which are the advice.

    Attributes:
      num_actions: A.
      passive_action: the one that leaves things as they are: not to inline, to evict nothing.
    """

    advice_kind = "i"
    num_actions: int
    passive_action: int

    @abc.abstractmethod
    def legal(self, observations: Mapping[str, np.ndarray]) -> np.ndarray:
        """`[N, A]` bool, what may be chosen."""

    @abc.abstractmethod
    def logits(self, weights: NetworkWeights, observations: Mapping[str, np.ndarray]) -> np.ndarray:
        """As the policy will decide, in numpy: `[N, A]` float64, minus infinity for what is illegal."""

    def actions(self, advice: np.ndarray) -> np.ndarray:
        if len(advice) and (advice.min() < 0 or advice.max() >= self.num_actions):
            raise PolicyError(
                f"expected decisions of 0 to {self.num_actions - 1}, found {advice.min()} to {advice.max()}"
            )
        return advice

    def action_spec(self, action_name: str) -> tensor_spec.BoundedTensorSpec:
        return networks.action_spec(action_name, self.num_actions)

    def judge(
        self, weights: NetworkWeights, observations: Mapping[str, np.ndarray], actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        log_probs = log_softmax(self.logits(weights, observations))
        possible = np.where(np.isfinite(log_probs), log_probs, 0.0)
        entropy = -(np.exp(log_probs) * possible).sum(axis=-1)
        return log_probs[np.arange(len(actions)), actions], entropy

    def distribution_parameters(
        self, observations: Mapping[str, np.ndarray], actions: np.ndarray, log_probs: np.ndarray
    ) -> dict[str, np.ndarray]:
        # The action tells as much: it has its probability, what else is legal shares the rest.
        legal = self.legal(observations)
        chosen = np.arange(self.num_actions) == actions[:, np.newaxis]
        others = (legal & ~chosen).sum(axis=-1)
        log_prob = np.where(others > 0, np.minimum(log_probs.astype(np.float64), -1e-9), 0.0)
        with np.errstate(divide="ignore"):
            rest = np.log(-np.expm1(log_prob)) - np.log(np.maximum(others, 1))
        logits = np.where(chosen, log_prob[:, np.newaxis], np.where(legal, rest[:, np.newaxis], networks.IMPOSSIBLE))
        return {"logits": logits}

    def labels(self, observations: Mapping[str, np.ndarray], actions: np.ndarray, smoothing: float) -> np.ndarray:
        return smoothed(actions, self.legal(observations), smoothing)

    def cloning_loss(self, distribution: tfp.distributions.Distribution, labels: tf.Tensor) -> tf.Tensor:
        return tf.nn.softmax_cross_entropy_with_logits(labels, distribution.logits)

    def cloning_metrics(
        self, weights: NetworkWeights, observations: Mapping[str, np.ndarray], actions: np.ndarray, labels: np.ndarray
    ) -> dict[str, float]:
        log_probs = log_softmax(self.logits(weights, observations))
        # Nothing is lost on what is illegal: its label is 0.
        loss = -(labels * np.where(labels > 0, log_probs, 0.0)).sum(axis=-1)
        advised = log_probs.argmax(axis=-1)
        return {
            "loss": float(loss.mean()),
            "accuracy": float((advised == actions).mean()),
            "majority_rate": float(np.bincount(actions).max() / len(actions)),
            "advised_rate": float((advised != self.passive_action).mean()),
            "default_rate": float((actions != self.passive_action).mean()),
        }


class YesOrNo(Choice):
    """Advice 0 or 1 by integers that describe the whole decision."""

    num_actions = 2
    passive_action = 0

    @property
    def sent(self) -> tuple[str, ...]:
        return self.features

    def observe(self, features: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {name: features[name].reshape(len(features[name])) for name in self.features}

    def observation_spec(self) -> dict[str, tf.TensorSpec]:
        return networks.observation_spec(self.features)

    def legal(self, observations: Mapping[str, np.ndarray]) -> np.ndarray:
        return np.ones((len(observations[self.features[0]]), self.num_actions), bool)

    def logits(self, weights: NetworkWeights, observations: Mapping[str, np.ndarray]) -> np.ndarray:
        values = np.stack([observations[name] for name in weights.features], axis=-1)
        return outputs(weights, positions_of(weights.quantiles, values)).astype(np.float64)

    def actor(self, action_name: str, config: NetworkConfig, seed: int) -> network.DistributionNetwork:
        return networks.actor_network(self.features, self.quantiles, self.action_spec(action_name), config, seed)

    def critic(self, config: NetworkConfig, seed: int) -> value_network.ValueNetwork:
        inputs = networks.QuantileInputs(self.features, self.quantiles)
        return networks.critic_network(self.observation_spec(), inputs, config, seed)


class YesOrNoByPositions(YesOrNo):
    """Advice 0 or 1 by numbers of any kind that describe the whole decision.

    Observations are the features' positions among the quantiles, `[N, F]` float32.
    """

    def observe(self, features: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return positions_observed(self.features, self.quantiles, features)

    def observation_spec(self) -> dict[str, tf.TensorSpec]:
        return positions_spec(self.features)

    def legal(self, observations: Mapping[str, np.ndarray]) -> np.ndarray:
        return np.ones((len(observations["positions"]), self.num_actions), bool)

    def logits(self, weights: NetworkWeights, observations: Mapping[str, np.ndarray]) -> np.ndarray:
        return outputs(weights, observations["positions"]).astype(np.float64)

    def actor(self, action_name: str, config: NetworkConfig, seed: int) -> network.DistributionNetwork:
        action = self.action_spec(action_name)
        return networks.positions_actor(networks.ChoiceActor, self.observation_spec(), action, config, seed)

    def critic(self, config: NetworkConfig, seed: int) -> value_network.ValueNetwork:
        return networks.critic_network(self.observation_spec(), networks.ExpandedPositions(), config, seed)


class OneOfCandidates(Choice):
    """Advice is the place of a candidate; the last place leaves things as they are.

    Observations are the candidates' positions among the quantiles `[N, C, F]` float32, and which are `legal`, `[N, C]`
    float32.
    """

    def __init__(
        self,
        quantiles: Mapping[str, np.ndarray],
        inputs: CandidateInputs,
        num_candidates: int,
        sent: Collection[str] = (),
    ):
        """Raises PolicyError when the vocabulary is not of these inputs."""
        super().__init__(quantiles)
        if self.features != inputs.names:
            odd = sorted(set(self.features) ^ set(inputs.names))
            raise PolicyError(f"vocabulary: is for other inputs than this problem has: {', '.join(odd) or 'order'}")
        self.inputs = inputs
        self._used = inputs.used(sent)
        self.num_actions = num_candidates
        self.passive_action = num_candidates - 1

    @property
    def sent(self) -> tuple[str, ...]:
        return self._used

    def observe(self, features: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {
            "positions": positions_of(self.quantiles, self.inputs.values(features)),
            "legal": self.inputs.legal(features).astype(np.float32),
        }

    def observation_spec(self) -> dict[str, tf.TensorSpec]:
        return {
            "positions": tf.TensorSpec((self.num_actions, len(self.features)), tf.float32, "positions"),
            "legal": tf.TensorSpec((self.num_actions,), tf.float32, "legal"),
        }

    def legal(self, observations: Mapping[str, np.ndarray]) -> np.ndarray:
        return observations["legal"] > 0

    def logits(self, weights: NetworkWeights, observations: Mapping[str, np.ndarray]) -> np.ndarray:
        scores = outputs(weights, observations["positions"])[..., 0].astype(np.float64)
        return np.where(self.legal(observations), scores, -np.inf)

    def actor(self, action_name: str, config: NetworkConfig, seed: int) -> network.DistributionNetwork:
        action = self.action_spec(action_name)
        return networks.positions_actor(networks.CandidateActor, self.observation_spec(), action, config, seed)

    def critic(self, config: NetworkConfig, seed: int) -> value_network.ValueNetwork:
        return networks.critic_network(self.observation_spec(), networks.MeanOfLegal(), config, seed)


class Number(DecisionKind):
    """A real number with a Gaussian around it, by numbers that describe the whole decision; a scale makes it advice.

    Observations are the features' positions among the quantiles, `[N, F]` float32.
    """

    advice_kind = "f"

    def __init__(self, quantiles: Mapping[str, np.ndarray], scale: NumberScale):
        super().__init__(quantiles)
        self.scale = scale

    @property
    def sent(self) -> tuple[str, ...]:
        return self.features

    def observe(self, features: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return positions_observed(self.features, self.quantiles, features)

    def observation_spec(self) -> dict[str, tf.TensorSpec]:
        return positions_spec(self.features)

    def actions(self, advice: np.ndarray) -> np.ndarray:
        return self.scale.to_actions(advice)

    def action_spec(self, action_name: str) -> tensor_spec.BoundedTensorSpec:
        return networks.number_spec(action_name, self.scale.lowest, self.scale.highest)

    def judge(
        self, weights: NetworkWeights, observations: Mapping[str, np.ndarray], actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        mean, log_deviation = self._gaussian(weights, observations)
        return log_density(actions, mean, log_deviation), log_deviation + 0.5 * np.log(2 * np.pi * np.e)

    def distribution_parameters(
        self, observations: Mapping[str, np.ndarray], actions: np.ndarray, log_probs: np.ndarray
    ) -> dict[str, np.ndarray]:
        # Around the action itself, as wide as gives it its density.
        deviation = np.exp(-np.clip(log_probs.astype(np.float64), -_MAX_LOG_DENSITY, _MAX_LOG_DENSITY))
        return {"loc": actions, "scale": deviation / np.sqrt(2 * np.pi)}

    def labels(self, observations: Mapping[str, np.ndarray], actions: np.ndarray, smoothing: float) -> np.ndarray:
        """`[N, 2]`: what was decided, and the logarithm of the deviation to explore with."""
        return np.stack([actions, np.full(len(actions), log_deviation_of(smoothing))], axis=-1).astype(np.float32)

    def cloning_loss(self, distribution: tfp.distributions.Distribution, labels: tf.Tensor) -> tf.Tensor:
        # Not the likelihood: a wide Gaussian would be a way out of learning the mean.
        return tf.square(distribution.loc - labels[:, 0]) + tf.square(tf.math.log(distribution.scale) - labels[:, 1])

    def cloning_metrics(
        self, weights: NetworkWeights, observations: Mapping[str, np.ndarray], actions: np.ndarray, labels: np.ndarray
    ) -> dict[str, float]:
        """The accuracy is the share of pairs of decisions that are put in the same order; equals count as one."""
        mean, log_deviation = self._gaussian(weights, observations)
        loss = np.square(mean - labels[:, 0]) + np.square(log_deviation - labels[:, 1])
        others = np.random.default_rng(len(actions)).permutation(len(actions))
        advised, decided = (self.scale.to_advice(values) for values in (mean, actions))
        expected = np.sign(decided - decided[others])
        return {
            "loss": float(loss.mean()),
            "accuracy": float((np.sign(advised - advised[others]) == expected).mean()),
            "majority_rate": float((expected == 0).mean()),
            "mean_error": float(np.abs(mean - actions).mean()),
            "deviation": float(np.exp(log_deviation).mean()),
        }

    def actor(self, action_name: str, config: NetworkConfig, seed: int) -> network.DistributionNetwork:
        action = self.action_spec(action_name)
        return networks.positions_actor(networks.NumberActor, self.observation_spec(), action, config, seed)

    def critic(self, config: NetworkConfig, seed: int) -> value_network.ValueNetwork:
        return networks.critic_network(self.observation_spec(), networks.ExpandedPositions(), config, seed)

    def _gaussian(
        self, weights: NetworkWeights, observations: Mapping[str, np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        return mean_and_log_deviation(outputs(weights, observations["positions"]))


_MAX_LOG_DENSITY = 50.0
"""Of what a policy draws: less is never drawn, and no deviation gives more."""


def decision_kind(problem: Problem, quantiles: Mapping[str, np.ndarray], sent: Sequence[TensorSpec]) -> DecisionKind:
    """The kind of a problem's decisions.

    Args:
      problem: what is decided.
      quantiles: the vocabulary; features that the problem does not know are left out.
      sent: what the compiler sends.

    Raises:
      PolicyError: the compiler sends other than the problem needs.
    """
    known = {name: quantiles[name] for name in problem.known(spec.name for spec in sent) if name in quantiles}
    if problem.scale is not None:
        return Number(known, problem.scale)
    if problem.candidates is None:
        return YesOrNoByPositions(known) if ir2vec.components(known) else YesOrNo(known)
    places = {spec.num_elements for spec in sent if spec.name == problem.candidates.mask}
    if len(places) != 1:
        raise PolicyError(f"{problem.name}: the compiler does not send {problem.candidates.mask!r}")
    return OneOfCandidates(known, problem.candidates, places.pop(), [spec.name for spec in sent])


def positions_observed(
    names: Sequence[str], quantiles: Sequence[np.ndarray], features: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Positions among the quantiles `[N, F]` float32 of features `[N]` or `[N, 1]`."""
    columns = [features[name].reshape(len(features[name])) for name in names]
    return {"positions": positions_of(quantiles, np.stack(columns, axis=-1))}


def positions_spec(features: Sequence[str]) -> dict[str, tf.TensorSpec]:
    """Of one decision's positions."""
    return {"positions": tf.TensorSpec((len(features),), tf.float32, "positions")}


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """`[N, A]` to `[N, A]`; minus infinity stays so."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    result: np.ndarray = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result


def smoothed(actions: np.ndarray, legal: np.ndarray, smoothing: float) -> np.ndarray:
    """Probabilities `[N, A]` float32: all but `smoothing` on what was decided, the rest on what else is legal."""
    chosen = np.arange(legal.shape[1]) == actions[:, np.newaxis]
    others = legal & ~chosen
    count = others.sum(axis=-1, keepdims=True)
    share = np.where(count > 0, smoothing, 0.0)
    result: np.ndarray = np.where(chosen, 1 - share, others * share / np.maximum(count, 1)).astype(np.float32)
    return result
