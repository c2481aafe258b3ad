"""A toy action space: one of three actions without a mask. TensorFlow is imported only by what learns it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.policy import Decider, deciding_by
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.action_space import ActionSpace
from compiler_opt.spaces.learned_policy import LearnedPolicy, outputs
from compiler_opt.tensor_spec import TensorSpec

if TYPE_CHECKING:
    from compiler_opt.spaces.heads.categorical import CategoricalHead


class OneOfThree(ActionSpace):
    """For example, how often to unroll a loop."""

    def policy(
        self, weights: NetworkWeights, *, temperature: float = 0.0, name: str = "policy", origin: str = ""
    ) -> "OneOfThreePolicy":
        return OneOfThreePolicy(weights, temperature=temperature, name=name, origin=origin)

    def head(self, quantiles: Mapping[str, np.ndarray], compiler_features: Sequence[TensorSpec]) -> "CategoricalHead":
        from compiler_opt.spaces.heads.categorical import CategoricalHead

        class OneOfThreeHead(CategoricalHead):
            num_actions = 3
            noop_action = 0

        return OneOfThreeHead(quantiles, compiler_features)


class OneOfThreePolicy(LearnedPolicy):
    num_outputs = 3

    def start(self, header: Header, seed: int) -> Decider:
        del seed
        self.check_header(header)
        return deciding_by(self.choose, self.weights.features, header, self.name)

    def choose(self, features: Mapping[str, np.ndarray]) -> np.ndarray:
        values = np.stack([features[name].reshape(-1) for name in self.weights.features], axis=-1)
        chosen: np.ndarray = outputs(self.weights, self.encoder.ranks(values)).argmax(axis=-1)
        return chosen
