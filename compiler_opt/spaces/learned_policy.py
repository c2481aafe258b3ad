"""Policies that decide by a trained network, in numpy; each action space has its own."""

import dataclasses
import functools
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import ClassVar

import numpy as np

from compiler_opt.errors import PolicyError
from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.policy import Policy
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.quantile_encoder import QuantileEncoder, expand

_MAX_CACHED = 8
"""Cached encoders: a run has one policy at a time, an evaluation a few."""
_ROWS_AT_A_TIME = 1 << 12


@dataclasses.dataclass(frozen=True)
class NetworkInputs:
    """What a network observes in T decisions, in R rows of F features: one per decision, or one per legal candidate.

    Attributes:
      ranks: `[R, F]` float32, the quantile ranks of the features.
      decisions: `[R]` int64, ascending from 0 to T - 1: the decision that each row belongs to. Each decision has a row.
    """

    ranks: np.ndarray
    decisions: np.ndarray

    @property
    def starts(self) -> np.ndarray:
        """`[T]`, the first row of each decision."""
        return np.flatnonzero(np.diff(self.decisions, prepend=-1))

    def take(self, indices: np.ndarray) -> "NetworkInputs":
        """The decisions of these indices `[N]`, which may occur several times, numbered from 0 to N - 1."""
        starts = self.starts
        lengths = np.diff(starts, append=len(self.decisions))[indices]
        decisions = np.repeat(np.arange(len(indices)), lengths)
        places = np.arange(len(decisions)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return NetworkInputs(self.ranks[starts[indices][decisions] + places], decisions)


@dataclasses.dataclass(frozen=True)
class GreedyDecisions:
    """The T decisions of a greedy policy, and how likely others would have been under a policy that samples.

    Attributes:
      advice: `[T]`, what the compiler is told; for candidates, the row in `NetworkInputs`.
      actions: `[T]`, the same before quantization.
      log_probs: log probabilities of actions, `[T]` to `[T]` float64, at temperature 1; densities, if they are
        continuous. The margin has no part in them.
    """

    advice: np.ndarray
    actions: np.ndarray
    log_probs: Callable[[np.ndarray], np.ndarray]


@dataclasses.dataclass(eq=False, repr=False)
class LearnedPolicy(Policy):
    """Takes the best action or, if `temperature` is over 0, samples one.

    Two policies are equal if they are copies of one. So what a worker has computed from a policy's weights stays valid
    for the next job under the same policy.

    Attributes:
      weights: of the network.
      temperature: divides logits, or multiplies deviations.
      name: of the policy.
      origin: its name in error messages, such as a folder.
      key: identifies this copy, in all processes of a run. `NetworkWeights.checksum` identifies what it decides.
    """

    num_outputs: ClassVar[int]
    """Width of the network's last layer."""

    runs_in_development_mode: ClassVar[bool] = False
    """Whether clang in LLVM's development mode can run the policy, as a TFLite model."""

    takes_margin: ClassVar[bool] = False
    """Whether the policy can take the default decision where its network is uncertain, see `NetworkWeights.margin`."""

    takes_recurrence: ClassVar[bool] = False
    """Whether the policy can remember earlier decisions, see `NetworkWeights.lstm`."""

    weights: NetworkWeights
    _: dataclasses.KW_ONLY
    temperature: float = 0.0
    name: str = "policy"
    origin: str = ""
    key: str = dataclasses.field(init=False, default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        self.origin = self.origin or f"policy {self.name!r}"
        found = len(self.weights.biases[-1])
        if found != self.num_outputs:
            raise PolicyError(
                f"{self.origin}: expected a network with {self.num_outputs} outputs, found {found}: it is for another "
                "problem than this (see --compile_task)"
            )
        if self.weights.margin and not self.takes_margin:
            raise PolicyError(
                f"{self.origin}: expected margin 0, found {self.weights.margin:g}; only policies with binary actions, "
                "such as those for inlining, can have a margin"
            )
        if self.weights.is_recurrent and not self.takes_recurrence:
            raise PolicyError(
                f"{self.origin}: expected a network without a recurrent layer, found an LSTM; only policies with "
                "binary actions, such as those for inlining, can have one"
            )
        self.needs_default = bool(self.weights.margin) and not self.temperature

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LearnedPolicy) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def runs_in_plugin(self) -> bool:
        """Whether our plugins can run the policy in the compiler, in its native form."""
        return False

    @property
    def plugin_features(self) -> tuple[str, ...]:
        """The features among its own that only our plugin computes, see `llvm.plugin_features`."""
        return ()

    @property
    def encoder(self) -> QuantileEncoder:
        """Encodes features; made once per process."""
        return _encoder(self)

    @property
    def needed_features(self) -> Sequence[str]:
        """The features that the compiler must send."""
        return self.weights.features

    def check(self, feature_names: Collection[str]) -> None:
        """Raises PolicyError, with their names, if features are missing."""
        missing = [name for name in self.needed_features if name not in feature_names]
        if computed := [name for name in missing if name in self.plugin_features]:
            raise PolicyError(
                f"{self.origin}: observes features that only our plugin computes: {', '.join(computed)}; use the "
                "backend auto or plugin, or a policy that was trained on LLVM's features"
            )
        if missing:
            raise PolicyError(
                f"{self.origin}: needs features that this compiler does not send: {', '.join(missing)}; "
                "use the compiler that it was trained with, or a policy for this one"
            )

    def check_header(self, header: Header) -> None:
        """Raises PolicyError if features are missing, or their tensors have the wrong type or shape."""
        self.check(header.names)

    def used_features(self, compiler_features: Collection[str]) -> Sequence[str]:
        """The features that `network_inputs` reads, among those of a compiler that passes `check`."""
        del compiler_features
        return self.needed_features

    def network_inputs(self, features: Mapping[str, np.ndarray]) -> NetworkInputs:
        """What the network observes in T decisions: features by name, as the compiler sends them, `[T, ...]`."""
        columns = [np.asarray(features[name]).reshape(-1) for name in self.weights.features]
        return NetworkInputs(self.encoder.ranks_of_columns(columns), np.arange(len(columns[0])))

    def greedy_decisions(self, inputs: NetworkInputs, default: np.ndarray) -> GreedyDecisions:
        """What the policy decides, whatever its temperature.

        Args:
          inputs: of T decisions; of a recurrent policy, those of one module in order.
          default: `[T]`, the compiler's own decisions, which a policy with a margin takes where it is uncertain.

        Raises:
          PolicyError: policies of this action space cannot be evaluated so.
        """
        raise PolicyError(f"{self.origin}: its action space has no evaluation of many decisions at a time")

    def logged_log_probs(self, actions: np.ndarray, logits: np.ndarray) -> np.ndarray:
        """Log probabilities `[T]` float32 of actions that were sampled in the compiler.

        Args:
          actions: `[T]`.
          logits: `[T, num_outputs]`, the network's outputs that the compiler logged.

        Raises:
          PolicyError: policies of this action space cannot be sampled in the compiler.
        """
        raise PolicyError(f"{self.origin}: cannot be sampled from within the compiler; use the backend channel")


@functools.lru_cache(_MAX_CACHED)
def _encoder(policy: LearnedPolicy) -> QuantileEncoder:
    return QuantileEncoder(policy.weights.quantiles)


def outputs(weights: NetworkWeights, ranks: np.ndarray, is_first: np.ndarray | None = None) -> np.ndarray:
    """A network's outputs: quantile ranks `[..., F]` to `[..., A]` float32; for `is_first` see `forward`."""
    if weights.is_recurrent or len(ranks) <= _ROWS_AT_A_TIME:
        return weights.forward(expand(ranks), is_first)
    # In parts, which stay in the core's cache.
    starts = range(0, len(ranks), _ROWS_AT_A_TIME)
    return np.concatenate([weights.forward(expand(ranks[start : start + _ROWS_AT_A_TIME])) for start in starts])
