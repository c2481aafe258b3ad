"""Flips of single decisions of a module, many in one compile, and what each of them gains.

    module = ModuleFlips(rollout, copies)                  # under some policy
    for flips in module.draw(4, 200, rng):
        trial = rollout under OverridingPolicy(policy, flips)
        for decision, saved_bytes in module.gains(trial, flips): ...

The decisions of a COMDAT function that n modules emit are drawn with probability 1/n in each. Its copies change alike,
so that a change counts once, in full. A COMDAT function that appears or vanishes counts only if no other module emits
it; otherwise the linker keeps another module's copy. Flips are drawn so that the functions that they can change do not
touch; `program.compare` then tells them apart. All else is as the policy decides, also where a flip makes it decide
otherwise.
"""

import collections
from collections.abc import Iterator, Mapping

import numpy as np

from compiler_opt.collect.rollout import Rollout
from compiler_opt.llvm.object_file import ObjectSizes
from compiler_opt.policies.decisions import Decisions, Site
from compiler_opt.search.builds import SHARED, Build, Caller, Unit, build_of, comdat_groups
from compiler_opt.search.compiling import compiled_of
from compiler_opt.search.program import Program, compare


class ModuleFlips:
    """A module under a policy."""

    def __init__(self, rollout: Rollout[ObjectSizes], copies: Mapping[str, float]):
        """Its state after a rollout.

        Args:
          rollout: with call sites, not failed.
          copies: by signature, how many modules emit a COMDAT group; 1 if it is missing. A linker keeps one of them.
        """
        compiled = compiled_of(rollout)
        assert not isinstance(compiled, str)
        self._compiled, self._copies = compiled, copies
        self._positions = {site: position for position, site in enumerate(compiled.sites)}
        self._groups = comdat_groups([compiled])
        self._build = build_of(compiled, 0, self._groups)

    def draw(self, count: int, most: int, rng: np.random.Generator) -> list[Decisions]:
        """What to flip in `count` compiles, up to `most` decisions in each, and as many different ones as possible."""
        compiled = self._compiled
        parts = [self._touched(site) for site in compiled.sites]
        shares = [1 / self._num_copies(self._build.unit(site.caller)) for site in compiled.sites]
        new = set(np.flatnonzero(rng.random(len(parts)) < shares).tolist())
        candidates = sorted(new)
        drawn = []
        for _ in range(count):
            taken: set[Unit] = set()
            flipped: list[int] = []
            for position in sorted(rng.permutation(candidates).tolist(), key=lambda each: each not in new):
                if taken.isdisjoint(parts[position]) and len(flipped) < most:
                    taken |= parts[position]
                    flipped.append(position)
            if new.isdisjoint(flipped):
                break
            new.difference_update(flipped)
            drawn.append(Decisions({compiled.sites[each]: 1 - compiled.advice[each] for each in flipped}))
        return drawn

    def gains(self, trial: Rollout[ObjectSizes], flips: Decisions) -> Iterator[tuple[int, float]]:
        """Positions of flipped decisions, and the bytes that each saves in the linked program.

        Flips that cannot be told from others are left out, and those that LLVM did not ask about any more, since the
        module had grown too much.
        """
        compiled = compiled_of(trial)
        if isinstance(compiled, str):
            return
        after = build_of(compiled, 0, self._groups)
        by_caller: collections.defaultdict[Caller, list[int]] = collections.defaultdict(list)
        for site in flips.keys() & set(compiled.sites):
            by_caller[site.caller, site.body].append(self._positions[site])
        for component in compare(Program([self._build]), {0: after})[0]:
            inside = [position for caller in component.callers for position in by_caller.get(caller, ())]
            if len(inside) == 1:
                saved = sum(self._saved_bytes(unit, after) for unit in component.units)
                yield inside[0], saved + sum(component.saved_rest_bytes.values())

    def _touched(self, site: Site) -> set[Unit]:
        """What a decision can change: all that has the caller's body, and the callee."""
        return {self._build.unit(name) for name in (*self._build.holders(site.caller), site.callee)}

    def _saved_bytes(self, unit: Unit, after: Build) -> int:
        before = self._build.units
        if (unit in before) != (unit in after.units) and self._num_copies(unit) > 1:
            return 0
        return before.get(unit, 0) - after.units.get(unit, 0)

    def _num_copies(self, unit: Unit) -> float:
        """The number of modules that emit a unit, at least 1."""
        kind, signature = unit
        return max(1.0, self._copies.get(signature, 1.0)) if kind == SHARED else 1.0
