"""The networks that are trained, and their way to and from the numpy form that decides (`policies.weights`).

Legend: N decisions, F features, Q quantiles (the longest list), A actions.
"""

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from tf_agents.networks import actor_distribution_network, network, value_network
from tf_agents.specs import distribution_spec, tensor_spec
from tf_agents.trajectories import time_step as ts

from compiler_opt.errors import PolicyError
from compiler_opt.llvm import ir2vec
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.distributions import LOG_DEVIATION_RANGE, MIDDLE_LOG_DEVIATION
from compiler_opt.spaces.network_config import NetworkConfig
from compiler_opt.spaces.quantile_encoder import QuantileEncoder, Thresholds

IMPOSSIBLE = -1e9
"""The logit of what is illegal."""


RANKS, LEGAL = "quantile_ranks", "legal"
"""Names among observations: `[..., F]`, and of candidates `[..., C, F]` with `[..., C]`, 1 for what is legal."""


class RankTable:
    """Quantile ranks in TensorFlow: the same as `QuantileEncoder.ranks`, of features of one type."""

    def __init__(self, thresholds: Sequence[Thresholds]):
        columns = [np.repeat(each.values, each.counts) for each in thresholds]
        longest = max(map(len, columns))
        dtype = columns[0].dtype
        largest = np.inf if dtype.kind == "f" else np.iinfo(dtype).max
        padded = [np.pad(column, (0, longest - len(column)), constant_values=largest) for column in columns]
        self._table = np.array(padded)  # [F, Q]
        self._reachable = np.array([[len(column)] for column in columns], np.int32)  # [F, 1]
        self._lengths = np.array([[each.num_quantiles] for each in thresholds], np.float32)  # [F, 1]

    def __call__(self, values: tf.Tensor) -> tf.Tensor:
        """`[F, N]` of the thresholds' type to `[N, F]` float32."""
        # Padding can be reached, by the largest value of all.
        reached = tf.minimum(tf.searchsorted(tf.constant(self._table), values, side="right"), self._reachable)
        return tf.transpose(tf.cast(reached, tf.float32) / self._lengths)


class QuantileInputs(tf.keras.layers.Layer):
    """Integer features, a dictionary of int64 tensors `[N]` or `[N, 1]`, to their expanded ranks `[N, 3 F]` float32."""

    def __init__(self, features: Sequence[str], quantiles: Sequence[np.ndarray], **kwargs: Any):
        super().__init__(**kwargs)
        self._features = tuple(features)
        # Arrays: Keras wraps lists, and looks through all their numbers whenever it is asked for its variables.
        self._quantiles = tuple(np.asarray(column, np.float64) for column in quantiles)
        self._table = RankTable(QuantileEncoder(quantiles).integer_thresholds)

    def get_config(self) -> dict[str, Any]:
        quantiles = [column.tolist() for column in self._quantiles]
        return {**super().get_config(), "features": list(self._features), "quantiles": quantiles}

    def call(self, inputs: Any) -> tf.Tensor:
        by_name = inputs if isinstance(inputs, Mapping) else dict(zip(sorted(self._features), inputs, strict=True))
        values = tf.reshape(tf.stack([by_name[name] for name in self._features]), [len(self._features), -1])  # [F, N]
        return _expanded(self._table(values))


class _RankActor(network.DistributionNetwork):
    """Dense rectified layers over quantile ranks `[..., F]`, then a dense one; subclasses make a distribution of it."""

    def __init__(
        self,
        observation: Mapping[str, tf.TensorSpec],
        distribution: distribution_spec.DistributionSpec,
        fc_layer_params: Sequence[int],
        num_outputs: int,
        seed: int,
        name: str = "actor",
    ):
        super().__init__(input_tensor_spec=observation, state_spec=(), output_spec=distribution, name=name)
        # Keras heeds no seed of TensorFlow's: each layer has its own.
        *hidden, last = (tf.keras.initializers.GlorotUniform(seed + layer) for layer in range(len(fc_layer_params) + 1))
        self._hidden = [
            tf.keras.layers.Dense(units, activation="relu", kernel_initializer=initializer)
            for units, initializer in zip(fc_layer_params, hidden, strict=True)
        ]
        self._last = tf.keras.layers.Dense(num_outputs, kernel_initializer=last)

    def outputs(self, ranks: tf.Tensor) -> tf.Tensor:
        """`[..., F]` to `[..., num_outputs]`."""
        activations = _expanded(ranks)
        for layer in self._hidden:
            activations = layer(activations)
        return self._last(activations)

    @abc.abstractmethod
    def distribution(self, observation: Any) -> tfp.distributions.Distribution:
        """Of the actions, for the observations by name."""

    def call(
        self, observation: Any, step_type: Any = None, network_state: Any = (), training: bool = False, mask: Any = None
    ) -> tuple[Any, Any]:
        del step_type, training, mask
        return self.distribution(observation), network_state


