"""Single decisions that differ from the default's: recorded from a policy, kept in a file, and replayed.

A decision is known by its function and its place among the function's decisions, as in `Counterfactual`: what the
register allocator does in one function changes no other. Recorded decisions, replayed together, give the policy's
compilation again; some of them alone give others, in which a change that is no longer legal is left out.
"""

import dataclasses
from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np

from compiler_opt.checked_values import NonNegativeInt, convert, read_json
from compiler_opt.errors import PolicyError
from compiler_opt.files import write_json
from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.policy import Decider, DeciderByFunction, Policy

FORMAT = 1
_MAX_BYTES = 1 << 28
_REMEDY = "record the decisions again"


@dataclasses.dataclass(frozen=True)
class ChangedDecision:
    """A decision otherwise than the default's.

    Attributes:
      function: the function's name.
      decision: its index among the function's decisions, from 0.
      advice: given instead.
      default: what the default would have decided in its place.
    """

    function: str
    decision: NonNegativeInt
    advice: Annotated[float, msgspec.Meta(ge=-(2.0**53), le=2.0**53)]
    default: float


@dataclasses.dataclass(frozen=True)
class DecisionRecord:
    """Changed decisions in one module, as a file.

    Attributes:
      problem: what is decided.
      module: the module's name.
      changes: of its decisions.
      about: the compiler, and what the decisions do.
    """

    problem: str
    module: str
    changes: tuple[ChangedDecision, ...]
    about: dict[str, str] = dataclasses.field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Writes JSON; raises OutputError if that fails."""
        write_json(path, {"format": FORMAT, **dataclasses.asdict(self)})

    @classmethod
    def load(cls, path: Path) -> "DecisionRecord":
        """Reads a file. Raises PolicyError if it is missing, damaged, or of another format."""
        try:
            values = read_json(path, dict, max_bytes=_MAX_BYTES, error=PolicyError, remedy=_REMEDY)
        except FileNotFoundError:
            raise PolicyError(f"{path}: expected a record of decisions, found none; {_REMEDY}") from None
        if values.pop("format", None) != FORMAT:
            raise PolicyError(f"{path}: expected a record of decisions of format {FORMAT}; {_REMEDY}")
        try:
            return convert(values, cls)
        except ValueError as error:
            raise PolicyError(f"{path}: {error}; {_REMEDY}") from None


class RecordingPolicy(Policy):
    """Decides as a policy, and notes where the default differs; also if the compilation fails.

    Attributes:
      changes: of the last compilation in this process.
      num_decisions: of it, in all.
    """

    def __init__(self, policy: Policy, default: Policy):
        self.name = policy.name
        self.changes: list[ChangedDecision] = []
        self.num_decisions = 0
        self._policy, self._default = policy, default

    def start(self, header: Header, seed: int) -> Decider:
        self.changes, self.num_decisions = [], 0
        policy, default = self._policy.start(header, seed), self._default.start(header, seed)

        def decide(function: str, index: int, observation: bytes) -> int | float:
            advice, by_default = policy(observation), default(observation)
            self.num_decisions += 1
            if advice != by_default:
                self.changes.append(ChangedDecision(function, index, advice, by_default))
            return advice

        return DeciderByFunction(decide, (policy, default))


class ChangedDecisionsPolicy(Policy):
    """Decides as the default, except for changed decisions.

    Args:
      changes: where to decide otherwise.
      default: decides elsewhere.
      mask: the feature whose elements say which advice is legal, if the problem has one: other changes are left out.
    """

    name = "changed decisions"

    def __init__(self, changes: Collection[ChangedDecision], default: Policy, mask: str | None = None):
        self._advice = {(change.function, change.decision): change.advice for change in changes}
        self._default = default
        self._mask = mask

    def start(self, header: Header, seed: int) -> Decider:
        default = self._default.start(header, seed)
        is_integer = header.advice.dtype.kind == "i"

        def decide(function: str, index: int, observation: bytes) -> int | float:
            by_default = default(observation)
            advice = self._advice.get((function, index))
            if advice is None or not self._is_legal(header, observation, advice):
                return by_default
            return int(advice) if is_integer else advice

        return DeciderByFunction(decide, (default,))

    def _is_legal(self, header: Header, observation: bytes, advice: float) -> bool:
        if self._mask is None:
            return True
        mask: np.ndarray = header.decode(observation)[self._mask].reshape(-1)
        return 0 <= advice < len(mask) and bool(mask[int(advice)])
