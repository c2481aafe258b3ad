"""The protocol of a head: what learning algorithms need to know of an action space, in TensorFlow.

Legend: N decisions, F features that the network sees.

    observations = head.observe(features)                     # the compiler's features as the network sees them
    actions = head.actions(advice)                            # the advice as it is learned
    actor = head.actor(action_name, config, seed)             # the policy network
    log_probs, entropy = head.evaluate_actions(head.to_weights(actor), observations, actions)

A recurrent actor's observations are truncated sequences, see `networks.RankActor`.

An *observation* is the input of the trained network: arrays by name. An *action* is what the network learns to choose,
*advice* what the compiler receives: for a choice they are the same, a real number is quantized.
"""

import abc
import functools
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from tf_agents.networks import network, value_network
from tf_agents.policies import actor_policy, tf_policy
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts

from compiler_opt.errors import PolicyError
from compiler_opt.llvm import ir2vec
from compiler_opt.policies.lstm import LSTM
from compiler_opt.policies.weights import NetworkConfig, NetworkWeights
from compiler_opt.spaces.heads import networks
from compiler_opt.spaces.quantile_encoder import QuantileEncoder
from compiler_opt.tensor_spec import TensorSpec


class Head(abc.ABC):
    """An action space under one vocabulary.

    By default, features are scalars of any type, and an observation is their quantile ranks, `[N, F]` float32.

    Attributes:
      features: of the network, in order.
      quantiles: of each feature.
      encoder: of features as quantile ranks.
      advice_is_float: whether advice is a floating-point number.
    """

    advice_is_float = False

    def __init__(self, quantiles: Mapping[str, np.ndarray], compiler_features: Sequence[TensorSpec] = ()):
        """Binds the vocabulary; only `signature` needs the compiler's features."""
        self.features = tuple(quantiles)
        self.quantiles = tuple(quantiles.values())
        self.encoder = QuantileEncoder(self.quantiles)
        self._dtypes = {spec.name: spec.dtype for spec in compiler_features}

    @property
    def compiler_features(self) -> tuple[str, ...]:
        """Names of the compiler's features that observations are computed from."""
        return self.features

    def check_examples(self, features: Sequence[TensorSpec], advice: TensorSpec) -> None:
        """Raises PolicyError unless decisions with such tensors can be cloned."""
        if (advice.dtype.kind == "f") != self.advice_is_float:
            found, expected = ("choice", "number") if self.advice_is_float else ("number", "choice")
            raise PolicyError(f"{advice.name}: expected a {expected}, found a {found}; make a trace for this problem")

    def observe(self, features: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Observations of N decisions, from arrays `[N, ...]` by the compiler's names."""
        columns = [features[name].reshape(len(features[name])) for name in self.features]
        return {networks.RANKS: self.encoder.ranks_of_columns(columns)}

    def observation_spec(self) -> dict[str, tf.TensorSpec]:
        """Of one decision."""
        return {networks.RANKS: tf.TensorSpec((len(self.features),), tf.float32, networks.RANKS)}

    @abc.abstractmethod
    def actions(self, advice: np.ndarray) -> np.ndarray:
        """The actions of advice, `[N]` of the action's type.

        Raises:
          PolicyError: some advice has no action.
        """

    @abc.abstractmethod
    def action_spec(self, action_name: str) -> tensor_spec.BoundedTensorSpec:
        """Of one action."""

    @abc.abstractmethod
    def evaluate_actions(
        self, weights: NetworkWeights, observations: Mapping[str, np.ndarray], actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Log probability of each action and entropy of its decision, in numpy as a policy decides; `[N]` float64."""

    @abc.abstractmethod
    def labels(self, observations: Mapping[str, np.ndarray], actions: np.ndarray, smoothing: float) -> np.ndarray:
        """Targets of cloning, `[N, ...]` float32."""

    def taught(self, teacher: NetworkWeights, observations: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """What a policy of this head would decide: its most probable actions `[N]`, and labels as `labels` `[N, ...]`.

        Raises:
          PolicyError: policies of this action space cannot teach others.
        """
        del teacher, observations
        raise PolicyError("only policies that choose among actions can teach others")

    @abc.abstractmethod
    def cloning_loss(self, distribution: tfp.distributions.Distribution, labels: tf.Tensor) -> tf.Tensor:
        """Loss of the actor's distribution against labels, `[N]`."""

    @abc.abstractmethod
    def cloning_metrics(
        self, weights: NetworkWeights, observations: Mapping[str, np.ndarray], actions: np.ndarray, labels: np.ndarray
    ) -> dict[str, float]:
        """Metrics of a clone, in numpy as it will decide.

        `loss` is the mean of `cloning_loss`, `accuracy` the share of decisions that are right, `majority_rate` the
        accuracy of always giving the most frequent answer.
        """

    @abc.abstractmethod
    def actor(self, action_name: str, config: NetworkConfig, seed: int) -> network.DistributionNetwork:
        """The policy network."""

    def encoding(self) -> tf.keras.layers.Layer:
        """A layer that encodes an observation as one vector, for networks that are never exported."""
        return networks.ExpandedRanks()

    def critic(self, config: NetworkConfig, seed: int) -> value_network.ValueNetwork:
        """The value network, see `networks.critic_network`."""
        return networks.critic_network(self.observation_spec(), self.encoding(), config, seed)

    def to_weights(
        self, actor: network.DistributionNetwork, values: Sequence[np.ndarray] | None = None
    ) -> NetworkWeights:
        """An actor's weights in the form that decides: its current ones, or other values of its trainable weights."""
        values = [variable.numpy() for variable in actor.trainable_weights] if values is None else list(values)
        # Dense layers have two variables each; an LSTM has three, and comes first.
        lstm = LSTM(*values[:3]) if len(values) % 2 else None
        dense = values[3:] if lstm is not None else values
        return NetworkWeights(
            self.features, self.quantiles, tuple(dense[0::2]), tuple(dense[1::2]), metadata={}, lstm=lstm
        )

    def from_weights(self, weights: NetworkWeights, action_name: str) -> network.DistributionNetwork:
        """An actor with these weights."""
        units = 0 if weights.lstm is None else weights.lstm.units
        config = NetworkConfig(tuple(len(bias) for bias in weights.biases[:-1]), lstm_units=units)
        actor = self.actor(action_name, config, seed=0)
        networks.assign(actor, weights)
        return actor

    def signature(self, weights: NetworkWeights, action_name: str) -> tf_policy.TFPolicy:
        """The greedy policy from the compiler's tensors to the advice, to be saved as a SavedModel.

        Args:
          weights: of this head's features.
          action_name: the advice's name, such as `inlining_decision`.

        Raises:
          PolicyError: the compiler does not provide a feature.
        """
        inputs = self.compiler_tensors()
        actor = self.from_weights(weights, "action")
        assert isinstance(actor, networks.RankActor)
        advice = functools.partial(self.advice, margin=weights.margin)
        advising = networks.AdviceNetwork(inputs, self.encoder, actor, self.observe_tensors, advice)
        return actor_policy.ActorPolicy(ts.time_step_spec(inputs), self.advice_spec(action_name), advising)

    def advice_spec(self, action_name: str) -> tensor_spec.BoundedTensorSpec:
        """Of one decision's advice."""
        return self.action_spec(action_name)

    @abc.abstractmethod
    def advice(self, outputs: tf.Tensor, observations: Mapping[str, tf.Tensor], margin: float) -> tf.Tensor:
        """The greedy advice of the network's outputs `[N, ...]` for observations, in TensorFlow: `[N]`.

        `observations` are from `observe_tensors`; the margin is the policy's, see `NetworkWeights`.
        """

    def observe_tensors(self, tensors: Mapping[str, tf.Tensor], ranks: networks.Ranks) -> dict[str, tf.Tensor]:
        """As `observe`, in TensorFlow: the observations of `compiler_tensors`, given a way to rank features."""
        columns = []
        for name in self.features:
            place = ir2vec.tensor_and_place(name)
            columns.append(tensors[name] if place is None else tensors[place[0]][..., place[1]])
        return {networks.RANKS: ranks(columns)}

    def compiler_tensors(self) -> dict[str, tf.TensorSpec]:
        """The compiler's tensors of one decision; an embedding is one tensor, each of whose elements is a feature.

        Raises:
          PolicyError: the compiler does not send a feature.
        """
        missing = [name for name in self.features if name not in self._dtypes]
        if missing:
            raise PolicyError(f"policy: needs features that this compiler does not send: {', '.join(missing)}")
        inputs: dict[str, tf.TensorSpec] = {}
        for name in self.features:
            dtype = tf.as_dtype(self._dtypes[name])
            place = ir2vec.tensor_and_place(name)
            if place is None:
                inputs[name] = tf.TensorSpec((), dtype, name)
            elif place[0] not in inputs or place[1] >= inputs[place[0]].shape[0]:
                inputs[place[0]] = tf.TensorSpec((place[1] + 1,), dtype, place[0])
        return inputs
