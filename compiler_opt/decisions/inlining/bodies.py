"""Where the body of a function gets to by inlining: one answer for search, credit, explanations and costs of functions.

A body is in the function itself and in those that it is inlined into, directly or through others. LLVM splits a
coroutine `f` into `f`, `f.resume`, `f.destroy`, ... when `f` has been inlined into, and before `f` is inlined itself:
these parts hold its body, too.

`Bodies` ignores the order of inlining, so it may name too many functions; `credit.decision_credit` follows the order.
"""

import collections
from collections.abc import Iterable, Mapping, Sequence, Set

_PARTS = (".resume", ".destroy", ".cleanup", ".noalloc")
"""What LLVM appends to the name of a coroutine."""


def coroutine_of(function: str) -> str | None:
    """The coroutine that a function was split from; None if it is no such part."""
    return function.rpartition(".")[0] if function.endswith(_PARTS) else None


class Bodies:
    """Which functions hold which bodies.

    bodies = Bodies([("f", "g"), ("h", "f")])  # g was inlined into f, f into h
    list(bodies.holders("g")) == ["g", "f", "h"]
    list(bodies.held("h")) == ["h", "f", "g"]
    """

    def __init__(self, inlined: Iterable[tuple[str, str]], functions: Iterable[str] = ()):
        """Takes caller and callee of each inlined call, and functions of which some may be parts of coroutines."""
        parts = ((part, coroutine) for part in functions if (coroutine := coroutine_of(part)))
        self._callers: dict[str, list[str]] = collections.defaultdict(list)
        self._callees: dict[str, list[str]] = collections.defaultdict(list)
        for caller, callee in dict.fromkeys((*inlined, *parts)):
            self._callers[callee].append(caller)
            self._callees[caller].append(callee)
        self._holders: dict[str, dict[str, None]] = {}

    def holders(self, function: str) -> Set[str]:
        """The functions that have its body: itself, then breadth first in the order of the calls."""
        if function not in self._holders:
            self._holders[function] = _reached(self._callers, function)
        return self._holders[function].keys()

    def held(self, function: str) -> Set[str]:
        """The functions whose bodies it has: itself, then breadth first in the order of the calls."""
        return _reached(self._callees, function).keys()


def _reached(edges: Mapping[str, Sequence[str]], start: str) -> dict[str, None]:
    found, pending = {start: None}, [start]
    for name in pending:
        new = [neighbour for neighbour in edges.get(name, ()) if neighbour not in found]
        found |= dict.fromkeys(new)
        pending += new
    return found
