"""What a search finds, and how far it is."""

import dataclasses
from collections.abc import Mapping, Sequence

from compiler_opt.search.program import Program


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far a search is.

    Attributes:
      compiles: so far.
      cpu_s: CPU seconds of the compiler in them.
      base_bytes: linked text under the base policy.
      linked_bytes: of the current state, as composed.
      confirmed_bytes: of the best state that was compiled as it is.
    """

    compiles: int
    cpu_s: float
    base_bytes: float
    linked_bytes: float
    confirmed_bytes: float

    @property
    def change(self) -> float:
        """The relative change that was confirmed; 0 for a program without text."""
        return self.confirmed_bytes / self.base_bytes - 1 if self.base_bytes else 0.0

    @property
    def composed_change(self) -> float:
        """The same of the current state, as composed."""
        return self.linked_bytes / self.base_bytes - 1 if self.base_bytes else 0.0


@dataclasses.dataclass(frozen=True)
class SearchOutcome:
    """What a search of one program has found.

    Attributes:
      base: the program under the base policy.
      best: the smallest one that was compiled as it is; may be `base`.
      others: the program under the policies of the other starts.
      compiles: by module, without what confirms the result.
      cpu_s: CPU seconds of the compiler.
      curve: progress over time.
      failures: why modules are left out, by their numbers.
    """

    base: Program
    best: Program
    others: Sequence[Program]
    compiles: Mapping[int, int]
    cpu_s: float
    curve: Sequence[Progress]
    failures: Mapping[int, str]
