"""Attributes the differences between two builds of a program to the inlining decisions at which they differ.

A function's code depends on the decisions in it and in the functions that are inlined into it, directly or through
others; that of a part of a coroutine, on those in the coroutine, too. If a function is in one build only, it also
depends on the decisions about its own calls, or those of its coroutine, of which the last one may have removed it. So
the change of each function is attributed to the decisions, out of those, at which the builds differ: exactly if there
is one; otherwise it is shared between them in equal parts.

Only decisions on calls that both builds have count, as long as there are any: inlining a body copies its calls, so
calls that one build alone has, and the decisions on them, follow from decisions before them.

Copies of a COMDAT function count as one over the number of modules of the project that emit it in the same build, as
the linker keeps one of them.
"""

import collections
import dataclasses
from collections.abc import Mapping, Sequence

from compiler_opt.decisions.inlining.bodies import Bodies, coroutine_of
from compiler_opt.llvm.object_file import ObjectSizes, TextParts
from compiler_opt.policies.decisions import Site


@dataclasses.dataclass(frozen=True)
class CompiledModule:
    """One module in one build.

    Attributes:
      inlined: whether each call was inlined, by the site of its decision.
    """

    name: str
    sizes: ObjectSizes
    inlined: Mapping[Site, bool]


@dataclasses.dataclass(frozen=True)
class FunctionChange:
    """A function that differs in size.

    Attributes:
      first_bytes: in the first build, COMDAT-weighted; 0 if it is not there.
      second_bytes: the same in the second.
      num_modules: modules that emit it in either build.
      decisions: the decisions to which its change is attributed.
    """

    name: str
    first_bytes: float
    second_bytes: float
    num_modules: int
    decisions: tuple[Site, ...]

    @property
    def change(self) -> float:
        return self.second_bytes - self.first_bytes


@dataclasses.dataclass(frozen=True)
class DecisionChange:
    """A decision at which the builds differ.

    Attributes:
      first, second: whether each build inlines the call; None if it does not have the call.
      modules: names of the modules that differ there.
      exact_bytes: change of functions that depend on no other such decision.
      shared_bytes: its part of the change of functions that depend on several.
      num_functions: functions whose change is attributed to it.
      linked: linked text that the second build has more than it would have if this decision alone were made as in the
        first; None if that was not measured.
    """

    site: Site
    first: bool | None
    second: bool | None
    modules: tuple[str, ...]
    exact_bytes: float = 0.0
    shared_bytes: float = 0.0
    num_functions: int = 0
    linked: TextParts | None = None

    @property
    def change(self) -> float:
        """The bytes attributed to it; negative makes the second build smaller."""
        return self.exact_bytes + self.shared_bytes

    @property
    def kind(self) -> str:
        """`exact`, `shared`, or `partly shared`."""
        if not self.shared_bytes:
            return "exact"
        return "partly shared" if self.exact_bytes else "shared"


@dataclasses.dataclass(frozen=True)
class Attribution:
    """The differences of a project's builds, the largest first.

    Attributes:
      functions: all that differ in size.
      decisions: those to which something is attributed.
      num_differing: decisions at which the builds differ, on calls that both have, with or without effect.
      unattributed_bytes: change of functions that depend on no such decision.
    """

    functions: tuple[FunctionChange, ...]
    decisions: tuple[DecisionChange, ...]
    num_differing: int
    unattributed_bytes: float

    @property
    def change(self) -> float:
        """Change of all functions together, in bytes."""
        return sum(function.change for function in self.functions)


