"""A rule with numbers in it: a heuristic that a person can read, whose parameters are searched for.

Legend: P parameters, T decisions.
"""

import abc
import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from compiler_opt.errors import PolicyError
from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.policy import Decider, Policy, UsesFeatures, deciding_by

RULE = "rule"
"""In a policy's metadata: the parameters of the rule that it was cloned from, by name."""


@dataclasses.dataclass(frozen=True)
class RuleParameter:
    """One of the numbers.

    Attributes:
      name: what it weighs.
      start: what makes the rule decide as the compiler's own does, as nearly as it can.
      scale: a change of it that changes some decisions, and not most: how far a search looks.
    """

    name: str
    start: float
    scale: float


class Rule(UsesFeatures, abc.ABC):
    """Decides by what the compiler sends and P numbers."""

    parameters: tuple[RuleParameter, ...]
    """The numbers, in order."""

    def start(self) -> np.ndarray:
        """`[P]` float64: the parameters to begin with."""
        return np.array([parameter.start for parameter in self.parameters])

    def scale(self) -> np.ndarray:
        """`[P]` float64, see `RuleParameter`."""
        return np.array([parameter.scale for parameter in self.parameters])

    def named(self, values: np.ndarray) -> dict[str, float]:
        """`[P]` by name."""
        return {parameter.name: float(value) for parameter, value in zip(self.parameters, values, strict=True)}

    def values(self, named: Mapping[str, float]) -> np.ndarray:
        """The opposite of `named`.

        Raises:
          PolicyError: these are not the parameters of this rule.
        """
        names = [parameter.name for parameter in self.parameters]
        odd = sorted(set(names) ^ set(named))
        if odd:
            raise PolicyError(f"the rule's parameters are {', '.join(names)}; they differ in {', '.join(odd)}")
        return np.array([named[name] for name in names], np.float64)

    @abc.abstractmethod
    def choose(self, values: np.ndarray, features: Mapping[str, np.ndarray]) -> np.ndarray:
        """Decides.

        Args:
          values: `[P]`, the parameters.
          features: of T decisions, by name, as the compiler sends them.

        Returns:
          `[T]`, the advice.
        """


class RulePolicy(Policy):
    """A rule with certain numbers."""

    def __init__(self, rule: Rule, values: Sequence[float] | np.ndarray, name: str = "rule"):
        self.name = name
        self._rule = rule
        self._values = np.asarray(values, np.float64)

    def start(self, header: Header, seed: int) -> Decider:
        del seed
        return deciding_by(
            lambda features: self._rule.choose(self._values, features),
            self._rule.used(header.names),
            header,
            self.name,
        )
