"""The state of a program in a search, and what differs between two states, in parts that do not touch.

    components = compare(program, trial)                  # trial: new builds of some modules
    program.adopt(trial, [c for c in components if c.saved_bytes > 0])

A decision changes its caller, all functions that the caller was inlined into, and its callee if that appears or
vanishes. Functions that are connected in this way, by calls that differ, form a *component*. As components do not
touch, a state can take each of them from whichever of two builds has the smaller one, without compiling it: sizes of
functions add up. What this overlooks (attributes that the compiler infers across calls, changed constants) shows when
the composed state is compiled; until then its builds are not exact.
"""

import collections
import dataclasses
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence

from compiler_opt.policies.decisions import Site
from compiler_opt.search.builds import SHARED, Build, Call, Caller, Unit


@dataclasses.dataclass(frozen=True)
class Component:
    """A part in which two states differ.

    Attributes:
      callers: whose decisions differ.
      units: whose sizes differ.
      saved_bytes: of the linked program, with a share of what belongs to no unit.
      saved_rest_bytes: that share, by module.
    """

    callers: frozenset[Caller]
    units: frozenset[Unit]
    saved_bytes: float
    saved_rest_bytes: Mapping[int, float]

    def reverse(self) -> "Component":
        """The same component, seen from the other state."""
        rest = {module: -saved for module, saved in self.saved_rest_bytes.items()}
        return dataclasses.replace(self, saved_bytes=-self.saved_bytes, saved_rest_bytes=rest)


class Program:
    """Modules in link order, the builds of those that compile, and the decisions that led to them.

    The linked size is that of a linker that keeps the first copy of each COMDAT group.

    Attributes:
      builds: by module.
      pins: all decisions. A caller in several modules has one set of them.
      stale: by module, callers whose decisions were changed since the module was built.
    """

    def __init__(self, builds: Iterable[Build]):
        self.builds: dict[int, Build] = {build.module: build for build in builds}
        self.pins: dict[Caller, Mapping[tuple[str, int], int]] = {}
        self.stale: dict[int, set[Caller]] = {}
        self._emitters: collections.defaultdict[Unit, set[int]] = collections.defaultdict(set)
        self.modules_of: collections.defaultdict[Caller, set[int]] = collections.defaultdict(set)
        for module in sorted(self.builds):
            build = self.builds[module]
            self._index(build)
            for caller, calls in build.calls.items():
                self.pins[caller] = {**pins_of(calls), **self.pins.get(caller, {})}
        for build in self.builds.values():
            self._note_differences(build, build.calls)

    def copy(self) -> "Program":
        """A state that can change by itself."""
        other = Program(())
        other.builds, other.pins = dict(self.builds), dict(self.pins)
        other.stale = {module: set(callers) for module, callers in self.stale.items()}
        for build in other.builds.values():
            other._index(build)
        return other

    @property
    def linked_bytes(self) -> float:
        """Text bytes of the linked program."""
        total: float = sum(build.rest_bytes for build in self.builds.values())
        for module, build in self.builds.items():
            for unit, num_bytes in build.units.items():
                if unit[0] != SHARED or module == min(self._emitters[unit]):
                    total += num_bytes
        return total

    @property
    def inexact(self) -> list[int]:
        """Modules whose builds are composed, or older than decisions in them."""
        return [m for m, build in self.builds.items() if not build.is_exact or self.stale.get(m)]

    def differing_callers(self) -> frozenset[Caller]:
        """Callers in several modules that do not have the same decisions in all of them."""
        return frozenset(caller for callers in self.stale.values() for caller in callers)

    def decisions(self, module: int, freed: Collection[Caller] = ()) -> dict[Site, int]:
        """All decisions in a module's callers, except the freed ones."""
        return dict(self._sites(caller for caller in self.builds[module].calls if caller not in freed))

    def all_decisions(self) -> dict[Site, int]:
        """All decisions of the program."""
        return dict(self._sites(self.pins))

    def _sites(self, callers: Iterable[Caller]) -> Iterator[tuple[Site, int]]:
        for name, body in callers:
            for (callee, ordinal), advice in self.pins[name, body].items():
                yield Site(name, body, callee, ordinal), advice

    def keeper(self, unit: Unit) -> int | None:
        """The module whose copy of a unit the linker keeps; None if no module emits it."""
        return min(self._emitters[unit], default=None)

    def owner(self, caller: Caller) -> int:
        """The first module in which a caller has decisions."""
        return min(self.modules_of[caller])

    def saved(self, unit: Unit, trial: Mapping[int, Build]) -> int:
        """Linked bytes of a unit that new builds of some modules save."""
        after = {module for module in self._emitters.get(unit, ()) if module not in trial}
        after |= {module for module, build in trial.items() if unit in build.units}
        before = self.keeper(unit)
        saved = 0 if before is None else self.builds[before].units[unit]
        if after:
            saved -= (trial.get(min(after)) or self.builds[min(after)]).units[unit]
        return saved

    def adopt(self, trial: Mapping[int, Build], components: Collection[Component], *, whole: bool = False) -> None:
        """Takes components from new builds of some modules; with `whole`, the builds as they are."""
        callers = {caller for component in components for caller in component.callers}
        units = {unit for component in components for unit in component.units}
        rest: collections.Counter[int] = collections.Counter()
        for component in components:
            rest.update(component.saved_rest_bytes)
        for module in sorted(trial, reverse=True):  # Of several modules with a caller, the first one's calls count.
            new, old = trial[module], self.builds[module]
            taken = set(new.calls) | set(old.calls) if whole else callers
            composed = new if whole else compose(old, new, callers, units, rest[module])
            if composed is old:
                continue
            self._replace(composed)
            for caller in taken & set(new.calls):
                self.pins[caller] = {**self.pins.get(caller, {}), **pins_of(new.calls[caller])}
            self.stale.pop(module, None) if whole else self.stale.get(module, set()).difference_update(taken)
        changed = {caller for build in trial.values() for caller in build.calls} if whole else callers
        for module in {module for caller in changed for module in self.modules_of[caller]}:
            self._note_differences(self.builds[module], changed)

    def _note_differences(self, build: Build, callers: Iterable[Caller]) -> None:
        for caller in callers:
            pins = self.pins[caller]
            if any(pins.get((call.callee, call.ordinal)) != call.advice for call in build.calls.get(caller, ())):
                self.stale.setdefault(build.module, set()).add(caller)

    def _index(self, build: Build) -> None:
        for unit in build.units:
            self._emitters[unit].add(build.module)
        for caller in build.calls:
            self.modules_of[caller].add(build.module)

    def _replace(self, build: Build) -> None:
        old = self.builds[build.module]
        for unit in old.units.keys() - build.units.keys():
            self._emitters[unit].discard(build.module)
        for caller in old.calls.keys() - build.calls.keys():
            self.modules_of[caller].discard(build.module)
        self.builds[build.module] = build
        self._index(build)


