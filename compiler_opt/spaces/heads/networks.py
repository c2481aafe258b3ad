"""The networks that are trained, and their way to and from the numpy form that decides (`policies.network`).

Legend: N decisions, F features, Q quantiles (the longest list), A actions.
"""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from tf_agents.networks import actor_distribution_network, network, value_network
from tf_agents.specs import distribution_spec, tensor_spec
from tf_agents.trajectories import time_step as ts

from compiler_opt.errors import PolicyError
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.rl.config import NetworkConfig
from compiler_opt.spaces.continuous import LOG_DEVIATION_RANGE, MIDDLE_LOG_DEVIATION

IMPOSSIBLE = -1e9
"""The logit of what is illegal."""


class QuantileInputs(tf.keras.layers.Layer):
    """Replaces every feature by x, sqrt(x) and x^2, x being the share of its quantiles that it reaches.

    The same computation as `policies.network.expand(quantile_positions(...))`, for a dictionary of int64 tensors `[N]`
    (or `[N, 1]`), to `[N, 3 F]` float32.
    """

    def __init__(self, features: Sequence[str], quantiles: Sequence[np.ndarray], **kwargs: Any):
        super().__init__(**kwargs)
        self._features = tuple(features)
        # Arrays: Keras wraps lists, and looks through all their numbers whenever it is asked for its variables.
        self._quantiles = tuple(np.asarray(column, np.float64) for column in quantiles)
        longest = max(len(column) for column in quantiles)
        # v >= q is v >= ceil(q) for integers, which compare exactly. Padding is above every value: it is never reached.
        table = np.full((len(quantiles), longest), np.iinfo(np.int64).max)
        for row, column in zip(table, quantiles, strict=True):
            row[: len(column)] = np.ceil(column).astype(np.int64)
        self._table = table  # [F, Q]
        self._lengths = np.array([[len(column)] for column in quantiles], np.float32)  # [F, 1]

    def get_config(self) -> dict[str, Any]:
        quantiles = [column.tolist() for column in self._quantiles]
        return {**super().get_config(), "features": list(self._features), "quantiles": quantiles}

    def call(self, inputs: Any) -> tf.Tensor:
        by_name = inputs if isinstance(inputs, Mapping) else dict(zip(sorted(self._features), inputs, strict=True))
        values = tf.reshape(tf.stack([by_name[name] for name in self._features]), [len(self._features), -1])  # [F, N]
        reached = tf.searchsorted(tf.constant(self._table), values, side="right")
        positions = tf.transpose(tf.cast(reached, tf.float32) / self._lengths)  # [N, F]
        return _expanded(positions)


class _PositionsActor(network.DistributionNetwork):
    """Dense rectified layers over `positions` `[..., F]`, and a dense one; subclasses make a distribution of that."""

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

    def outputs(self, positions: tf.Tensor) -> tf.Tensor:
        """`[..., F]` to `[..., num_outputs]`."""
        activations = _expanded(positions)
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


class ChoiceActor(_PositionsActor):
    """A categorical distribution over A actions, of `positions` `[..., F]`."""

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
        return tfp.distributions.Categorical(logits=self.outputs(observation["positions"]), dtype=self._dtype_of_action)


class CandidateActor(ChoiceActor):
    """Scores every candidate by the same network; a categorical distribution over the legal ones.

    The same computation as `policies.candidates`, of `positions` `[..., C, F]` and `legal` `[..., C]`.
    """

    @staticmethod
    def _num_outputs(num_actions: int) -> int:
        del num_actions
        return 1

    def distribution(self, observation: Any) -> tfp.distributions.Categorical:
        scores = tf.squeeze(self.outputs(observation["positions"]), axis=-1)
        # Not minus infinity, whose product with a probability of 0 would be no number.
        logits = tf.where(observation["legal"] > 0, scores, IMPOSSIBLE)
        return tfp.distributions.Categorical(logits=logits, dtype=self._dtype_of_action)


class NumberActor(_PositionsActor):
    """A Gaussian over a real number; the same computation as `policies.number`, of `positions` `[..., F]`."""

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
        mean, raw = tf.unstack(self.outputs(observation["positions"]), axis=-1)
        deviation = tf.exp(MIDDLE_LOG_DEVIATION + LOG_DEVIATION_RANGE * tf.tanh(raw))
        return tfp.distributions.Normal(mean, deviation)


