"""The kinds of decisions that can be learned, as learning sees them: yes or no, and one of several candidates.

Legend: N decisions, F features of one or of a candidate, C candidates, A actions.

An *observation* is what the trained network is given: arrays by name, made of what the compiler sends.
"""

import abc
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
from tf_agents.networks import network, value_network

from compiler_opt.errors import PolicyError
from compiler_opt.policies.candidates import CandidateInputs
from compiler_opt.policies.network import NetworkWeights, outputs, positions_of
from compiler_opt.problems.problem import Problem
from compiler_opt.rl import networks
from compiler_opt.rl.config import NetworkConfig
from compiler_opt.tensor_spec import TensorSpec


class DecisionKind(abc.ABC):
    """One kind of decision under one vocabulary.

    Attributes:
      features: what the network sees, in order.
      quantiles: of each.
      num_actions: A.
      passive_action: the one that leaves things as they are: not to inline, to evict nothing.
    """

    num_actions: int
    passive_action: int

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
    def legal(self, observations: Mapping[str, np.ndarray]) -> np.ndarray:
        """`[N, A]` bool, what may be chosen."""

    @abc.abstractmethod
    def logits(self, weights: NetworkWeights, observations: Mapping[str, np.ndarray]) -> np.ndarray:
        """As the policy will decide, in numpy: `[N, A]` float64, minus infinity for what is illegal."""

    @abc.abstractmethod
    def actor(self, action_name: str, config: NetworkConfig, seed: int) -> network.DistributionNetwork:
        """The policy's network, whose variables become `NetworkWeights`."""

    @abc.abstractmethod
    def critic(self, config: NetworkConfig, seed: int) -> value_network.ValueNetwork:
        """Expected return; used by the classical reward only, and never exported."""


class YesOrNo(DecisionKind):
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
        action = networks.action_spec(action_name, self.num_actions)
        return networks.actor_network(self.features, self.quantiles, action, config, seed)

    def critic(self, config: NetworkConfig, seed: int) -> value_network.ValueNetwork:
        inputs = networks.QuantileInputs(self.features, self.quantiles)
        return networks.critic_network(self.observation_spec(), inputs, config, seed)


class OneOfCandidates(DecisionKind):
    """Advice is the place of a candidate; the last place leaves things as they are.

    Observations are the candidates' positions among the quantiles `[N, C, F]` float32, and which are `legal`, `[N, C]`
    float32.
    """

    def __init__(self, quantiles: Mapping[str, np.ndarray], inputs: CandidateInputs, num_candidates: int):
        """Raises PolicyError when the vocabulary is not of these inputs."""
        super().__init__(quantiles)
        if self.features != inputs.names:
            odd = sorted(set(self.features) ^ set(inputs.names))
            raise PolicyError(f"vocabulary: is for other inputs than this problem has: {', '.join(odd) or 'order'}")
        self._inputs = inputs
        self.num_actions = num_candidates
        self.passive_action = num_candidates - 1

    @property
    def sent(self) -> tuple[str, ...]:
        return self._inputs.features

    def observe(self, features: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {
            "positions": positions_of(self.quantiles, self._inputs.values(features)),
            "legal": self._inputs.legal(features).astype(np.float32),
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
        action = networks.action_spec(action_name, self.num_actions)
        return networks.candidate_actor(self.observation_spec(), action, config, seed)

    def critic(self, config: NetworkConfig, seed: int) -> value_network.ValueNetwork:
        return networks.critic_network(self.observation_spec(), networks.MeanOfLegal(), config, seed)


def decision_kind(problem: Problem, quantiles: Mapping[str, np.ndarray], sent: Sequence[TensorSpec]) -> DecisionKind:
    """The kind of a problem's decisions.

    Args:
      problem: what is decided.
      quantiles: the vocabulary; features that the problem does not know are left out.
      sent: what the compiler sends.

    Raises:
      PolicyError: the compiler sends other than the problem needs.
    """
    known = {name: quantiles[name] for name in problem.feature_names if name in quantiles}
    if problem.candidates is None:
        return YesOrNo(known)
    places = {spec.num_elements for spec in sent if spec.name == problem.candidates.mask}
    if len(places) != 1:
        raise PolicyError(f"{problem.name}: the compiler does not send {problem.candidates.mask!r}")
    return OneOfCandidates(known, problem.candidates, places.pop())


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