def attribute(first: Sequence[CompiledModule], second: Sequence[CompiledModule]) -> Attribution:
    """Compares two builds of a project, the same modules in the same order."""
    copies = [_copies(build) for build in (first, second)]
    function_bytes: dict[str, list[float]] = {}
    function_modules: collections.Counter[str] = collections.Counter()
    function_decisions: dict[str, dict[Site, None]] = {}
    differing: dict[Site, tuple[bool | None, bool | None]] = {}
    site_modules: dict[Site, list[str]] = {}
    exact: collections.defaultdict[Site, float] = collections.defaultdict(float)
    shared: collections.defaultdict[Site, float] = collections.defaultdict(float)
    attributed: dict[Site, set[str]] = {}
    unattributed_bytes = 0.0
    for before, after in zip(first, second, strict=True):
        differences = _differences(before, after)
        for site in differences:
            differing[site] = differences[site]
            site_modules.setdefault(site, []).append(before.name)
        dependencies = _Dependencies(before, after, differences)
        for name in dict.fromkeys((*before.sizes.functions, *after.sizes.functions)):
            sizes = [
                build.sizes.functions.get(name, 0) / copies[number].get(name, 1)
                for number, build in enumerate((before, after))
            ]
            total = function_bytes.setdefault(name, [0.0, 0.0])
            total[0] += sizes[0]
            total[1] += sizes[1]
            function_modules[name] += 1
            change = sizes[1] - sizes[0]
            if not change:
                continue
            sites = dependencies.of(name)
            function_decisions.setdefault(name, {}).update(dict.fromkeys(sites))
            if not sites:
                unattributed_bytes += change
            for site in sites:
                (exact if len(sites) == 1 else shared)[site] += change / len(sites)
                attributed.setdefault(site, set()).add(name)
    functions = (
        FunctionChange(name, total[0], total[1], function_modules[name], tuple(function_decisions.get(name, ())))
        for name, total in function_bytes.items()
        if total[0] != total[1]
    )
    decisions = (
        DecisionChange(site, *differing[site], tuple(site_modules[site]), exact[site], shared[site], len(names))
        for site, names in attributed.items()
    )
    return Attribution(
        functions=tuple(sorted(functions, key=lambda function: (-abs(function.change), function.name))),
        decisions=tuple(sorted(decisions, key=lambda decision: (-abs(decision.change), decision.site))),
        num_differing=sum(None not in pair for pair in differing.values()),
        unattributed_bytes=unattributed_bytes,
    )


def _copies(build: Sequence[CompiledModule]) -> Mapping[str, int]:
    """How many modules emit each COMDAT function."""
    return collections.Counter(name for module in build for name in module.sizes.function_comdats)


def _differences(first: CompiledModule, second: CompiledModule) -> dict[Site, tuple[bool | None, bool | None]]:
    """What the builds do at the sites where they differ; to have a call, and not to inline it, is no difference."""
    found = {}
    for site in dict.fromkeys((*first.inlined, *second.inlined)):
        pair = first.inlined.get(site), second.inlined.get(site)
        if pair[0] != pair[1] and (None not in pair or True in pair):
            found[site] = pair
    return found


class _Dependencies:
    """The differing decisions that a module's functions depend on.

    A body that one build inlines counts as inlined in both.
    """

    def __init__(
        self,
        first: CompiledModule,
        second: CompiledModule,
        differences: Mapping[Site, tuple[bool | None, bool | None]],
    ):
        self._modules = first, second
        self._differences = differences
        self._in_caller: dict[str, list[Site]] = {}
        self._of_callee: dict[str, list[Site]] = {}
        for site in differences:
            self._in_caller.setdefault(site.caller, []).append(site)
            self._of_callee.setdefault(site.callee, []).append(site)
        calls = [call for module in self._modules for call in module.inlined.items()]
        self._bodies = Bodies(
            ((site.caller, site.callee) for site, is_inlined in calls if is_inlined),
            [*first.sizes.functions, *second.sizes.functions, *(site.caller for site, _ in calls)],
        )

    def of(self, function: str) -> list[Site]:
        """The decisions that its size depends on; those on calls that both builds have, if there are any."""
        sites = [site for body in self._bodies.held(function) for site in self._in_caller.get(body, ())]
        if any(function not in module.sizes.functions for module in self._modules):
            called = (function, coroutine_of(function) or "")
            sites += [site for name in called for site in self._of_callee.get(name, ()) if site not in sites]
        in_both = [site for site in sites if None not in self._differences[site]]
        return in_both or sites
