"""What the functions of a program cost by its profile, when some of its calls are inlined: costs that add up.

A function's cost is that of one call, without the functions that it calls, times its calls. The compiler keeps the
counts of a profile while it inlines, so an object says both. But a profile counts the calls of a function in the whole
program. Of a function that several modules emit, the linker keeps one copy, which also gets the calls of the other
modules. So a call of it that is inlined somewhere saves what one call costs, and the caller is credited with it:

    a function of one module                  calls * cost of a call
    a shared function, in the copy kept       calls * (cost of a call - its usual cost)
    each call of a shared function, inlined   - calls * its usual cost, in the function that its code is in now

Usual is what a call of a shared function costs under the base policy. The sum over a program differs from
what it costs by a constant, but for this: if a shared function has changed, and is inlined in another module than the
one whose copy is kept, the change counts twice for those calls.
"""

import collections
import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from compiler_opt.cost_models.block_costs import BlockCosts
from compiler_opt.cost_models.function_costs import CompiledProfile, ObjectCode, costs_of_calls
from compiler_opt.decisions.inlining.bodies import Bodies
from compiler_opt.llvm.object_file import ObjectSizes


@dataclasses.dataclass(frozen=True)
class InlinedCall:
    """A call that was inlined, and how often it runs in the profile."""

    caller: str
    callee: str
    count: float


@dataclasses.dataclass(frozen=True)
class ProfiledModule:
    """One module, compiled with a profile under some decisions.

    Attributes:
      functions: those in its object.
      shared: those of them that other modules may emit as well.
      call_costs: by function, the cost of one call, without the functions that it calls.
      calls: by function, how often it is called in the profile; without calls that this module has inlined.
      inlined: its calls that were inlined, those into a callee before those of it.
    """

    functions: frozenset[str]
    shared: frozenset[str]
    call_costs: Mapping[str, float]
    calls: Mapping[str, float]
    inlined: Sequence[InlinedCall]

    @classmethod
    def of(
        cls,
        sizes: ObjectSizes,
        code: ObjectCode,
        costs: BlockCosts,
        profile: CompiledProfile,
        inlined: Sequence[InlinedCall],
    ) -> "ProfiledModule":
        """A module by its object."""
        return cls(
            frozenset(sizes.functions),
            frozenset(sizes.function_comdats),
            costs_of_calls(code, costs, profile),
            dict(zip(code.functions, code.calls.tolist(), strict=True)),
            inlined,
        )

    def calls_inlined(self) -> collections.defaultdict[str, float]:
        """By function, how many of its calls were inlined, in the profile."""
        found: collections.defaultdict[str, float] = collections.defaultdict(float)
        for call in self.inlined:
            found[call.callee] += call.count
        return found


class ProfiledCosts:
    """Costs of a program's functions, in each module by itself."""

    def __init__(self, base: Iterable[ProfiledModule], without: Iterable[ProfiledModule]):
        """Takes all modules under the base policy, and with nothing inlined, both in link order."""
        self._call_costs: dict[str, float] = {}
        self._all_calls: collections.defaultdict[str, float] = collections.defaultdict(float)
        for module in base:
            inlined = module.calls_inlined()
            for name in sorted(module.shared & module.call_costs.keys()):
                if module.calls[name]:
                    self._call_costs.setdefault(name, module.call_costs[name])
                self._count(name, module.calls[name] + inlined[name])
        for module in without:
            for name in sorted(module.shared & module.call_costs.keys()):
                self._call_costs.setdefault(name, module.call_costs[name])
                self._count(name, module.calls[name])

    def _count(self, name: str, calls: float) -> None:
        self._all_calls[name] = max(self._all_calls[name], calls)

    def of(self, module: ProfiledModule) -> dict[str, float]:
        """The cost of each function in a module's object, in the unit of the cost model times calls."""
        found = self._savings(module)
        for name, cost in module.call_costs.items():
            usual = self._call_costs.get(name, 0.0) if name in module.shared else 0.0
            found[name] += (cost - usual) * module.calls[name]
        return {name: cost for name, cost in found.items() if name in module.functions}

    def _savings(self, module: ProfiledModule) -> collections.defaultdict[str, float]:
        """By function, what inlined calls of shared functions save."""
        inlined = module.calls_inlined()
        names = module.functions.union(call.caller for call in module.inlined)
        # In this order, `.resume` is the first part of a coroutine: it runs most.
        bodies = Bodies(((call.caller, call.callee) for call in module.inlined), sorted(names, reverse=True))
        found: collections.defaultdict[str, float] = collections.defaultdict(float)
        for call in module.inlined:
            saved, caller = call.count * self._call_costs.get(call.callee, 0.0), call.caller
            if not saved:
                continue
            if caller in self._call_costs:
                # Calls in a shared function count for all its callers; some of these have its code themselves.
                kept = module.calls.get(caller, 0.0)
                calls = kept + inlined[caller] if caller in module.functions else self._all_calls[caller]
                calls = max(calls, inlined[caller], 1.0)
                if caller in module.functions:
                    found[caller] -= saved * kept / calls
                saved *= inlined[caller] / calls
                holder = _other_holder(caller, module, bodies)
            else:
                holder = caller if caller in module.functions else _other_holder(caller, module, bodies)
            if saved and holder is not None:
                found[holder] -= saved
        return found


def _other_holder(function: str, module: ProfiledModule, bodies: Bodies) -> str | None:
    """Another function in the object that has its code: one of this module if there is, otherwise a shared one."""
    others = [name for name in bodies.holders(function) if name != function and name in module.functions]
    return min(others, key=module.shared.__contains__, default=None)
