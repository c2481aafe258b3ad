"""Which calls a profile says to inline: those that run often for their size. A start for a search, not its result."""

import collections
import heapq
from collections.abc import Mapping

from compiler_opt.policies.decisions import Site
from compiler_opt.search.builds import Build
from compiler_opt.search.moves import Hotness

_MAX_PAIRS = 10_000
_MORE_CALLS = 8
"""Calls of a callee that may appear in a caller besides those that are known."""


def hot_pairs(hotness: Hotness, sizes: Mapping[str, int], ratio: float) -> set[tuple[str, str]]:
    """Pairs of caller and callee whose calls save, in priced bytes, at least the callee's size over `ratio`.

    The best comes first, and exposes the callee's calls in the caller, with its share of how often they run.
    """
    value = dict(hotness.call_bytes)
    entries: dict[str, float] = collections.defaultdict(float)
    callees: dict[str, list[tuple[str, float]]] = collections.defaultdict(list)
    for (caller, callee), worth in hotness.call_bytes.items():
        entries[callee] += worth
        callees[caller].append((callee, worth))
    order = [(-worth * ratio / sizes[pair[1]], pair) for pair, worth in value.items() if sizes.get(pair[1])]
    heapq.heapify(order)
    chosen: set[tuple[str, str]] = set()
    while order and len(chosen) < _MAX_PAIRS:
        gain, pair = heapq.heappop(order)
        if -gain < 1:
            break
        caller, callee = pair
        if pair in chosen or caller == callee:
            continue
        chosen.add(pair)
        for inner, worth in callees[callee]:
            exposed = caller, inner
            value[exposed] = value.get(exposed, 0.0) + value[pair] * worth / entries[callee]
            if sizes.get(inner) and inner not in (caller, callee) and exposed not in chosen:
                heapq.heappush(order, (-value[exposed] * ratio / sizes[inner], exposed))
    return chosen


def decisions_for(pairs: set[tuple[str, str]], build: Build) -> dict[Site, int]:
    """Decisions that inline all calls of these pairs in a module, also those that only appear by inlining."""
    callees: dict[str, list[str]] = collections.defaultdict(list)
    for caller_name, callee in sorted(pairs):
        callees[caller_name].append(callee)
    decisions: dict[Site, int] = {}
    for caller, calls in build.calls.items():
        known = collections.Counter(call.callee for call in calls)
        for callee in callees.get(caller[0], ()):
            decisions |= {Site(*caller, callee, ordinal): 1 for ordinal in range(known[callee] + _MORE_CALLS)}
    return decisions
