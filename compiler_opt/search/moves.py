"""Changes of a program's decisions that a search tries: of one call, or of several that only pay together."""

import collections
import dataclasses
import functools
import hashlib
import itertools
import random
from collections.abc import Iterator, Mapping, Sequence

from compiler_opt.policies.decisions import Site
from compiler_opt.search.builds import Build, Call, Caller
from compiler_opt.search.program import Program

_MAX_GROUP = 24
"""Calls in a group; larger ones rarely pay."""
_TYPICAL_BYTES = 40
"""Of a function whose size is unknown."""


@dataclasses.dataclass(frozen=True)
class Move:
    """A change of some decisions.

    Attributes:
      kind: `call` (one), `callee` (calls of one function), `caller` (calls in one function), `default` (those in one
        function where LLVM's heuristic decides otherwise), `free` (one, after which the base policy decides anew in
        `freed`), `exposed` (a call, and one that appears when it is inlined)
        or `pair` (two random ones).
      flips: the changed decisions.
      features: what its gain is estimated from, the most telling first.
      scale_bytes: code that is copied or no longer copied, and what calls may save by being inlined (`Hotness`).
      freed: callers whose other decisions are not kept: they were taken for what the flips change.
    """

    kind: str
    flips: tuple[tuple[Site, int], ...]
    features: tuple[int, ...]
    scale_bytes: float
    freed: frozenset[Caller] = frozenset()

    @functools.cached_property
    def key(self) -> int:
        """Identifies its flips, across processes."""
        digest = hashlib.blake2b(b"free" if self.freed else b"", digest_size=8)
        for site, advice in self.flips:
            name = f"{site.caller}\0{site.body}\0{site.callee}\0{site.ordinal}\0{advice}\0"
            digest.update(name.encode("utf-8", "surrogateescape"))
        return int.from_bytes(digest.digest(), "big")

    @functools.cached_property
    def callers(self) -> frozenset[Caller]:
        return frozenset((site.caller, site.body) for site, _ in self.flips)

    @functools.cached_property
    def functions(self) -> frozenset[str]:
        """Callers and callees."""
        return frozenset(name for site, _ in self.flips for name in (site.caller, site.callee))


@dataclasses.dataclass(frozen=True)
class Hotness:
    """Where a program spends its time.

    Attributes:
      functions: those that are worth a move: their calls, and calls of them; None for all.
      call_bytes: by caller and callee, what all calls may save by being inlined, in bytes.
    """

    functions: frozenset[str] | None = None
    call_bytes: Mapping[tuple[str, str], float] = dataclasses.field(default_factory=dict)


