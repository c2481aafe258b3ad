"""The heads of `Binary`: for integer features, and for features of any type.

Legend: N decisions, F features.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
from tf_agents.networks import network, value_network
from tf_agents.policies import actor_policy, greedy_policy, tf_policy
from tf_agents.trajectories import time_step as ts

from compiler_opt.errors import PolicyError
from compiler_opt.llvm import ir2vec
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.binary import Binary
from compiler_opt.spaces.heads import networks
from compiler_opt.spaces.heads.categorical import CategoricalHead
from compiler_opt.spaces.learned_policy import outputs
from compiler_opt.spaces.network_config import NetworkConfig
from compiler_opt.spaces.quantile_encoder import QuantileEncoder
from compiler_opt.tensor_spec import TensorSpec


class RankedBinaryHead(CategoricalHead):
    """Advice 0 or 1, from scalar features of any type."""

    num_actions = 2
    noop_action = Binary.noop_action

    def check_examples(self, features: Sequence[TensorSpec], advice: TensorSpec) -> None:
        super().check_examples(features, advice)
        for spec in features:
            is_odd = spec.shape or (spec.dtype.kind == "f" and not ir2vec.components([spec.name]))
            if spec.name in self.features and is_odd:
                raise PolicyError(f"expected the feature {spec.name} to be one integer, found {spec.to_json()}")


class BinaryHead(RankedBinaryHead):
    """Advice 0 or 1, from integer features.

    Observations are the integers, `[N]` by feature; the first layer of the network encodes them.
    """

    def observe(self, features: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {name: features[name].reshape(len(features[name])) for name in self.features}

    def observation_spec(self) -> dict[str, tf.TensorSpec]:
        return networks.integers_spec(self.features)

    def logits(self, weights: NetworkWeights, observations: Mapping[str, np.ndarray]) -> np.ndarray:
        values = np.stack([observations[name] for name in weights.features], axis=-1)
        return outputs(weights, QuantileEncoder(weights.quantiles).ranks(values)).astype(np.float64)

    def actor(self, action_name: str, config: NetworkConfig, seed: int) -> network.DistributionNetwork:
        return networks.integers_actor(self.features, self.quantiles, self.action_spec(action_name), config, seed)

    def critic(self, config: NetworkConfig, seed: int) -> value_network.ValueNetwork:
        inputs = networks.QuantileInputs(self.features, self.quantiles)
        return networks.critic_network(self.observation_spec(), inputs, config, seed)

    def signature(self, weights: NetworkWeights, action_name: str) -> tf_policy.TFPolicy:
        actor = self.from_weights(weights, action_name)
        steps = ts.time_step_spec(self.observation_spec())
        return greedy_policy.GreedyPolicy(actor_policy.ActorPolicy(steps, self.action_spec(action_name), actor))