def pins_of(calls: Sequence[Call]) -> dict[tuple[str, int], int]:
    """The decisions of one caller, by callee and ordinal."""
    return {(call.callee, call.ordinal): call.advice for call in calls}


def compose(old: Build, new: Build, callers: Collection[Caller], units: Collection[Unit], saved_rest: float) -> Build:
    """The old build with some callers' decisions and some units' sizes of the new one, if it has any of them."""
    # In order: random moves depend on it.
    changed_callers = sorted(c for c in callers if old.calls.get(c) != new.calls.get(c))
    changed_units = sorted(u for u in units if old.units.get(u) != new.units.get(u))
    if not changed_callers and not changed_units:
        return old
    calls, sizes = dict(old.calls), dict(old.units)
    for caller in changed_callers:
        calls.pop(caller, None)
        if caller in new.calls:
            calls[caller] = new.calls[caller]
    for unit in changed_units:
        sizes.pop(unit, None)
        if unit in new.units:
            sizes[unit] = new.units[unit]
    if calls == new.calls and sizes == new.units:
        return new
    return dataclasses.replace(new, calls=calls, units=sizes, rest_bytes=old.rest_bytes - saved_rest, is_exact=False)


def compare(program: Program, trial: Mapping[int, Build]) -> tuple[list[Component], frozenset[Unit]]:
    """The components in which new builds of some modules differ from a program's state.

    Returns:
      the components, and units of other sizes that belong to none of them.
    """
    sets = _DisjointSets()
    callers: set[Caller] = set()
    changed: dict[int, set[Unit]] = {}
    for module, new in trial.items():
        old = program.builds[module]
        units = old.units.keys() | new.units.keys()
        changed[module] = {unit for unit in units if old.units.get(unit) != new.units.get(unit)}
        for caller in old.calls.keys() | new.calls.keys():
            if old.calls.get(caller) != new.calls.get(caller):
                callers.add(caller)
                sets.add(caller)
                _connect(sets, caller, old, new, changed[module])
    for module, new in trial.items():
        _attach(sets, program.builds[module], new, changed[module])
    members: dict[Hashable, tuple[set[Caller], set[Unit]]] = {}
    for caller in sorted(callers):
        members.setdefault(sets.find(caller), (set(), set()))[0].add(caller)
    everything = {unit for units in changed.values() for unit in units}
    leftover = frozenset(unit for unit in everything if not sets.has(unit))
    for unit in everything - leftover:
        members[sets.find(unit)][1].add(unit)
    return _weighted(program, trial, changed, list(members.values())), leftover


