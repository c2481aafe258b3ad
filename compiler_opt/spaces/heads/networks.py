"""The networks that are trained.

Legend: N decisions, F features, Q quantiles (the longest list), C candidates.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from tf_agents.keras_layers import dynamic_unroll_layer
from tf_agents.networks import network, value_network
from tf_agents.specs import distribution_spec, tensor_spec

from compiler_opt.errors import PolicyError
from compiler_opt.policies.weights import NetworkConfig, NetworkWeights
from compiler_opt.spaces.arrays import Arrays
from compiler_opt.spaces.distributions import LOG_DEVIATION_RANGE, MIDDLE_LOG_DEVIATION
from compiler_opt.spaces.quantile_encoder import QuantileEncoder, Thresholds

ILLEGAL_LOGIT = -1e9
"""The logit of an illegal candidate; minus infinity times a probability of 0 would be NaN."""

Ranks: TypeAlias = Callable[[Sequence[tf.Tensor]], tf.Tensor]
"""From the values of F features, `[...]` each, to their quantile ranks `[..., F]` float32."""

TENSORFLOW = Arrays(
    rows=lambda tensor: tf.reshape(tensor, [-1, math.prod(tensor.shape[1:])]),
    float32=lambda tensor: tf.cast(tensor, tf.float32),
    is_nan=tf.math.is_nan,
    where=tf.where,
    stack=tf.stack,
    concatenate=tf.concat,
    swap_last=lambda tensor: tf.transpose(tensor, [0, 2, 1]),
    any=tf.reduce_any,
    count=lambda flags, axis: tf.reduce_sum(tf.cast(flags, tf.float32), axis),
    max=tf.reduce_max,
)

RANKS, LEGAL = "quantile_ranks", "legal"
"""Keys of observations: `[..., F]`, or of candidates `[..., C, F]` with `[..., C]`, 1 for legal candidates."""

DEFAULT = "default"
"""A further key where the default decision can be rebuilt: `[...]` bool, for policies with a margin."""

FIRST, STATE = "is_first", "lstm_state"
"""Further keys for recurrent networks: `[...]`, 1 for a module's first decision, and `[..., 2 U]`, see `policies.lstm`,
the state before the decision, of which only those that begin a sequence are read."""


class RankTable:
    """Quantile ranks in TensorFlow, the same as `QuantileEncoder.ranks`, of features of one type."""

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
        # The largest value of the type reaches the padding, too.
        reached = tf.minimum(tf.searchsorted(tf.constant(self._table), values, side="right"), self._reachable)
        return tf.transpose(tf.cast(reached, tf.float32) / self._lengths)


class RankActor(network.DistributionNetwork):
    """Dense rectified layers over quantile ranks `[..., F]`, a linear layer, and a distribution of its outputs.

    `distribution` makes the distribution, described by `spec`, from outputs `[..., num_outputs]` and the observation.

    With `config.lstm_units`, an LSTM comes first. Its observations are *truncated sequences* of `config.lstm_steps`
    consecutive decisions each (or one of fewer), laid end to end: so agents see decisions, which they may weight one by
    one, and need not know of sequences. A sequence begins with its `STATE`, or with zeros where `FIRST` says that a
    module begins, as it may within a sequence, too. (TF-Agents' `LSTMEncodingNetwork` is the same layer without a
    seed.)
    """

    def __init__(
        self,
        observation: Mapping[str, tf.TensorSpec],
        spec: distribution_spec.DistributionSpec,
        config: NetworkConfig,
        num_outputs: int,
        distribution: Callable[[tf.Tensor, Mapping[str, tf.Tensor]], tfp.distributions.Distribution],
        seed: int,
    ):
        super().__init__(
            input_tensor_spec={**observation, **_recurrent_spec(config)}, state_spec=(), output_spec=spec, name="actor"
        )
        # Keras ignores TensorFlow's global seed, so each layer gets one of its own.
        units = config.fc_layer_params
        self._steps = config.lstm_steps
        self._lstm: Any = None
        if config.lstm_units:
            cell = tf.keras.layers.LSTMCell(
                config.lstm_units,
                kernel_initializer=tf.keras.initializers.GlorotUniform(seed + len(units) + 1),
                recurrent_initializer=tf.keras.initializers.Orthogonal(seed=seed + len(units) + 2),
            )
            self._lstm = dynamic_unroll_layer.DynamicUnroll(cell)
        *hidden, last = (tf.keras.initializers.GlorotUniform(seed + layer) for layer in range(len(units) + 1))
        self._hidden = [
            tf.keras.layers.Dense(count, activation="relu", kernel_initializer=initializer)
            for count, initializer in zip(units, hidden, strict=True)
        ]
        self._last = tf.keras.layers.Dense(num_outputs, kernel_initializer=last)
        self._distribution = distribution
        self.create_variables()

    def outputs(self, ranks: tf.Tensor) -> tf.Tensor:
        """`[..., F]` to `[..., num_outputs]`, without an LSTM."""
        assert self._lstm is None
        return self._dense(expanded(ranks))

    def _remembered(self, observation: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """The LSTM's outputs, `[..., U]`."""
        inputs = expanded(observation[RANKS])
        shape = tf.shape(inputs)[:-1]
        steps = tf.minimum(self._steps, tf.reduce_prod(shape))

        def in_sequences(values: tf.Tensor, *elements: int) -> tf.Tensor:
            return tf.reshape(values, [-1, steps, *elements])

        states = in_sequences(observation[STATE], observation[STATE].shape[-1])
        remembered, _ = self._lstm(
            in_sequences(inputs, inputs.shape[-1]),
            initial_state=tf.split(states[:, 0], 2, axis=-1),
            reset_mask=in_sequences(observation[FIRST]) > 0,
        )
        return tf.reshape(remembered, tf.concat([shape, [remembered.shape[-1]]], 0))

    def _dense(self, activations: tf.Tensor) -> tf.Tensor:
        for layer in self._hidden:
            activations = layer(activations)
        return self._last(activations)

    def call(
        self, observation: Any, step_type: Any = None, network_state: Any = (), training: bool = False, mask: Any = None
    ) -> tuple[Any, Any]:
        del step_type, training, mask
        activations = expanded(observation[RANKS]) if self._lstm is None else self._remembered(observation)
        return self._distribution(self._dense(activations), observation), network_state


