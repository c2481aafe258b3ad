"""Policies that decide by a trained network, in numpy; each action space has its own."""

import abc
import functools
import uuid
from collections.abc import Sequence

import numpy as np

from compiler_opt.errors import PolicyError
from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.policy import Policy
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.quantile_encoder import QuantileEncoder, expand

_MAX_CACHED = 8
"""Cached encoders: a run has one policy at a time, an evaluation a few."""


class LearnedPolicy(Policy):
    """Takes the best action or, if `temperature` is over 0, samples one.

    Two policies are equal if they are copies of one. So what a worker has computed from a policy's weights stays valid
    for the next job under the same policy.
    """

    num_outputs: int
    """Width of the network's last layer."""

    runs_in_development_mode: bool = False
    """Whether clang in LLVM's development mode can run the policy, as a TFLite model."""

    def __init__(self, weights: NetworkWeights, *, temperature: float = 0.0, name: str = "policy", origin: str = ""):
        """Takes weights; `origin`, such as their folder, names the policy in error messages."""
        self.name = name
        self.weights = weights
        self.temperature = temperature
        self._origin = origin or f"policy {name!r}"
        self._key = uuid.uuid4().hex
        if len(weights.biases[-1]) != self.num_outputs:
            raise PolicyError(
                f"{self._origin}: expected a network with {self.num_outputs} outputs, found "
                f"{len(weights.biases[-1])}: it is for another problem than this (see --compile_task)"
            )

    @property
    def key(self) -> str:
        """Identifies this policy, also in other processes."""
        return self._key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LearnedPolicy) and self._key == other.key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def runs_in_plugin(self) -> bool:
        """Whether our plugins can run the policy in the compiler, in its native form."""
        return False

    @property
    def encoder(self) -> QuantileEncoder:
        """Encodes features; made once per process."""
        return _encoder(self)

    @abc.abstractmethod
    def check(self, feature_names: Sequence[str]) -> None:
        """Raises PolicyError, with their names, if features are missing."""

    def check_header(self, header: Header) -> None:
        """Raises PolicyError if features are missing, or their tensors have the wrong type or shape."""
        self.check(header.names)

    def logged_log_probs(self, actions: np.ndarray, logits: np.ndarray) -> np.ndarray:
        """Log probabilities `[T]` float32 of actions that were sampled in the compiler.

        Args:
          actions: `[T]`.
          logits: `[T, num_outputs]`, the network's outputs that the compiler logged.

        Raises:
          PolicyError: policies of this action space cannot be sampled in the compiler.
        """
        raise PolicyError(f"{self._origin}: cannot be sampled from within the compiler; use the backend channel")

    def _require(self, needed: Sequence[str], feature_names: Sequence[str]) -> None:
        missing = [name for name in needed if name not in feature_names]
        if missing:
            raise PolicyError(
                f"{self._origin}: needs features that this compiler does not send: {', '.join(missing)}; "
                "use the compiler that it was trained with, or a policy for this one"
            )


@functools.lru_cache(_MAX_CACHED)
def _encoder(policy: LearnedPolicy) -> QuantileEncoder:
    return QuantileEncoder(policy.weights.quantiles)


def outputs(weights: NetworkWeights, ranks: np.ndarray) -> np.ndarray:
    """A network's outputs: quantile ranks `[..., F]` to `[..., A]` float32."""
    return weights.forward(expand(ranks))
