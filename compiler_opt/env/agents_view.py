"""What an agent observes of a decision, and what its actions mean, by action space.

Legend: F features or inputs, C candidates of a decision.
"""

import abc
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from compiler_opt.errors import ConfigError
from compiler_opt.spaces.action_space import ActionSpace
from compiler_opt.spaces.binary import Binary
from compiler_opt.spaces.candidates import CandidateInputs
from compiler_opt.spaces.continuous import Continuous
from compiler_opt.spaces.masked_categorical import MaskedCategorical
from compiler_opt.spaces.quantizer import ActionQuantizer
from compiler_opt.tensor_spec import TensorSpec

Features = Mapping[str, np.ndarray]
"""Of one decision, as the compiler sends them: `[1, *shape]` by name."""


class AgentsView(abc.ABC):
    """The view for a kind of actions.

    Attributes:
      action_space: of the agent.
      expected: an action, in words.
    """

    action_space: gymnasium.Space[Any]
    expected: str

    def features(self, available: Sequence[str], sent: Sequence[TensorSpec]) -> list[TensorSpec]:
        """Of those that the compiler sends, what an agent observes; `available` is what a network may observe."""
        return [spec for spec in sent if spec.name in available]

    def network_shape(self, num_features: int) -> tuple[int, ...]:
        """The shape of what a network observes of so many features, without its transforms."""
        return (num_features,)

    def network_values(self, features: Features, names: Sequence[str]) -> np.ndarray:
        """What a network observes, `network_shape`."""
        return np.array([features[name].item() for name in names])

    def info(self, features: Features) -> dict[str, Any]:
        """What else the agent is told with an observation."""
        del features
        return {}

    def is_allowed(self, action: Any, features: Features) -> bool:
        """Whether the agent may take an action now."""
        del features
        return bool(self.action_space.contains(action))

    @abc.abstractmethod
    def advice(self, action: Any) -> int | float:
        """What the compiler is told."""


class _BinaryView(AgentsView):
    expected = "the action 0 or 1"

    def __init__(self) -> None:
        self.action_space = gymnasium.spaces.Discrete(2)

    def advice(self, action: Any) -> int:
        return int(action)


class _CandidatesView(AgentsView):
    """The mask of legal candidates is by gymnasium's convention: `action_space.sample(info["action_mask"])`."""

    expected = "the position of a legal candidate (1 in info['action_mask'])"

    def __init__(self, inputs: CandidateInputs, num_candidates: int):
        self._inputs, self._num_candidates = inputs, num_candidates
        self.action_space = gymnasium.spaces.Discrete(num_candidates)

    def features(self, available: Sequence[str], sent: Sequence[TensorSpec]) -> list[TensorSpec]:
        del available  # Inputs of networks, which are computed from these.
        return [spec for spec in sent if spec.name in self._inputs.features]

    def network_shape(self, num_features: int) -> tuple[int, ...]:
        return (self._num_candidates, num_features)

    def network_values(self, features: Features, names: Sequence[str]) -> np.ndarray:
        return self._inputs.values(features)[0][:, [self._inputs.names.index(name) for name in names]]

    def info(self, features: Features) -> dict[str, Any]:
        return {"action_mask": self._inputs.legal(features)[0].astype(np.int8)}

    def is_allowed(self, action: Any, features: Features) -> bool:
        return super().is_allowed(action, features) and bool(self._inputs.legal(features)[0, action])

    def advice(self, action: Any) -> int:
        return int(action)


class _NumberView(AgentsView):
    def __init__(self, quantizer: ActionQuantizer):
        self._quantizer = quantizer
        self.action_space = gymnasium.spaces.Box(quantizer.lowest, quantizer.highest, (), np.float32)
        self.expected = f"a number from {quantizer.lowest:g} to {quantizer.highest:g}"

    def is_allowed(self, action: Any, features: Features) -> bool:
        return super().is_allowed(np.asarray(action, np.float32), features)

    def advice(self, action: Any) -> float:
        return float(self._quantizer.to_advice(np.asarray(action)))


def agents_view(space: ActionSpace, sent: Sequence[TensorSpec]) -> AgentsView:
    """The view for an action space and the features that the compiler sends.

    Raises:
      ConfigError: environments do not support such actions.
    """
    if isinstance(space, Binary):
        return _BinaryView()
    if isinstance(space, MaskedCategorical):
        [num_candidates] = [spec.num_elements for spec in sent if spec.name == space.inputs.mask]
        return _CandidatesView(space.inputs, num_candidates)
    if isinstance(space, Continuous):
        return _NumberView(space.quantizer)
    raise ConfigError(f"environment: expected binary, candidate or continuous actions, found {type(space).__name__}")
