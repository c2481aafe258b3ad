"""A policy that answers with a number as TensorFlow sees it: from features as the compiler sends them to the advice."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tf_agents.networks import network
from tf_agents.policies import actor_policy
from tf_agents.trajectories import time_step as ts

from compiler_opt.errors import PolicyError
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.rl.config import NetworkConfig
from compiler_opt.spaces.continuous import NumberScale
from compiler_opt.spaces.heads import networks
from compiler_opt.tensor_spec import TensorSpec


def number_policy(
    weights: NetworkWeights, action_name: str, scale: NumberScale, sent: Sequence[TensorSpec]
) -> actor_policy.ActorPolicy:
    """The greedy policy, whose action is the advice.

    Args:
      weights: what it decides by.
      action_name: the advice's name, such as `priority`.
      scale: makes advice of what the network says.
      sent: what the compiler sends; the features' types are read off it.

    Raises:
      PolicyError: the compiler does not send a feature.
    """
    dtypes = {spec.name: tf.as_dtype(spec.dtype) for spec in sent}
    missing = [name for name in weights.features if name not in dtypes]
    if missing:
        raise PolicyError(f"policy: needs features that this compiler does not send: {', '.join(missing)}")
    observation = {name: tf.TensorSpec((), dtypes[name], name) for name in weights.features}
    advice = networks.number_spec(action_name, 0.0, scale.largest_advice)
    return actor_policy.ActorPolicy(ts.time_step_spec(observation), advice, _Advising(observation, weights, scale))


def positions(features: Mapping[str, tf.Tensor], columns: Sequence[tuple[str, np.ndarray]]) -> tf.Tensor:
    """Features `[N]` by name, and the names with their quantiles, to positions `[N, F]` float32."""
    reached = [
        # In 64 bits all that is sent compares exactly, infinity included.
        tf.searchsorted(tf.constant(quantiles), tf.cast(features[name], tf.float64), side="right")
        for name, quantiles in columns
    ]
    shares = [
        tf.cast(count, tf.float32) / np.float32(len(quantiles))
        for count, (_, quantiles) in zip(reached, columns, strict=True)
    ]
    return tf.stack(shares, axis=-1)


class _Advising(network.Network):
    """The same computation as `policies.number.NumberPolicy`."""

    def __init__(self, observation: Mapping[str, tf.TensorSpec], weights: NetworkWeights, scale: NumberScale):
        super().__init__(input_tensor_spec=observation, state_spec=(), name="advising")
        self._columns = list(zip(weights.features, weights.quantiles, strict=True))
        self._scale = scale
        seen = {"positions": tf.TensorSpec((len(weights.features),), tf.float32, "positions")}
        action = networks.number_spec("action", scale.lowest, scale.highest)
        hidden = tuple(len(bias) for bias in weights.biases[:-1])
        config = NetworkConfig(fc_layer_params=hidden)
        self._actor = networks.positions_actor(networks.NumberActor, seen, action, config, seed=0)
        networks.assign(self._actor, weights)

    def call(
        self, observation: Any, step_type: Any = None, network_state: Any = (), training: bool = False
    ) -> tuple[Any, Any]:
        del step_type, training
        distribution, _ = self._actor({"positions": positions(observation, self._columns)})
        steps = tf.round((tf.cast(distribution.loc, tf.float64) - self._scale.lowest) * self._scale.steps)
        return tf.cast(tf.clip_by_value(steps, 0, self._scale.largest_advice), tf.float32), network_state
