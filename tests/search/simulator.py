"""A compiler that inlines in a toy program: the oracle of the search's tests.

A module's functions are given with the callees first, as LLVM's inliner visits them. A function's size is its own bytes
plus those of its calls, and of the bodies that were inlined into it, each smaller or larger than on its own by a factor
that depends on caller and callee. Functions that nothing calls any more vanish, unless they are external.
"""

import collections
import dataclasses
import zlib
from collections.abc import Iterator, Mapping, Sequence

from compiler_opt.llvm.object_file import ObjectSizes
from compiler_opt.policies.decisions import Site
from compiler_opt.search.builds import Compiled

CALL_BYTES = 6
DEFAULT_THRESHOLD = 40


@dataclasses.dataclass(frozen=True)
class Function:
    """`linkage` is `external`, `local` or `comdat`."""

    name: str
    own_bytes: int
    calls: tuple[str, ...] = ()
    linkage: str = "external"

    @property
    def body(self) -> int:
        return zlib.crc32(repr((self.own_bytes, self.calls)).encode())


Module = Sequence[Function]


class Simulator:
    """Compiles the modules of a program; a `Compiler`.

    Attributes:
      num_compiles: so far.
      advice: what the base policy decides everywhere; None for the default's decision.
    """

    def __init__(self, modules: Sequence[Module], advice: int | None = None, fails: frozenset[int] = frozenset()):
        self.modules = modules
        self.num_compiles = 0
        self._advice = advice
        self._fails = fails

    def compile(self, requests: Mapping[int, Mapping[Site, int]]) -> dict[int, Compiled | str]:
        self.num_compiles += len(requests)
        return {
            number: "does not compile" if number in self._fails else self._inline(self.modules[number], decisions)
            for number, decisions in requests.items()
        }

    def _inline(self, module: Module, decisions: Mapping[Site, int]) -> Compiled:
        functions = {function.name: function for function in module}
        sizes: dict[str, int] = {}
        calls_left: dict[str, list[str]] = {}
        sites, advice, defaults, inlined = [], [], [], []
        for function in module:
            size, left, pending = function.own_bytes, [], collections.deque(function.calls)
            seen: collections.Counter[str] = collections.Counter()
            while pending:
                callee = pending.popleft()
                if callee not in functions or callee == function.name:
                    left.append(callee)
                    continue
                site = Site(function.name, function.body, callee, seen[callee])
                seen[callee] += 1
                default = int(sizes[callee] < DEFAULT_THRESHOLD)
                choice = decisions.get(site, default if self._advice is None else self._advice)
                sites.append(site)
                advice.append(choice)
                defaults.append(default)
                inlined.append(bool(choice))
                if choice:
                    size += round(
                        (sizes[callee] - CALL_BYTES * len(calls_left[callee])) * factor(function.name, callee)
                    )
                    pending.extend(calls_left[callee])
                else:
                    left.append(callee)
            sizes[function.name], calls_left[function.name] = size + CALL_BYTES * len(left), left
        emitted = self._reachable(module, calls_left)
        comdats = {name: name for name in emitted if functions[name].linkage == "comdat"}
        return Compiled(
            sites,
            advice,
            inlined,
            defaults,
            ObjectSizes(
                text_bytes=10 + sum(sizes[name] for name in emitted),
                comdats={name: sizes[name] for name in comdats},
                functions={name: sizes[name] for name in emitted},
                function_comdats=comdats,
            ),
            cpu_s=0.1,
        )

    def _reachable(self, module: Module, calls: Mapping[str, Sequence[str]]) -> list[str]:
        found = [function.name for function in module if function.linkage == "external"]
        for name in found:
            found += [callee for callee in calls[name] if callee in calls and callee not in found]
        return sorted(set(found))


def factor(caller: str, callee: str) -> float:
    """How much of a callee's body is left in a caller: 0.2 to 1.1."""
    return 0.2 + 0.9 * (zlib.crc32(f"{caller} {callee}".encode()) % 1000) / 999


def linked_bytes(results: Mapping[int, Compiled]) -> int:
    """As the linker computes it: one copy of each COMDAT function, from the first module that has it."""
    total = 0
    kept: set[str] = set()
    for number in sorted(results):
        sizes = results[number].sizes
        total += sizes.text_bytes - sum(sizes.comdats[name] for name in sizes.comdats if name in kept)
        kept |= sizes.comdats.keys()
    return total


def exhaustive(modules: Sequence[Module]) -> int:
    """The least linked bytes over all decisions, by trying all of them."""
    return min(linked_bytes(results) for results in _all_results(Simulator(modules), {}))


def _all_results(simulator: Simulator, decisions: dict[Site, int]) -> Iterator[dict[int, Compiled]]:
    everything = range(len(simulator.modules))
    results = simulator.compile(dict.fromkeys(everything, decisions))
    compiled = {number: each for number, each in results.items() if isinstance(each, Compiled)}
    undecided = next((s for n in everything for s in compiled[n].sites if s not in decisions), None)
    if undecided is None:
        yield compiled
        return
    for choice in (0, 1):
        yield from _all_results(simulator, {**decisions, undecided: choice})
