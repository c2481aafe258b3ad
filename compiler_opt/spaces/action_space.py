"""What kind of action a decision takes, and everything that follows from that.

    space.policy(weights)                      # takes actions, in numpy (`LearnedPolicy`)
    space.head(quantiles, compiler_features)   # learns, in TensorFlow (`spaces.heads`)
    space.native_form(weights, problem)        # takes actions within the compiler, by our plugins
    space.formats(weights)                     # what else a policy can be exported as

Nothing outside this package asks which space it is. A new one is a module here and one in `heads/`.
"""

import abc
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from compiler_opt.errors import PolicyError
from compiler_opt.policies.policy import Policy
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.learned_policy import LearnedPolicy
from compiler_opt.tensor_spec import TensorSpec

if TYPE_CHECKING:
    from compiler_opt.spaces.heads.head import Head


class ActionSpace(abc.ABC):
    """Immutable and without TensorFlow; a problem has one."""

    optional_features: tuple[str, ...] = ()
    """What policies make use of where the compiler sends it, and a trace keeps for them."""

    plugin_takes_default: bool = True
    """Whether a trace can have the decisions of the compiler's own heuristic, as a plugin records them."""

    @abc.abstractmethod
    def policy(
        self, weights: NetworkWeights, *, temperature: float = 0.0, name: str = "policy", origin: str = ""
    ) -> LearnedPolicy:
        """The policy that acts by a network, see `LearnedPolicy` for the arguments.

        Raises:
          PolicyError: the network is for another problem.
        """

    def load_policy(self, directory: Path, *, name: str = "policy") -> LearnedPolicy:
        """The greedy policy in a folder.

        Raises:
          PolicyError: there is none, it is damaged, or it is for another problem.
        """
        return self.policy(NetworkWeights.load(directory), name=name, origin=str(directory))

    @abc.abstractmethod
    def head(self, quantiles: Mapping[str, np.ndarray], compiler_features: Sequence[TensorSpec]) -> "Head":
        """What is learned; imports TensorFlow.

        Args:
          quantiles: the vocabulary, by feature, in the order of the network's inputs.
          compiler_features: what the compiler sends.

        Raises:
          PolicyError: the vocabulary is for other features, or the compiler does not send what it takes.
        """

    def supported_features(self, feature_names: Sequence[str], compiler_features: Iterable[str]) -> tuple[str, ...]:
        """All features that a policy may see of a compiler.

        Args:
          feature_names: those of the problem.
          compiler_features: what the compiler sends.
        """
        del compiler_features
        return tuple(feature_names)

    def available_features(self, feature_names: Sequence[str], compiler_features: Collection[str]) -> list[str]:
        """The supported features that can be had of a compiler; arguments as for `supported_features`.

        Raises:
          PolicyError: the compiler does not send what no policy can do without.
        """
        return [name for name in self.supported_features(feature_names, compiler_features) if name in compiler_features]

    def vocabulary_features(self, compiler_features: Sequence[str]) -> tuple[str, ...]:
        """Names of the features that a vocabulary has quantiles of, in order."""
        return tuple(compiler_features)

    def used_features(self, compiler_features: Sequence[str]) -> tuple[str, ...]:
        """Which of the compiler's features `vocabulary_values` reads."""
        return tuple(compiler_features)

    def vocabulary_values(self, features: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The values to take quantiles of, by `vocabulary_features`; of decisions as the compiler sends them."""
        return dict(features)

    def baselines(self) -> Mapping[str, Policy]:
        """Policies that a learned one has to beat besides the default, by name."""
        return {}

    def native_form(self, weights: NetworkWeights, problem: str) -> bytes:
        """What our plugins decide by, see `spaces.native`.

        Args:
          weights: of the policy.
          problem: its name.

        Raises:
          PolicyError: there is none of these actions, or of this network.
        """
        del weights
        raise PolicyError(f"{problem}: its policies have no native form; use the backend channel")

    def formats(self, weights: NetworkWeights) -> tuple[str, ...]:
        """Names of the formats that a policy can be exported in, see `export.formats`; `aot` takes a SavedModel."""
        del weights
        return ()