class ExpandedPositions(tf.keras.layers.Layer):
    """`positions` `[N, F]` to `[N, 3 F]`."""

    def call(self, inputs: Any) -> tf.Tensor:
        return _expanded(inputs["positions"] if isinstance(inputs, Mapping) else tf.nest.flatten(inputs)[0])


class MeanOfLegal(tf.keras.layers.Layer):
    """The mean over the legal candidates: `positions` `[N, C, F]` and `legal` `[N, C]` to `[N, 3 F]`."""

    def call(self, inputs: Any) -> tf.Tensor:
        observation = inputs if isinstance(inputs, Mapping) else dict(zip(("legal", "positions"), inputs, strict=True))
        legal = observation["legal"][..., tf.newaxis]
        total = tf.reduce_sum(_expanded(observation["positions"]) * legal, axis=-2)
        return total / tf.maximum(tf.reduce_sum(legal, axis=-2), 1)


def _expanded(positions: tf.Tensor) -> tf.Tensor:
    """As `policies.network.expand`: `[..., F]` to `[..., 3 F]`."""
    stacked = tf.stack([positions, tf.sqrt(positions), tf.square(positions)], axis=-1)
    return tf.reshape(stacked, [*tf.unstack(tf.shape(positions))[:-1], 3 * positions.shape[-1]])


def observation_spec(features: Sequence[str]) -> dict[str, tf.TensorSpec]:
    """Scalar int64 tensors by name."""
    return {name: tf.TensorSpec((), tf.int64, name) for name in features}


def time_step_spec(features: Sequence[str]) -> ts.TimeStep:
    return ts.time_step_spec(observation_spec(features))


def action_spec(name: str, num_actions: int = 2) -> tensor_spec.BoundedTensorSpec:
    """A choice between 0 and `num_actions - 1`."""
    return tensor_spec.BoundedTensorSpec((), tf.int64, 0, num_actions - 1, name)


def number_spec(name: str, lowest: float, highest: float) -> tensor_spec.BoundedTensorSpec:
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
        observation_spec(features),
        action,
        preprocessing_combiner=QuantileInputs(features, quantiles),
        fc_layer_params=config.fc_layer_params,
        name="actor",
    )
    actor.create_variables()
    return actor


def positions_actor(
    actor_class: type[ChoiceActor] | type[NumberActor],
    observation: Mapping[str, tf.TensorSpec],
    action: tensor_spec.BoundedTensorSpec,
    config: NetworkConfig,
    seed: int,
) -> ChoiceActor | NumberActor:
    """The policy that sees positions: of candidates or of a whole decision, to choose or to answer with a number."""
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


def mean_network(networks: Sequence[NetworkWeights]) -> NetworkWeights:
    """One network whose outputs are the mean of several networks' of the same shape: theirs side by side."""
    first, count = networks[0], len(networks)
    layers = list(zip(*(network.kernels for network in networks), strict=True))
    biases = [np.concatenate(layer) for layer in zip(*(network.biases for network in networks), strict=True)]
    # All see the same inputs; beyond the first layer none sees what is another's.
    kernels = [np.concatenate(layers[0], axis=1), *(_block_diagonal(layer) for layer in layers[1:-1])]
    kernels.append(np.concatenate(layers[-1], axis=0) / count)
    biases[-1] = np.mean([network.biases[-1] for network in networks], axis=0)
    return dataclasses.replace(
        first,
        kernels=tuple(kernel.astype(np.float32) for kernel in kernels),
        biases=tuple(bias.astype(np.float32) for bias in biases),
    )


def _block_diagonal(blocks: Sequence[np.ndarray]) -> np.ndarray:
    rows, columns = np.sum([block.shape for block in blocks], axis=0)
    result = np.zeros((rows, columns), np.float32)
    row = column = 0
    for block in blocks:
        result[row : row + block.shape[0], column : column + block.shape[1]] = block
        row, column = row + block.shape[0], column + block.shape[1]
    return result


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
