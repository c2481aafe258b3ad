"""What a network observes of each candidate of a decision.

Legend: F inputs of a candidate, C candidates of a decision, T decisions.
"""

import abc
from collections.abc import Mapping
from typing import Any

import numpy as np

from compiler_opt.policies.policy import UsesFeatures
from compiler_opt.spaces.arrays import NUMPY, Arrays
from compiler_opt.spaces.native import NativeModel

_CHUNK = 1024


class CandidateInputs(UsesFeatures, abc.ABC):
    """Computes a network's inputs for each candidate from the compiler's features."""

    mask: str
    """The feature whose C elements say which candidates are legal."""

    names: tuple[str, ...]
    """The F inputs, in order."""

    @abc.abstractmethod
    def legal(self, features: Mapping[str, np.ndarray]) -> np.ndarray:
        """Which candidates are legal: features by name, as the compiler sends them, to `[T, C]` bool."""

    @abc.abstractmethod
    def values(self, features: Mapping[str, np.ndarray]) -> np.ndarray:
        """The inputs: features by name, as the compiler sends them, to `[T, C, F]` float32, finite."""


class PortableInputs(CandidateInputs):
    """Inputs that are computed elsewhere, too: in C++, and in TensorFlow."""

    native_model: NativeModel
    """How a network over these inputs decides in C++."""

    @abc.abstractmethod
    def compute(self, features: Mapping[str, Any], arrays: Arrays) -> Any:
        """`values`, by the functions of a library of arrays."""

    def legal(self, features: Mapping[str, np.ndarray]) -> np.ndarray:
        legal: np.ndarray = NUMPY.rows(features[self.mask]) != 0
        return legal

    def values(self, features: Mapping[str, np.ndarray]) -> np.ndarray:
        """As `compute`, a part of the decisions at a time, so that comparisons `[T, F, C, C]` stay small."""
        count = len(features[self.mask])
        parts = [
            {name: values[start : start + _CHUNK] for name, values in features.items()}
            for start in range(0, max(count, 1), _CHUNK)
        ]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            computed = [self.compute(part, NUMPY) for part in parts]
        return computed[0] if len(computed) == 1 else np.concatenate(computed)
