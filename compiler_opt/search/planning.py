"""Which moves are tried next: those of which most is expected, many in one compile, in parts that do not touch."""

import collections
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from compiler_opt.search.builds import SHARED, Unit
from compiler_opt.search.moves import Move
from compiler_opt.search.program import Program

_PRIOR_RATIO = 0.1
_PRIOR_COUNT = 4.0
_MAX_RATIO = 2.0
_MAX_MODULES = 4
"""In which a move is measured; in the others, its effect shows when they are compiled next."""
_MIN_SHARE = 0.25
"""Of the best module's expected gain, below which a module is not compiled this time."""

_MIN_COMPILE_S = 0.02
"""What starting a compiler and reading an object take."""

_Key: TypeAlias = tuple[str, tuple[int, ...]]


class Expectations:
    """What moves are expected to save, from what similar ones have saved.

    The saving of a move is a ratio of its scale. The mean ratio of moves that share all features is shrunk to that of
    moves that share all but the last, and so on.
    """

    def __init__(self, sums: Mapping[_Key, tuple[float, float]] = {}):
        self._sums: dict[_Key, tuple[float, float]] = dict(sums)  # ratios' sum, and their count

    def saved_bytes(self, move: Move) -> float:
        """The expected saving of a move, which is not kept if it saves nothing."""
        ratio = _PRIOR_RATIO
        for key in _keys(move):
            total, count = self._sums.get(key, (0.0, 0.0))
            ratio = (total + _PRIOR_COUNT * ratio) / (count + _PRIOR_COUNT)
        return ratio * move.scale_bytes

    def learn(self, move: Move, saved_bytes: float) -> None:
        """Takes the result of a trial into account."""
        ratio = min(_MAX_RATIO, max(0.0, saved_bytes) / move.scale_bytes)
        for key in _keys(move):
            total, count = self._sums.get(key, (0.0, 0.0))
            self._sums[key] = (total + ratio, count + 1)

    def to_json(self) -> list[tuple[str, tuple[int, ...], float, float]]:
        """For `from_json`."""
        return [(kind, features, *sums) for (kind, features), sums in sorted(self._sums.items())]

    @classmethod
    def from_json(cls, content: Iterable[tuple[str, tuple[int, ...], float, float]]) -> "Expectations":
        """From what `to_json` has returned."""
        return cls({(kind, tuple(features)): (total, count) for kind, features, total, count in content})


def _keys(move: Move) -> list[_Key]:
    return [(move.kind, move.features[:length]) for length in range(len(move.features) + 1)]


@dataclasses.dataclass(frozen=True)
class Plan:
    """Moves to try at once.

    Attributes:
      moves: they touch no common unit.
      modules: for each move, the modules in which it is measured.
      expected_bytes: the sum of what the moves are expected to save.
    """

    moves: Sequence[Move]
    modules: Sequence[frozenset[int]]
    expected_bytes: float

    def pairs(self) -> list[tuple[Move, frozenset[int]]]:
        """Moves with their modules."""
        return list(zip(self.moves, self.modules, strict=True))

    def compiled(self) -> list[int]:
        """All modules in which something is measured."""
        return sorted(frozenset().union(*self.modules))


def plan(
    program: Program,
    candidates: Iterable[tuple[float, Move]],
    limits: Mapping[int, int],
    *,
    min_modules: int = 1,
    max_modules: int | None = None,
    seconds: Mapping[int, float] = {},
) -> Plan:
    """Chooses moves from candidates, given with their expected gains.

    Args:
      program: its state.
      candidates: untried moves.
      limits: by module that may be compiled, how many moves to try in it at once.
      min_modules: number of modules to compile at least, if there are moves for them.
      max_modules: and at most.
      seconds: that a compile of each module takes. Where they are given, the modules that save most in a second come
        first; otherwise, those that save most in a compile.
    """
    ordered = sorted(candidates, key=lambda each: (-each[0], each[1].key))
    gains: collections.defaultdict[int, float] = collections.defaultdict(float)
    chosen: list[tuple[float, Move, frozenset[int]]] = []
    taken = _Taken(program)
    counts: collections.Counter[int] = collections.Counter()
    for expected, move in ordered:
        modules = measured_in(program, move)
        if any(counts[module] >= limits.get(module, 0) for module in modules) or not taken.add(move, modules):
            continue
        chosen.append((expected, move, modules))
        for module in modules:
            counts[module] += 1
            gains[module] += expected / len(modules)
    for module, compile_s in seconds.items():
        gains[module] /= max(_MIN_COMPILE_S, compile_s)
    best_first = sorted((module for module in gains if gains[module] > 0), key=lambda module: (-gains[module], module))
    if best_first:
        least = _MIN_SHARE * gains[best_first[0]]
        best_first = [m for rank, m in enumerate(best_first) if rank < min_modules or gains[m] >= least]
    selected = set(best_first[:max_modules])
    kept = [each for each in chosen if each[2] <= selected]
    if not kept:
        # What is left to try needs modules that promise less by themselves.
        for module in best_first:
            needed = selected.union(next(modules for _, _, modules in chosen if module in modules))
            selected = needed if max_modules is None or len(needed) <= max_modules else selected
        kept = [each for each in chosen if each[2] <= selected]
    return Plan([move for _, move, _ in kept], [modules for *_, modules in kept], sum(gain for gain, *_ in kept))


def measured_in(program: Program, move: Move) -> frozenset[int]:
    """The modules in which a move can change linked bytes, its owner first, up to a limit."""
    found: list[int] = []
    for caller in sorted(move.callers):
        if not program.modules_of[caller]:
            continue
        owner = program.owner(caller)
        for module in sorted(program.modules_of[caller]):
            build = program.builds[module]
            units = (build.unit(function) for function in build.holders(caller[0]))
            if module == owner or any(unit[0] != SHARED or program.keeper(unit) == module for unit in units):
                found.append(module)
    return frozenset(list(dict.fromkeys(found))[:_MAX_MODULES])


class _Taken:
    """Units that chosen moves may change."""

    def __init__(self, program: Program):
        self._program = program
        self._units: set[Unit] = set()
        self._modules: set[int] = set()

    def add(self, move: Move, modules: Iterable[int]) -> bool:
        """Adds a move's units, unless one of them is taken."""
        touched: set[Unit] = set()
        for module in modules:
            self._begin(module)
            build = self._program.builds[module]
            inlined: collections.Counter[str] = collections.Counter()
            for site, advice in move.flips:
                if (site.caller, site.body) in build.calls:
                    touched |= {build.unit(function) for function in build.holders(site.caller)}
                    inlined[site.callee] += advice
                    if not advice and build.unit(site.callee) not in build.units:
                        touched.add(build.unit(site.callee))
            for name, _ in move.freed & build.calls.keys():
                touched |= {build.unit(function) for function in build.holders(name)}
            touched |= {build.unit(f) for f, count in inlined.items() if count and build.remaining_calls(f) <= count}
        if not self._units.isdisjoint(touched):
            return False
        self._units |= touched
        return True

    def _begin(self, module: int) -> None:
        """When a module is compiled, stale callers in it change as well."""
        if module not in self._modules:
            self._modules.add(module)
            build = self._program.builds[module]
            for name, _ in self._program.stale.get(module, ()):
                self._units |= {build.unit(function) for function in build.holders(name)}