def _connect(sets: "_DisjointSets", caller: Caller, old: Build, new: Build, changed: Collection[Unit]) -> None:
    """Connects a caller whose decisions differ with the units that they change."""
    for build in (old, new):
        for function in build.holders(caller[0]):
            if build.unit(function) in changed:
                sets.union(caller, build.unit(function))
    before = {(call.callee, call.ordinal): call.inlined for call in old.calls.get(caller, ())}
    after = {(call.callee, call.ordinal): call.inlined for call in new.calls.get(caller, ())}
    for callee, ordinal in before.keys() | after.keys():
        if before.get((callee, ordinal)) != after.get((callee, ordinal)):
            # The callee appears or vanishes or, where measured costs count as bytes, its other calls are cheap or not.
            unit = new.unit(callee)
            if unit in changed:
                sets.union(caller, unit)


def _attach(sets: "_DisjointSets", old: Build, new: Build, changed: Collection[Unit]) -> None:
    """Adds changed units that no differing caller explains to components of functions that they call, or are called by.

    The compiler infers attributes from callees and constants from callers; callees come first.
    """
    unexplained = {unit for unit in changed if not sets.has(unit)}
    if not unexplained:
        return
    callees: dict[Unit, list[Unit]] = {unit: [] for unit in unexplained}
    callers: dict[Unit, list[Unit]] = {unit: [] for unit in unexplained}
    for build in (new, old):
        for (name, _), calls in build.calls.items():
            for call in calls:
                caller, callee = build.unit(name), build.unit(call.callee)
                if caller in callees:
                    callees[caller].append(callee)
                if callee in callers:
                    callers[callee].append(caller)
    for unit in sorted(unexplained):
        neighbours = (*callees[unit], *callers[unit])
        known = next((each for each in neighbours if each not in unexplained and sets.has(each)), None)
        if known is not None:
            sets.union(known, unit)


def _weighted(
    program: Program,
    trial: Mapping[int, Build],
    changed: Mapping[int, Collection[Unit]],
    members: Sequence[tuple[set[Caller], set[Unit]]],
) -> list[Component]:
    """The components with the bytes that they save. A module's rest is shared by how much they change in it."""
    amounts: list[dict[int, float]] = [{} for _ in members]
    for module, new in trial.items():
        old = program.builds[module]
        for amount, (_, units) in zip(amounts, members, strict=True):
            moved = sum(abs(old.units.get(u, 0) - new.units.get(u, 0)) for u in units if u in changed[module])
            if moved:
                amount[module] = moved
    totals: collections.Counter[int] = collections.Counter()
    for amount in amounts:
        totals.update(amount)
    components = []
    for amount, (callers, units) in zip(amounts, members, strict=True):
        rest = {
            module: (program.builds[module].rest_bytes - trial[module].rest_bytes) * moved / totals[module]
            for module, moved in amount.items()
        }
        saved = sum(program.saved(unit, trial) for unit in units) + sum(rest.values())
        components.append(Component(frozenset(callers), frozenset(units), saved, rest))
    return components


class _DisjointSets:
    """Union-find over callers and units, which are tuples of different types."""

    def __init__(self) -> None:
        self._parents: dict[Hashable, Hashable] = {}

    def has(self, item: Hashable) -> bool:
        return item in self._parents

    def add(self, item: Hashable) -> None:
        self._parents.setdefault(item, item)

    def find(self, item: Hashable) -> Hashable:
        while self._parents[item] != item:
            self._parents[item] = self._parents[self._parents[item]]
            item = self._parents[item]
        return item

    def union(self, one: Hashable, other: Hashable) -> None:
        self.add(one)
        self.add(other)
        self._parents[self.find(one)] = self.find(other)
