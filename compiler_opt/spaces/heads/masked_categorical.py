"""The head of `MaskedCategorical`.

Legend: N decisions, C candidates, F inputs of each.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
from tf_agents.networks import value_network

from compiler_opt.errors import PolicyError
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.heads import networks
from compiler_opt.spaces.heads.categorical import CategoricalHead
from compiler_opt.spaces.learned_policy import outputs
from compiler_opt.spaces.masked_categorical import CandidateInputs
from compiler_opt.spaces.network_config import NetworkConfig
from compiler_opt.tensor_spec import TensorSpec


class MaskedCategoricalHead(CategoricalHead):
    """Advice is the place of a candidate; the last place is the no-op.

    Observations are the candidates' quantile ranks `[N, C, F]` float32 and `legal` `[N, C]` float32, 1 or 0.
    """

    def __init__(
        self, quantiles: Mapping[str, np.ndarray], inputs: CandidateInputs, compiler_features: Sequence[TensorSpec]
    ):
        """Raises PolicyError when the vocabulary is not for these inputs, or the compiler sends no mask."""
        super().__init__(quantiles, compiler_features)
        places = {spec.num_elements for spec in compiler_features if spec.name == inputs.mask}
        if len(places) != 1:
            raise PolicyError(f"the compiler does not send {inputs.mask!r}, which says which candidates are legal")
        if self.features != inputs.names:
            odd = sorted(set(self.features) ^ set(inputs.names))
            raise PolicyError(f"vocabulary: is for other inputs than this problem's: {', '.join(odd) or 'order'}")
        self.inputs = inputs
        self._used = inputs.used([spec.name for spec in compiler_features])
        self.num_actions = places.pop()
        self.noop_action = self.num_actions - 1

    @property
    def compiler_features(self) -> tuple[str, ...]:
        return self._used

    def observe(self, features: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {
            networks.RANKS: self.encoder.ranks(self.inputs.values(features)),
            networks.LEGAL: self.inputs.legal(features).astype(np.float32),
        }

    def observation_spec(self) -> dict[str, tf.TensorSpec]:
        return {
            networks.RANKS: tf.TensorSpec((self.num_actions, len(self.features)), tf.float32, networks.RANKS),
            networks.LEGAL: tf.TensorSpec((self.num_actions,), tf.float32, networks.LEGAL),
        }

    def legal(self, observations: Mapping[str, np.ndarray]) -> np.ndarray:
        return observations[networks.LEGAL] > 0

    def logits(self, weights: NetworkWeights, observations: Mapping[str, np.ndarray]) -> np.ndarray:
        scores = outputs(weights, observations[networks.RANKS])[..., 0].astype(np.float64)
        return np.where(self.legal(observations), scores, -np.inf)

    def critic(self, config: NetworkConfig, seed: int) -> value_network.ValueNetwork:
        return networks.critic_network(self.observation_spec(), networks.MeanOfLegal(), config, seed)