def _recurrent_spec(config: NetworkConfig) -> dict[str, tf.TensorSpec]:
    """What the observations of a recurrent network have besides."""
    if not config.lstm_units:
        return {}
    return {
        FIRST: tf.TensorSpec((), tf.float32, FIRST),
        STATE: tf.TensorSpec((2 * config.lstm_units,), tf.float32, STATE),
    }


def categorical_actor(
    observation: Mapping[str, tf.TensorSpec], action: tensor_spec.BoundedTensorSpec, config: NetworkConfig, seed: int
) -> RankActor:
    """A categorical distribution over all actions: ranks `[..., F]` to a logit per action.

    With `LEGAL` among observations, the actions are candidates, and one network scores each of them: ranks
    `[..., C, F]` to the distribution over legal candidates that `MaskedCategoricalPolicy` computes.
    """
    num_actions, masked = int(action.maximum) + 1, LEGAL in observation
    logits = tf.TensorSpec((num_actions,), tf.float32, "actor_logits")
    categorical = tfp.distributions.Categorical
    spec = distribution_spec.DistributionSpec(categorical, {"logits": logits}, sample_spec=action, dtype=action.dtype)

    def distribution(outputs: tf.Tensor, observation: Mapping[str, tf.Tensor]) -> tfp.distributions.Categorical:
        if masked:
            outputs = masked_logits(outputs, observation)
        return categorical(logits=outputs, dtype=action.dtype)

    return RankActor(observation, spec, config, 1 if masked else num_actions, distribution, seed)


def masked_logits(
    outputs: tf.Tensor, observation: Mapping[str, tf.Tensor], illegal: float = ILLEGAL_LOGIT
) -> tf.Tensor:
    """Logits `[..., C]` of candidates from the network's outputs `[..., C, 1]`; those of illegal ones are `illegal`."""
    return tf.where(observation[LEGAL] > 0, tf.squeeze(outputs, axis=-1), illegal)


def gaussian_actor(
    observation: Mapping[str, tf.TensorSpec], action: tensor_spec.BoundedTensorSpec, config: NetworkConfig, seed: int
) -> RankActor:
    """A Gaussian over a real number, as `ContinuousPolicy` computes it: ranks `[..., F]` to mean and deviation."""
    parameters = {key: tf.TensorSpec(action.shape, tf.float32, f"actor_{key}") for key in ("loc", "scale")}
    spec = distribution_spec.DistributionSpec(tfp.distributions.Normal, parameters, sample_spec=action)

    def distribution(outputs: tf.Tensor, observation: Mapping[str, tf.Tensor]) -> tfp.distributions.Normal:
        del observation
        mean, raw = tf.unstack(outputs, axis=-1)
        return tfp.distributions.Normal(mean, tf.exp(MIDDLE_LOG_DEVIATION + LOG_DEVIATION_RANGE * tf.tanh(raw)))

    return RankActor(observation, spec, config, 2, distribution, seed)