class CategoricalActor(_RankActor):
    """A categorical distribution over A actions, of `quantile_ranks` `[..., F]`."""

    def __init__(
        self,
        observation: Mapping[str, tf.TensorSpec],
        action: tensor_spec.BoundedTensorSpec,
        fc_layer_params: Sequence[int],
        seed: int,
        name: str = "actor",
    ):
        num_actions = int(action.maximum) + 1
        logits = tf.TensorSpec((num_actions,), tf.float32, f"{name}_logits")
        categorical = distribution_spec.DistributionSpec(
            tfp.distributions.Categorical, {"logits": logits}, sample_spec=action, dtype=action.dtype
        )
        super().__init__(observation, categorical, fc_layer_params, self._num_outputs(num_actions), seed, name)
        self._dtype_of_action = action.dtype

    @staticmethod
    def _num_outputs(num_actions: int) -> int:
        """Of the network."""
        return num_actions

    def distribution(self, observation: Any) -> tfp.distributions.Categorical:
        return tfp.distributions.Categorical(logits=self.outputs(observation[RANKS]), dtype=self._dtype_of_action)


class CandidateActor(CategoricalActor):
    """Scores every candidate by the same network; a categorical distribution over the legal ones.

    The same computation as `MaskedCategoricalPolicy`, of `quantile_ranks` `[..., C, F]` and `legal` `[..., C]`.
    """

    @staticmethod
    def _num_outputs(num_actions: int) -> int:
        del num_actions
        return 1

    def distribution(self, observation: Any) -> tfp.distributions.Categorical:
        scores = tf.squeeze(self.outputs(observation[RANKS]), axis=-1)
        # Not minus infinity, whose product with a probability of 0 would be no number.
        logits = tf.where(observation[LEGAL] > 0, scores, IMPOSSIBLE)
        return tfp.distributions.Categorical(logits=logits, dtype=self._dtype_of_action)


class GaussianActor(_RankActor):
    """A Gaussian over a real number; the same computation as `ContinuousPolicy`, of `quantile_ranks` `[..., F]`."""

    def __init__(
        self,
        observation: Mapping[str, tf.TensorSpec],
        action: tensor_spec.BoundedTensorSpec,
        fc_layer_params: Sequence[int],
        seed: int,
        name: str = "actor",
    ):
        parameters = {key: tf.TensorSpec(action.shape, tf.float32, f"{name}_{key}") for key in ("loc", "scale")}
        normal = distribution_spec.DistributionSpec(tfp.distributions.Normal, parameters, sample_spec=action)
        super().__init__(observation, normal, fc_layer_params, 2, seed, name)

    def distribution(self, observation: Any) -> tfp.distributions.Normal:
        mean, raw = tf.unstack(self.outputs(observation[RANKS]), axis=-1)
        deviation = tf.exp(MIDDLE_LOG_DEVIATION + LOG_DEVIATION_RANGE * tf.tanh(raw))
        return tfp.distributions.Normal(mean, deviation)


class ExpandedRanks(tf.keras.layers.Layer):
    """`quantile_ranks` `[N, F]` to `[N, 3 F]`."""

    def call(self, inputs: Any) -> tf.Tensor:
        return _expanded(inputs[RANKS] if isinstance(inputs, Mapping) else tf.nest.flatten(inputs)[0])


class MeanOfLegal(tf.keras.layers.Layer):
    """The mean over the legal candidates: `quantile_ranks` `[N, C, F]` and `legal` `[N, C]` to `[N, 3 F]`."""

    def call(self, inputs: Any) -> tf.Tensor:
        observation = inputs if isinstance(inputs, Mapping) else dict(zip((LEGAL, RANKS), inputs, strict=True))
        legal = observation[LEGAL][..., tf.newaxis]
        total = tf.reduce_sum(_expanded(observation[RANKS]) * legal, axis=-2)
        return total / tf.maximum(tf.reduce_sum(legal, axis=-2), 1)


def _expanded(ranks: tf.Tensor) -> tf.Tensor:
    """As `quantile_encoder.expand`: `[..., F]` to `[..., 3 F]`."""
    stacked = tf.stack([ranks, tf.sqrt(ranks), tf.square(ranks)], axis=-1)
    return tf.reshape(stacked, [*tf.unstack(tf.shape(ranks))[:-1], 3 * ranks.shape[-1]])


