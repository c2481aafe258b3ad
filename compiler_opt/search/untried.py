"""The moves that a search has left to try, with what each is expected to save."""

import collections
import random
from collections.abc import Collection, Iterable, Mapping, Sequence

from compiler_opt.search.builds import Build
from compiler_opt.search.moves import Move, MoveMaker
from compiler_opt.search.planning import Expectations
from compiler_opt.search.program import Component, Program
from compiler_opt.search.saved_state import SavedState

_FEW_MOVES = 16
"""With fewer untried moves, random pairs are tried as well."""


class UntriedMoves:
    """All moves of a program but those that were tried since their functions have changed.

    Attributes:
      expectations: learned from trials.
      tried: by the key of a move, the versions of its functions when it was tried.
      versions: how often each function has changed.
    """

    def __init__(self, maker: MoveMaker, kinds: Collection[str], state: SavedState):
        """Continues from a state; makes moves of some kinds (see `Move`)."""
        self.expectations = Expectations.from_json(state.expectations)
        self.tried: dict[int, int] = dict(state.tried)
        self.versions = collections.Counter(state.versions)
        self._maker = maker
        self._kinds = kinds
        self._made: dict[int, tuple[Build, list[Move]]] = {}
        self._exposed: dict[int, list[Move]] = collections.defaultdict(list)

    def of_module(
        self, program: Program, module: int, generator: random.Random, num_pairs: int
    ) -> list[tuple[float, Move]]:
        """The untried moves of a module with the bytes that each is expected to save."""
        moves = [move for move in self._all_of_module(program, module) if self._is_untried(move)]
        if len(moves) < _FEW_MOVES and "pair" in self._kinds:
            pairs = self._maker.pairs(program, module, generator, num_pairs)
            moves += {move.key: move for move in pairs if self._is_untried(move)}.values()
        return [(self.expectations.saved_bytes(move), move) for move in moves]

    def mark_tried(self, moves: Iterable[Move]) -> None:
        self.tried.update((move.key, self._version(move)) for move in moves)

    def mark_changed(self, component: Component) -> None:
        """Lets the moves of a component's functions be tried again."""
        names = {name for name, _ in component.callers} | {name for _, name in component.units}
        self.versions.update(names)

    def learn(
        self, moves: Sequence[Move], components: Sequence[Component], program: Program, trial: Mapping[int, Build]
    ) -> None:
        """Takes the result of a trial into account.

        Args:
          moves: that were tried, all at once.
          components: in which the trial differs from the program.
          program: as it was.
          trial: its modules with the moves.
        """
        parts = list(zip(components, _moves_in(components, moves), strict=True))
        saved: dict[int, float] = dict.fromkeys((move.key for move in moves), 0.0)
        for component, inside in parts:
            total = sum(move.scale_bytes for move in inside)
            for move in inside:
                saved[move.key] += component.saved_bytes * move.scale_bytes / total
        for move in moves:
            self.expectations.learn(move, saved[move.key])
        if "exposed" in self._kinds:
            self._find_exposed(parts, program, trial)

    def _find_exposed(
        self, parts: Iterable[tuple[Component, Sequence[Move]]], program: Program, trial: Mapping[int, Build]
    ) -> None:
        for component, inside in parts:
            if component.saved_bytes > 0 or len(inside) != 1 or inside[0].kind != "call":
                continue
            (move,) = inside
            ((site, advice),) = move.flips
            owner = program.owner((site.caller, site.body))
            if advice and owner in trial:
                self._exposed[owner] += self._maker.exposed(program.builds[owner], move, trial[owner])

    def _all_of_module(self, program: Program, module: int) -> list[Move]:
        """All but pairs, tried ones as well."""
        build = program.builds[module]
        cached = self._made.get(module)
        if cached is None or cached[0] is not build:
            moves = [move for move in self._maker.moves(program, module) if move.kind in self._kinds]
            self._made[module] = cached = (build, moves)
        return cached[1] + self._exposed[module]

    def _is_untried(self, move: Move) -> bool:
        return self.tried.get(move.key, -1) < self._version(move)

    def _version(self, move: Move) -> int:
        return sum(self.versions[name] for name in move.functions)


def _moves_in(components: Sequence[Component], moves: Iterable[Move]) -> list[list[Move]]:
    """For each component, the moves that change a decision in it."""
    numbers = {caller: number for number, component in enumerate(components) for caller in component.callers}
    found: list[list[Move]] = [[] for _ in components]
    for move in moves:
        for number in {numbers[caller] for caller in move.callers if caller in numbers}:
            found[number].append(move)
    return found
