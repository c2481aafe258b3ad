"""A policy that decides by a trained network, in numpy, whatever its action space."""

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
"""A run has one policy at a time, an evaluation a few."""


class LearnedPolicy(Policy):
    """Takes the best action or, when `temperature` is over 0, samples one.

    Two policies are equal when they are copies of one: a worker is sent the same policy with each job, and what it has
    computed from the weights stays with it.
    """

    num_outputs: int
    """Width of the network's last layer."""

    runs_in_development_mode: bool = False
    """Whether a clang in LLVM's development mode can take its actions, as a TFLite model."""

    def __init__(self, weights: NetworkWeights, *, temperature: float = 0.0, name: str = "policy", origin: str = ""):
        """Takes weights; `origin`, such as their folder, is what errors call the policy by."""
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
        """Of this policy's weights alone, also in other processes."""
        return self._key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LearnedPolicy) and self._key == other.key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def runs_in_plugin(self) -> bool:
        """Whether our plugins can take its actions within the compiler, by its native form."""
        return False

    @property
    def encoder(self) -> QuantileEncoder:
        """Made once per process."""
        return _encoder(self)

    @abc.abstractmethod
    def check(self, feature_names: Sequence[str]) -> None:
        """Raises PolicyError, with names, when the compiler lacks a feature."""

    def check_header(self, header: Header) -> None:
        """Raises PolicyError when the compiler lacks a feature, or its tensors are not what the policy can use."""
        self.check(header.names)

    def logged_log_probs(self, actions: np.ndarray, logits: np.ndarray) -> np.ndarray:
        """Log probabilities of actions that were sampled within a compiler, by the network's outputs that it logged.

        Args:
          actions: `[T]`.
          logits: `[T, num_outputs]`.

        Returns:
          `[T]` float32.

        Raises:
          PolicyError: such policies are not sampled from within a compiler.
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