class AdviceNetwork(network.Network):
    """From scalar features and embeddings as the compiler sends them to a policy's greedy advice; for SavedModels."""

    def __init__(
        self,
        inputs: Mapping[str, tf.TensorSpec],
        features: Sequence[str],
        encoder: QuantileEncoder,
        actor: network.DistributionNetwork,
        advice: Callable[[tfp.distributions.Distribution], tf.Tensor],
    ):
        """Makes the network.

        Args:
          inputs: the compiler's tensors, by name.
          features: what the actor sees, in order; an embedding's numbers are a feature each.
          encoder: makes quantile ranks of them.
          actor: sees these.
          advice: makes advice of its distribution.
        """
        super().__init__(input_tensor_spec=inputs, state_spec=(), name="advice")
        self._features = tuple(features)
        self._table = RankTable(encoder.thresholds)
        self._actor = actor
        self._advice = advice

    def call(
        self, observation: Any, step_type: Any = None, network_state: Any = (), training: bool = False
    ) -> tuple[Any, Any]:
        del step_type, training
        columns = []
        for name in self._features:
            place = ir2vec.tensor_and_place(name)
            column = observation[name] if place is None else observation[place[0]][..., place[1]]
            # In 64 bits all that is sent compares exactly, infinity included.
            columns.append(tf.cast(column, tf.float64))
        distribution, _ = self._actor({RANKS: self._table(tf.stack(columns))})
        return self._advice(distribution), network_state


def integers_spec(features: Sequence[str]) -> dict[str, tf.TensorSpec]:
    """Scalar int64 tensors by name."""
    return {name: tf.TensorSpec((), tf.int64, name) for name in features}


def time_step_spec(features: Sequence[str]) -> ts.TimeStep:
    return ts.time_step_spec(integers_spec(features))


def categorical_spec(name: str, num_actions: int) -> tensor_spec.BoundedTensorSpec:
    """A choice between 0 and `num_actions - 1`."""
    return tensor_spec.BoundedTensorSpec((), tf.int64, 0, num_actions - 1, name)


def continuous_spec(name: str, lowest: float, highest: float) -> tensor_spec.BoundedTensorSpec:
    """A real number, mostly between the two."""
    return tensor_spec.BoundedTensorSpec((), tf.float32, lowest, highest, name)


def actor_network(
    features: Sequence[str],
    quantiles: Sequence[np.ndarray],
    action: tensor_spec.BoundedTensorSpec,
    config: NetworkConfig,
    seed: int,
) -> actor_distribution_network.ActorDistributionNetwork:
    """The policy: quantile inputs, dense rectified layers, a categorical distribution over the actions."""
    tf.random.set_seed(seed)
    actor = actor_distribution_network.ActorDistributionNetwork(
        integers_spec(features),
        action,
        preprocessing_combiner=QuantileInputs(features, quantiles),
        fc_layer_params=config.fc_layer_params,
        name="actor",
    )
    actor.create_variables()
    return actor


def rank_actor(
    actor_class: type[CategoricalActor] | type[GaussianActor],
    observation: Mapping[str, tf.TensorSpec],
    action: tensor_spec.BoundedTensorSpec,
    config: NetworkConfig,
    seed: int,
) -> CategoricalActor | GaussianActor:
    """The policy that sees quantile ranks, of candidates or of a whole decision."""
    actor = actor_class(observation, action, config.fc_layer_params, seed)
    actor.create_variables()
    return actor


def critic_network(
    observation: Mapping[str, tf.TensorSpec], inputs: tf.keras.layers.Layer, config: NetworkConfig, seed: int
) -> value_network.ValueNetwork:
    """Expected return of a state, by a layer that makes one vector of an observation.

    Used by the classical reward only, and never exported.
    """
    tf.random.set_seed(seed + 1)
    critic = value_network.ValueNetwork(
        observation,
        preprocessing_combiner=inputs,
        fc_layer_params=config.value_fc_layer_params,
        name="critic",
    )
    critic.create_variables()
    return critic


def to_weights(
    actor: network.DistributionNetwork,
    features: Sequence[str],
    quantiles: Sequence[np.ndarray],
    metadata: Mapping[str, Any] | None = None,
) -> NetworkWeights:
    """The network's current weights in the form that decides."""
    variables = [variable.numpy() for variable in actor.trainable_weights]
    return NetworkWeights(
        tuple(features), tuple(quantiles), tuple(variables[0::2]), tuple(variables[1::2]), metadata or {}
    )


def assign(actor: network.DistributionNetwork, weights: NetworkWeights) -> None:
    """Loads weights into a network of the same shape.

    Raises:
      PolicyError: the shapes differ.
    """
    variables = actor.trainable_weights
    values = [value for layer in zip(weights.kernels, weights.biases, strict=True) for value in layer]
    found, expected = [value.shape for value in values], [tuple(variable.shape) for variable in variables]
    if found != expected:
        raise PolicyError(
            f"policy network: expected layers of shapes {expected} (see network.fc_layer_params), found {found}; "
            "use the configuration that the policy was trained with"
        )
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
