"""Rules: readable heuristics with parameters, which are found by search.

Legend: P parameters, T decisions.
"""

import abc
import dataclasses
import functools
from collections.abc import Mapping, Sequence

import numpy as np

from compiler_opt.errors import PolicyError
from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.policy import Decider, Policy, UsesFeatures, deciding_by

RULE = "rule"
"""The key, in a policy's metadata, of the parameters of the rule that it was cloned from."""


@dataclasses.dataclass(frozen=True)
class RuleParameter:
    """A parameter of a rule.

    Attributes:
      name: what it weights.
      start: the value at which the rule is closest to the compiler's own.
      scale: the step of a search: a change that affects some decisions, but not most.
    """

    name: str
    start: float
    scale: float


class Rule(UsesFeatures, abc.ABC):
    """Decides by the compiler's features and P parameters."""

    parameters: tuple[RuleParameter, ...]

    def start(self) -> np.ndarray:
        """`[P]` float64: where a search starts."""
        return np.array([parameter.start for parameter in self.parameters])

    def scale(self) -> np.ndarray:
        """`[P]` float64, see `RuleParameter`."""
        return np.array([parameter.scale for parameter in self.parameters])

    def named(self, values: np.ndarray) -> dict[str, float]:
        """`[P]` by name."""
        return {parameter.name: float(value) for parameter, value in zip(self.parameters, values, strict=True)}

    def values(self, named: Mapping[str, float]) -> np.ndarray:
        """The inverse of `named`.

        Raises:
          PolicyError: the names are not those of the parameters.
        """
        names = [parameter.name for parameter in self.parameters]
        odd = sorted(set(names) ^ set(named))
        if odd:
            raise PolicyError(f"the rule's parameters are {', '.join(names)}; they differ in {', '.join(odd)}")
        return np.array([named[name] for name in names], np.float64)

    @abc.abstractmethod
    def choose(self, values: np.ndarray, features: Mapping[str, np.ndarray]) -> np.ndarray:
        """Decides T times: parameters `[P]` and features by name, as the compiler sends them, to advice `[T]`."""


class RulePolicy(Policy):
    """Decides by a rule with fixed parameters."""

    def __init__(self, rule: Rule, values: Sequence[float] | np.ndarray, name: str = "rule"):
        self.name = name
        self._rule = rule
        self._values = np.asarray(values, np.float64)

    def start(self, header: Header, seed: int) -> Decider:
        del seed
        choose = functools.partial(self._rule.choose, self._values)
        return deciding_by(choose, self._rule.used(header.names), header, self.name)
