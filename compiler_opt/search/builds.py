"""What one compile of one module says: its call sites with their decisions, and the size of every function.

A *caller* is a function's name with the fingerprint of its body, as in decision files: the modules that emit a COMDAT
function share its decisions. A *unit* is what the linker keeps or drops as a whole: a COMDAT group, one for the whole
program, or a function of one module.
"""

import collections
import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Protocol, TypeAlias

from compiler_opt.decisions.inlining.bodies import Bodies, coroutine_of
from compiler_opt.llvm.object_file import ObjectSizes
from compiler_opt.policies.decisions import Site

Caller: TypeAlias = tuple[str, int]
"""Name, and fingerprint of the body."""

Unit: TypeAlias = tuple[int, str]
"""The module's number and the function's name, or `SHARED` and the signature of a COMDAT group."""

SHARED = -1


@dataclasses.dataclass(frozen=True, slots=True)
class Compiled:
    """The result of one compile of one module, with T decisions.

    Attributes:
      sites: T sites, in order.
      advice: T decisions, 0 or 1.
      inlined: T outcomes; a call may resist.
      defaults: T decisions of LLVM's heuristic in the same place; None if they are unknown.
      sizes: of the object.
      cpu_s: CPU seconds of the compiler.
    """

    sites: Sequence[Site]
    advice: Sequence[int]
    inlined: Sequence[bool]
    defaults: Sequence[int] | None
    sizes: ObjectSizes
    cpu_s: float = 0.0


class Compiler(Protocol):
    """Compiles modules of a program, which are numbered in link order, under given decisions.

    compiled = compiler.compile({3: {site: 0}, 5: {}})     # all at once; the base policy decides elsewhere
    compiled[3].sizes, compiled[5].sites
    """

    def compile(self, requests: Mapping[int, Mapping[Site, int]]) -> Mapping[int, Compiled | str]:
        """The result for each module, or why it failed, in one line."""


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """A decision in a caller.

    Attributes:
      callee: its name.
      ordinal: see `Site`.
      advice: 0 or 1.
      inlined: the outcome.
      default: LLVM's own decision; None if it is unknown. Calls that differ in it only are equal.
    """

    callee: str
    ordinal: int
    advice: int
    inlined: bool
    default: int | None = dataclasses.field(compare=False)


@dataclasses.dataclass(frozen=True)
class Build:
    """A module's state: measured, or composed of parts of two measured ones.

    Attributes:
      module: its number.
      calls: decisions by caller, in order.
      units: text bytes by unit.
      rest_bytes: text that belongs to no unit, such as constants and padding; with the dynamic relocations that
        constants need.
      groups: signature of the COMDAT group by function.
      is_exact: whether it was measured as it is.
      is_cut: whether callers of an earlier build had no decisions any more; see `build_of`.
    """

    module: int
    calls: Mapping[Caller, tuple[Call, ...]]
    units: Mapping[Unit, int]
    rest_bytes: float
    groups: Mapping[str, str]
    is_exact: bool = True
    is_cut: bool = False

    def unit(self, function: str) -> Unit:
        """The unit of a function, whether it is emitted or not."""
        group = self.groups.get(function)
        return (self.module, function) if group is None else (SHARED, group)

    @functools.cached_property
    def callers_of(self) -> Mapping[str, Sequence[tuple[str, Call]]]:
        """By function, the calls of it with their callers' names."""
        found: dict[str, list[tuple[str, Call]]] = collections.defaultdict(list)
        for (name, _), calls in self.calls.items():
            for call in calls:
                found[call.callee].append((name, call))
        return found

    @functools.cached_property
    def by_name(self) -> Mapping[str, Caller]:
        """Callers by their names, which are unique in a module."""
        return {caller[0]: caller for caller in self.calls}

    def remaining_calls(self, function: str) -> int:
        """The number of its decided calls that were not inlined."""
        return self._remaining_calls[function]

    @functools.cached_property
    def _remaining_calls(self) -> collections.Counter[str]:
        return collections.Counter(call.callee for calls in self.calls.values() for call in calls if not call.inlined)

    def holders(self, function: str) -> Set[str]:
        """Functions that have its body; see `Bodies`."""
        return self._bodies.holders(function)

    @functools.cached_property
    def _bodies(self) -> Bodies:
        inlined = ((name, call.callee) for (name, _), calls in self.calls.items() for call in calls if call.inlined)
        return Bodies(inlined, [*(name for name, _ in self.calls), *(name for _, name in self.units)])


def comdat_groups(compiled: Iterable[Compiled]) -> dict[str, str]:
    """Signature of the COMDAT group by function, as far as these objects emit it."""
    groups: dict[str, str] = {}
    for each in compiled:
        groups.update(each.sizes.function_comdats)
    return groups


def build_of(
    compiled: Compiled, module: int, groups: Mapping[str, str], previous: Mapping[Caller, tuple[Call, ...]] = {}
) -> Build:
    """The build of a measured module.

    When a module has grown too much, the advisor inlines nothing more and reports no more decisions. Calls in the
    callers that are then missing count as decided against, so that this outcome can be repeated elsewhere.

    Args:
      compiled: what was measured.
      module: its number.
      groups: COMDAT groups of functions, which this object may not emit.
      previous: the calls of an earlier build of the module.
    """
    calls: dict[Caller, list[Call]] = collections.defaultdict(list)
    unknown: Sequence[int | None] = [None] * len(compiled.sites)
    defaults = unknown if compiled.defaults is None else compiled.defaults
    for site, advice, inlined, default in zip(compiled.sites, compiled.advice, compiled.inlined, defaults, strict=True):
        calls[site.caller, site.body].append(Call(site.callee, site.ordinal, advice, inlined, default))
    # Parts of a coroutine have other bodies, and so are other callers, after other decisions in it.
    missing = {caller for caller in previous.keys() - calls.keys() if not coroutine_of(caller[0])}
    if missing:
        if compiled.sites:
            missing.add((compiled.sites[-1].caller, compiled.sites[-1].body))  # It may have stopped in there.
        for caller in missing:
            known = {(call.callee, call.ordinal) for call in calls.get(caller, ())}
            calls[caller] += [
                dataclasses.replace(call, advice=0, inlined=False)
                for call in previous.get(caller, ())
                if (call.callee, call.ordinal) not in known
            ]
    sizes = compiled.sizes
    own = {name: group for name, group in sizes.function_comdats.items() if groups.get(name) != group}
    units = {(SHARED, signature): num_bytes for signature, num_bytes in sizes.comdats.items()}
    units |= {(module, name): size for name, size in sizes.functions.items() if name not in sizes.function_comdats}
    return Build(
        module=module,
        calls={caller: tuple(found) for caller, found in calls.items()},
        units=units,
        rest_bytes=sizes.text_bytes + sizes.relocation_bytes - sum(units.values()),
        groups={**groups, **own} if own else groups,
        is_cut=bool(missing),
    )
