"""The state of an interrupted search, from which the same search continues."""

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from compiler_opt.policies.decisions import Site


@dataclasses.dataclass(frozen=True)
class SavedState:
    """What a search has found and learned; builds are made again from the decisions.

    Attributes:
      round: number of trials so far, which seeds the random moves.
      best: decisions of the best confirmed state.
      current: decisions of the current state.
      expectations: see `Expectations.to_json`.
      tried: by move, the versions of its functions when it was tried.
      versions: how often each function has changed.
      limits: moves at once, by module.
      compiles: by module.
      cpu_s: CPU seconds of the compiler.
      curve: `Progress` as tuples.
    """

    round: int = 0
    best: Mapping[Site, int] = dataclasses.field(default_factory=dict)
    current: Mapping[Site, int] = dataclasses.field(default_factory=dict)
    expectations: Sequence[Any] = ()
    tried: Mapping[int, int] = dataclasses.field(default_factory=dict)
    versions: Mapping[str, int] = dataclasses.field(default_factory=dict)
    limits: Mapping[int, int] = dataclasses.field(default_factory=dict)
    compiles: Mapping[int, int] = dataclasses.field(default_factory=dict)
    cpu_s: float = 0.0
    curve: Sequence[Sequence[float]] = ()


def pins_from(decisions: Mapping[Site, int]) -> dict[str, list[tuple[Site, int]]]:
    """The decisions by caller's name."""
    found: dict[str, list[tuple[Site, int]]] = collections.defaultdict(list)
    for site, advice in decisions.items():
        found[site.caller].append((site, advice))
    return found