class MoveMaker:
    """Makes the moves of a module; those of callers in several modules belong to the first.

    Attributes:
      standalone_bytes: by function, its size when nothing is inlined.
      hotness: of the program.
    """

    def __init__(self, standalone_bytes: Mapping[str, int], hotness: Hotness = Hotness()):
        self.standalone_bytes = standalone_bytes
        self.hotness = hotness

    def moves(self, program: Program, module: int) -> list[Move]:
        """All moves of a module, except pairs."""
        build = program.builds[module]
        own = self._own_calls(program, module)
        moves = [self._move("call", build, [(caller, call)]) for caller, calls in own.items() for call in calls]
        for caller, calls in own.items():
            moves += self._of_caller(build, caller, calls)
            moves += self._freeing(build, caller, calls)
        return moves + self._of_callees(build, own)

    def exposed(self, build: Build, move: Move, trial: Build) -> list[Move]:
        """Moves that also flip a call that the move has made appear, for a move of one call."""
        ((site, _),) = move.flips
        caller = site.caller, site.body
        known = {(call.callee, call.ordinal) for call in build.calls.get(caller, ())}
        appeared = [call for call in trial.calls.get(caller, ()) if (call.callee, call.ordinal) not in known]
        return [
            Move(
                "exposed",
                (*move.flips, _flip(caller, call)),
                (0, *move.features[1:]),
                move.scale_bytes + self._bytes(call.callee),
            )
            for call in appeared[:8]
        ]

    def pairs(self, program: Program, module: int, generator: random.Random, count: int) -> list[Move]:
        """Random pairs of calls in a module that share their caller, or their callee."""
        build = program.builds[module]
        own = self._own_calls(program, module)
        groups: list[list[tuple[Caller, Call]]] = [[(caller, call) for call in calls] for caller, calls in own.items()]
        by_callee: dict[str, list[tuple[Caller, Call]]] = collections.defaultdict(list)
        for caller, call in list(itertools.chain.from_iterable(groups)):
            by_callee[call.callee].append((caller, call))
            # A call in the callee: its body then changes as well.
            inner = build.by_name.get(call.callee)
            if inner is not None and inner in own and inner != caller:
                groups.append([(caller, call), *((inner, each) for each in own[inner][:4])])
        groups = [group for group in (*groups, *by_callee.values()) if len(group) > 1]
        if not groups:
            return []
        chosen = (generator.sample(generator.choice(groups), 2) for _ in range(count))
        return [self._move("pair", build, pair) for pair in chosen]

    def _own_calls(self, program: Program, module: int) -> dict[Caller, list[Call]]:
        """The calls of the callers that belong to a module, as far as they are worth a move."""
        build, hot = program.builds[module], self.hotness.functions
        own: dict[Caller, list[Call]] = {}
        for caller, calls in build.calls.items():
            if program.owner(caller) == module:
                all_hot = hot is None or not hot.isdisjoint(build.holders(caller[0]))
                own[caller] = [call for call in calls if hot is None or all_hot or call.callee in hot]
        return own

    def _of_caller(self, build: Build, caller: Caller, calls: Sequence[Call]) -> Iterator[Move]:
        for advice in (0, 1):
            group = [(caller, call) for call in calls if call.advice != advice]
            if 2 <= len(group) <= _MAX_GROUP:
                yield self._move("caller", build, group)
        group = [(caller, call) for call in calls if call.default is not None and call.advice != call.default]
        if 2 <= len(group) <= _MAX_GROUP:
            yield self._move("default", build, group)

    def _freeing(self, build: Build, caller: Caller, calls: Sequence[Call]) -> Iterator[Move]:
        callers = build.holders(caller[0]) | {name for name, _ in build.callers_of.get(caller[0], ())}
        freed = frozenset(build.by_name[name] for name in callers - {caller[0]} if name in build.by_name)
        if 1 <= len(freed) <= _MAX_GROUP:
            for call in calls:
                yield dataclasses.replace(self._move("free", build, [(caller, call)]), freed=freed)

    def _of_callees(self, build: Build, own: Mapping[Caller, Sequence[Call]]) -> list[Move]:
        by_callee: dict[str, list[tuple[Caller, Call]]] = collections.defaultdict(list)
        for caller, calls in own.items():
            for call in calls:
                by_callee[call.callee].append((caller, call))
        moves = []
        for group in by_callee.values():
            for advice in (0, 1):
                changed = [(caller, call) for caller, call in group if call.advice != advice]
                if 2 <= len(changed) <= _MAX_GROUP:
                    moves.append(self._move("callee", build, changed))
        return moves

    def _move(self, kind: str, build: Build, calls: Sequence[tuple[Caller, Call]]) -> Move:
        inlines = {1 - call.advice for _, call in calls}
        scale: float = sum(self._bytes(call.callee) * min(8, len(build.holders(caller[0]))) for caller, call in calls)
        scale += sum(self.hotness.call_bytes.get((c[0], call.callee), 0.0) for c, call in calls if not call.advice)
        _, call = calls[0]
        features = (
            inlines.pop() if len(inlines) == 1 else 2,
            min(4, self._bytes(call.callee).bit_length() // 2),
            min(3, build.remaining_calls(call.callee)),
            -1 if call.default is None else int(call.default == call.advice),
            min(3, len(build.holders(calls[0][0][0]))),
        )
        return Move(kind, tuple(_flip(*each) for each in calls), features, scale)

    def _bytes(self, function: str) -> int:
        return max(8, self.standalone_bytes.get(function, _TYPICAL_BYTES))


def _flip(caller: Caller, call: Call) -> tuple[Site, int]:
    return Site(*caller, call.callee, call.ordinal), 1 - call.advice
