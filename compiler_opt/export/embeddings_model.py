"""A policy that sees embeddings as TensorFlow sees it: from tensors as the compiler sends them to yes or no."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tf_agents.networks import network
from tf_agents.policies import actor_policy
from tf_agents.trajectories import time_step as ts

from compiler_opt.export.number_model import positions
from compiler_opt.llvm.ir2vec import tensor_and_place
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.rl.config import NetworkConfig
from compiler_opt.spaces.heads import networks


def embeddings_policy(weights: NetworkWeights, action_name: str) -> actor_policy.ActorPolicy:
    """The greedy policy; an embedding is one tensor, of as many numbers as the vocabulary has dimensions.

    Args:
      weights: what it decides by.
      action_name: the advice's name, such as `inlining_decision`.
    """
    observation: dict[str, tf.TensorSpec] = {}
    for name in weights.features:
        place = tensor_and_place(name)
        if place is None:
            observation[name] = tf.TensorSpec((), tf.int64, name)
        elif place[0] not in observation or place[1] >= observation[place[0]].shape[0]:
            observation[place[0]] = tf.TensorSpec((place[1] + 1,), tf.float32, place[0])
    action = networks.action_spec(action_name, len(weights.biases[-1]))
    return actor_policy.ActorPolicy(ts.time_step_spec(observation), action, _Choosing(observation, weights))


class _Choosing(network.Network):
    """The same computation as `policies.network.NetworkPolicy`."""

    def __init__(self, observation: Mapping[str, tf.TensorSpec], weights: NetworkWeights):
        super().__init__(input_tensor_spec=observation, state_spec=(), name="choosing")
        self._columns = [
            (name, np.asarray(quantiles, np.float64))
            for name, quantiles in zip(weights.features, weights.quantiles, strict=True)
        ]
        seen = {"positions": tf.TensorSpec((len(weights.features),), tf.float32, "positions")}
        action = networks.action_spec("action", len(weights.biases[-1]))
        config = NetworkConfig(fc_layer_params=tuple(len(bias) for bias in weights.biases[:-1]))
        self._actor = networks.positions_actor(networks.ChoiceActor, seen, action, config, seed=0)
        networks.assign(self._actor, weights)

    def call(
        self, observation: Any, step_type: Any = None, network_state: Any = (), training: bool = False
    ) -> tuple[Any, Any]:
        del step_type, training
        features = {}
        for name, _ in self._columns:
            place = tensor_and_place(name)
            features[name] = observation[name] if place is None else observation[place[0]][..., place[1]]
        distribution, _ = self._actor({"positions": positions(features, self._columns)})
        return tf.argmax(distribution.logits, axis=-1, output_type=tf.int64), network_state