class ExpandedRanks(tf.keras.layers.Layer):
    """Encodes `quantile_ranks` `[N, F]` as `[N, 3 F]`."""

    def call(self, inputs: Any) -> tf.Tensor:
        return expanded(inputs[RANKS] if isinstance(inputs, Mapping) else tf.nest.flatten(inputs)[0])


class MeanOfLegal(tf.keras.layers.Layer):
    """Encodes `quantile_ranks` `[N, C, F]` as their mean over the `legal` `[N, C]` candidates, `[N, 3 F]`."""

    def call(self, inputs: Any) -> tf.Tensor:
        observation = inputs if isinstance(inputs, Mapping) else dict(zip((LEGAL, RANKS), inputs, strict=True))
        legal = observation[LEGAL][..., tf.newaxis]
        total = tf.reduce_sum(expanded(observation[RANKS]) * legal, axis=-2)
        return total / tf.maximum(tf.reduce_sum(legal, axis=-2), 1)


class _Critic(value_network.ValueNetwork):
    """A value network that ignores what only recurrent actors observe."""

    def call(
        self, observation: Any, step_type: Any = None, network_state: Any = (), training: bool = False
    ) -> tuple[Any, Any]:
        seen = {name: observation[name] for name in self.input_tensor_spec}
        value: tuple[Any, Any] = super().call(seen, step_type, network_state, training)
        return value


def critic_network(
    observation: Mapping[str, tf.TensorSpec], inputs: tf.keras.layers.Layer, config: NetworkConfig, seed: int
) -> value_network.ValueNetwork:
    """The expected return of an observation, which `inputs` encodes as one vector.

    It sees one decision, also where the policy remembers earlier ones. Only advantages that use a value network need
    it; it is never exported.
    """
    tf.random.set_seed(seed + 1)
    critic = _Critic(
        observation, preprocessing_combiner=inputs, fc_layer_params=config.value_fc_layer_params, name="critic"
    )
    critic.create_variables()
    return critic


class AdviceNetwork(network.Network):
    """Computes a policy's greedy advice from tensors as the compiler sends them."""

    def __init__(
        self,
        tensors: Mapping[str, tf.TensorSpec],
        encoder: QuantileEncoder,
        actor: RankActor,
        observe: Callable[[Mapping[str, tf.Tensor], Ranks], Mapping[str, tf.Tensor]],
        advice: Callable[[tf.Tensor, Mapping[str, tf.Tensor]], tf.Tensor],
    ):
        """Wraps an actor, with its head's `observe_tensors` and `advice`, which knows the margin."""
        super().__init__(input_tensor_spec=tensors, state_spec=(), name="advice")
        self._table = RankTable(encoder.thresholds)
        self._actor = actor
        self._observe = observe
        self._advice = advice

    def call(
        self, observation: Any, step_type: Any = None, network_state: Any = (), training: bool = False
    ) -> tuple[Any, Any]:
        del step_type, training
        observed = self._observe(observation, self._ranks)
        return self._advice(self._actor.outputs(observed[RANKS]), observed), network_state

    def _ranks(self, columns: Sequence[tf.Tensor]) -> tf.Tensor:
        # As doubles, all values that compilers send compare exactly, infinity included.
        values = tf.stack([tf.cast(column, tf.float64) for column in columns])  # [F, ...]
        ranks = self._table(tf.reshape(values, [len(columns), -1]))
        return tf.reshape(ranks, [*tf.unstack(tf.shape(values))[1:], len(columns)])


def assign(actor: network.DistributionNetwork, weights: NetworkWeights) -> None:
    """Loads weights into a network of the same shape.

    Raises:
      PolicyError: the shapes differ.
    """
    variables = actor.trainable_weights
    values = [] if weights.lstm is None else list(weights.lstm.arrays().values())
    values += [value for layer in zip(weights.kernels, weights.biases, strict=True) for value in layer]
    found, expected = [value.shape for value in values], [tuple(variable.shape) for variable in variables]
    if found != expected:
        raise PolicyError(
            f"policy network: expected layers of shapes {expected} (see network.fc_layer_params and "
            f"network.lstm_units), found {found}; use the configuration that the policy was trained with"
        )
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def expanded(ranks: tf.Tensor) -> tf.Tensor:
    """The same as `quantile_encoder.expand`: `[..., F]` to `[..., 3 F]`."""
    stacked = tf.stack([ranks, tf.sqrt(ranks), tf.square(ranks)], axis=-1)
    return tf.reshape(stacked, [*tf.unstack(tf.shape(ranks))[:-1], 3 * ranks.shape[-1]])
