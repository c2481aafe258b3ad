"""A rule with numbers in it: a heuristic that a person can read, whose parameters are searched for.

Legend: P parameters, T decisions.
"""

import abc
import dataclasses
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from compiler_opt.errors import PolicyError
from compiler_opt.llvm.training_log import Header, record_dtype
from compiler_opt.policies.policy import Decider, Policy


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


class Rule(abc.ABC):
    """Decides by what the compiler sends and P numbers."""

    features: tuple[str, ...]
    """What the compiler must send."""

    optional: tuple[str, ...] = ()
    """What is made use of when it is sent."""

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

    def used(self, sent: Collection[str]) -> tuple[str, ...]:
        """What is made use of where the compiler sends this much."""
        return (*self.features, *(name for name in self.optional if name in sent))

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
        missing = [name for name in self._rule.features if name not in header.names]
        if missing:
            raise PolicyError(f"policy {self.name!r}: the compiler does not send the features {', '.join(missing)}")
        return _Applying(self._rule, self._values, header)


class _Applying(Decider):
    def __init__(self, rule: Rule, values: np.ndarray, header: Header):
        self._rule = rule
        self._values = values
        self._used = rule.used(header.names)
        self._dtype = record_dtype(header.features)

    def __call__(self, observation: bytes) -> int | float:
        record = np.frombuffer(observation, self._dtype)
        advice: int | float = self._rule.choose(self._values, {name: record[name] for name in self._used})[0].item()
        return advice
