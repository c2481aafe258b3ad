"""The protocol of action spaces.

    space.policy(weights)                      # a `LearnedPolicy`: takes actions, in numpy
    space.head(quantiles, compiler_features)   # learns, in TensorFlow (`spaces.heads`)
    space.native_form(weights, problem)        # for our plugins, which take actions in the compiler
    space.formats(weights)                     # other formats to export policies in

Nothing outside this package asks which space it is. A new space is a module here and one in `heads/`.
"""

import abc
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from compiler_opt.errors import PolicyError
from compiler_opt.policies.policy import Policy
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.learned_policy import LearnedPolicy
from compiler_opt.spaces.native import NativeModel
from compiler_opt.tensor_spec import TensorSpec

if TYPE_CHECKING:
    from compiler_opt.spaces.heads.head import Head

ALL_FORMATS = ("native", "cpp", "release_model", "saved_model", "tflite", "aot")
"""Names of the formats that policies can be exported in, see `export.formats`."""


class ActionSpace(abc.ABC):
    """A kind of action; immutable, without TensorFlow."""

    optional_features: tuple[str, ...] = ()
    """Features that policies use if the compiler sends them, and that traces therefore keep."""

    num_outputs: int = 2
    """Width of a network's last layer."""

    plugin_takes_default: bool = True
    """Whether traces can have the default decisions that a plugin records."""

    takes_recurrence: bool = False
    """Whether policies can remember earlier decisions, see `NetworkWeights.lstm`."""

    @abc.abstractmethod
    def policy(
        self, weights: NetworkWeights, *, temperature: float = 0.0, name: str = "policy", origin: str = ""
    ) -> LearnedPolicy:
        """The policy of a network; see `LearnedPolicy` for the arguments.

        Raises:
          PolicyError: the network is for another problem.
        """

    @abc.abstractmethod
    def head(self, quantiles: Mapping[str, np.ndarray], compiler_features: Sequence[TensorSpec]) -> "Head":
        """The trainable side; imports TensorFlow.

        Args:
          quantiles: the vocabulary, by feature, in the order of the network's inputs.
          compiler_features: the features that the compiler sends.

        Raises:
          PolicyError: the vocabulary is for other features, or the compiler does not send them.
        """

    def supported_features(self, feature_names: Sequence[str], compiler_features: Iterable[str]) -> tuple[str, ...]:
        """All features that a policy may observe, for a problem with `feature_names` and this compiler."""
        del compiler_features
        return tuple(feature_names)

    def available_features(self, feature_names: Sequence[str], compiler_features: Collection[str]) -> list[str]:
        """The supported features that the compiler offers.

        Raises:
          PolicyError: the compiler does not send a feature that every policy needs.
        """
        return [name for name in self.supported_features(feature_names, compiler_features) if name in compiler_features]

    def vocabulary_features(self, compiler_features: Sequence[str]) -> tuple[str, ...]:
        """The features in a vocabulary, in order."""
        return tuple(compiler_features)

    def used_features(self, compiler_features: Sequence[str]) -> tuple[str, ...]:
        """The features of the compiler that `vocabulary_values` reads."""
        return tuple(compiler_features)

    def vocabulary_values(self, features: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The values of the vocabulary's features, from features as the compiler sends them."""
        return dict(features)

    def baselines(self) -> Mapping[str, Policy]:
        """Simple policies to compare learned ones with, by name."""
        return {}

    def native_form(self, weights: NetworkWeights, problem: str) -> bytes:
        """The form in which our plugins run a network, see `spaces.native`.

        Raises:
          PolicyError: the action space or the network has no native form.
        """
        del weights
        raise PolicyError(f"{problem}: its policies have no native form; use the backend channel")

    def formats(self, weights: NetworkWeights) -> tuple[str, ...]:
        """Those of `ALL_FORMATS` that a policy has."""
        del weights
        return ()

    @property
    def native_model(self) -> NativeModel:
        """How C++ decides by a policy's native form, if `formats` has any of `native`, `cpp` and `release_model`.

        Raises:
          PolicyError: there is none.
        """
        raise PolicyError(f"{type(self).__name__}: has no evaluator in C++")
