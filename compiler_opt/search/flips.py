"""Flips of decisions of a module, many in one compile, and what each of them gains.

    module = ModuleFlips(rollout, copies, groups=True)     # under some policy
    for flips in module.draw(4, 200, rng):
        trial = compiled_of(rollout under OverridingPolicy(policy, flips))
        for decision, saved_bytes in module.gains(trial, flips): ...

With `groups`, all calls of a callee that the object can lose or gain as a whole are flipped together, if they are
decided alike: only together do they remove its body, or bring it back. Each of these calls gains an equal part.

The decisions of a COMDAT function that n modules emit are drawn with probability 1/n in each. Its copies change alike,
so that a change counts once, in full. A COMDAT function that appears or vanishes by a single flip counts only if no
other module emits it; otherwise the linker keeps another module's copy. By a group, which a policy decides alike in
all modules, it counts 1/n. Flips are drawn so that the functions that they can change do not touch; `program.compare`
then tells them apart. All else is as the policy decides, also where a flip makes it decide otherwise.
"""

import collections
from collections.abc import Iterator, Mapping
from typing import TypeAlias

import numpy as np

from compiler_opt.collect.rollout import Rollout
from compiler_opt.llvm.object_file import ObjectSizes
from compiler_opt.policies.decisions import Decisions, Site
from compiler_opt.search.builds import SHARED, Build, Caller, Compiled, Unit, build_of, comdat_groups
from compiler_opt.search.compiling import compiled_of
from compiler_opt.search.program import Program, compare

_MAX_GROUP = 32
"""More calls than these touch so much of a module that little else can be tried with them; they are flipped singly."""

GROUP_FEATURES = ("callee_linkage", "callee_other_uses")
"""The plugin's features that say whether a function vanishes with its last call."""

_Move: TypeAlias = tuple[int, ...]
"""Positions of the decisions that are flipped together, in order."""


class ModuleFlips:
    """A module under a policy."""

    def __init__(
        self,
        rollout: Rollout[ObjectSizes],
        copies: Mapping[str, float],
        *,
        groups: bool = False,
    ):
        """Its state after a rollout.

        Args:
          rollout: with call sites, not failed.
          copies: by signature, how many modules emit a COMDAT group; 1 if it is missing. A linker keeps one of them.
          groups: flips calls of a callee together where that decides whether its body remains. The rollout must have
            recorded `GROUP_FEATURES`.
        """
        compiled = compiled_of(rollout)
        assert not isinstance(compiled, str)
        self._compiled, self._copies = compiled, copies
        self._moves = _moves(rollout, compiled) if groups else [(each,) for each in range(len(compiled.sites))]
        self._move_of = {compiled.sites[position]: move for move in self._moves for position in move}
        self._groups = comdat_groups([compiled])
        self._build = build_of(compiled, 0, self._groups)

    def draw(self, count: int, most: int, rng: np.random.Generator) -> list[Decisions]:
        """What to flip in `count` compiles, up to `most` decisions in each, and as many different ones as possible."""
        compiled = self._compiled
        touched = {move: set().union(*(self._touched(compiled.sites[each]) for each in move)) for move in self._moves}
        chances = [self._chance(move) for move in self._moves]
        drawn_at_all = rng.random(len(chances)) < chances
        new = {move for move, is_drawn in zip(self._moves, drawn_at_all, strict=True) if is_drawn}
        candidates = sorted(new)
        drawn = []
        for _ in range(count):
            taken: set[Unit] = set()
            flipped: list[_Move] = []
            order = [candidates[each] for each in rng.permutation(len(candidates))]
            for move in sorted(order, key=lambda each: each not in new):
                if taken.isdisjoint(touched[move]) and sum(map(len, flipped)) + len(move) <= most:
                    taken |= touched[move]
                    flipped.append(move)
            if new.isdisjoint(flipped):
                break
            new.difference_update(flipped)
            positions = [position for move in flipped for position in move]
            drawn.append(Decisions({compiled.sites[each]: 1 - compiled.advice[each] for each in positions}))
        return drawn

    def gains(self, trial: Compiled | str, flips: Decisions) -> Iterator[tuple[int, float]]:
        """Positions of flipped decisions, and the bytes that each saves in the linked program.

        Flips that cannot be told from others are left out, and those that LLVM did not ask about any more, since the
        module had grown too much.
        """
        if isinstance(trial, str):
            return
        after = build_of(trial, 0, self._groups)
        by_caller: collections.defaultdict[Caller, set[_Move]] = collections.defaultdict(set)
        for site in flips.keys() & set(trial.sites):
            by_caller[site.caller, site.body].add(self._move_of[site])
        for component in compare(Program([self._build]), {0: after})[0]:
            inside = {move for caller in component.callers for move in by_caller.get(caller, ())}
            if len(inside) != 1:
                continue
            [move] = inside
            sites = [self._compiled.sites[position] for position in move]
            if all((site.caller, site.body) in component.callers for site in sites):
                saved = sum(self._saved_bytes(unit, after, move) for unit in component.units)
                saved += sum(component.saved_rest_bytes.values())
                for position in move:
                    yield position, saved / len(move)

    def _touched(self, site: Site) -> set[Unit]:
        """What a decision can change: all that has the caller's body, and the callee."""
        return {self._build.unit(name) for name in (*self._build.holders(site.caller), site.callee)}

    def _chance(self, move: _Move) -> float:
        """The probability that a move is tried in this module: 1/n in each of n that have the same callers."""
        callers = [self._build.unit(self._compiled.sites[position].caller) for position in move]
        return sum(1 / self._num_copies(caller) for caller in callers) / len(callers)

    def _saved_bytes(self, unit: Unit, after: Build, move: _Move) -> float:
        before = self._build.units
        saved = before.get(unit, 0) - after.units.get(unit, 0)
        if (unit in before) == (unit in after.units) or self._num_copies(unit) == 1:
            return saved
        # Of the copies that vanish from all modules, this one's part; it is tried only so often.
        return saved / self._num_copies(unit) / self._chance(move) if len(move) > 1 else 0

    def _num_copies(self, unit: Unit) -> float:
        """The number of modules that emit a unit, at least 1."""
        kind, signature = unit
        return max(1.0, self._copies.get(signature, 1.0)) if kind == SHARED else 1.0


def _moves(rollout: Rollout[ObjectSizes], compiled: Compiled) -> list[_Move]:
    """The decisions that are flipped together: groups of calls, and the others alone."""
    assert rollout.trajectory is not None
    features = rollout.trajectory.features()
    linkage, other_uses = (features[name].reshape(-1) for name in GROUP_FEATURES)
    can_vanish = (linkage > 0) & (other_uses == 0)
    calls_of: collections.defaultdict[str, list[int]] = collections.defaultdict(list)
    for position, site in enumerate(compiled.sites):
        calls_of[site.callee].append(position)
    moves: list[_Move] = []
    for calls in calls_of.values():
        alike = len({compiled.advice[each] for each in calls}) == 1 and can_vanish[calls].all()
        if alike and 1 < len(calls) <= _MAX_GROUP:
            moves.append(tuple(calls))
        else:
            moves += [(each,) for each in calls]
    return sorted(moves)
