"""Where mispredicted branches went, from a profile that only says how many of a branch's executions were mispredicted.

What a misprediction costs is paid where the branch goes: the processor waits there for instructions.
"""

import collections
import itertools
from collections.abc import Mapping

from compiler_opt.measure.callgrind import Counts


def mispredicted_entries(instructions: Mapping[int, Counts], jumps: Mapping[tuple[int, int], int]) -> dict[int, float]:
    """How many mispredicted branches went to each address: an estimate.

    A conditional branch is taken to be predicted by a counter of two bits, and its outcomes to have no pattern: each of
    its two ways has a share of its mispredictions in proportion to how often it went the other way. An indirect one is
    taken to be predicted to go where it went the last time.

    Args:
      instructions: own counts by address.
      jumps: how often each was taken, by the addresses of the instruction and of its target.
    """
    ways: dict[int, dict[int, int]] = {}
    for (source, target), times in jumps.items():
        if times:
            ways.setdefault(source, {})[target] = times
    entries: collections.defaultdict[int, float] = collections.defaultdict(float)
    addresses = sorted(instructions)
    for address, following in itertools.zip_longest(addresses, addresses[1:]):
        counts, went = instructions[address], ways.get(address, {})
        if not counts.mispredicts:
            continue
        not_taken = counts.instructions - sum(went.values())
        if not counts.indirect_mispredicts and not_taken > 0 and following is not None:
            # It was executed then, so it is the next address that was.
            went[following] = went.get(following, 0) + not_taken
        for target, share in _shares(went, is_indirect=counts.indirect_mispredicts > 0).items():
            entries[target] += counts.mispredicts * share
    return dict(entries)


def _shares(went: Mapping[int, int], *, is_indirect: bool) -> dict[int, float]:
    """The share of each target in a branch's mispredictions, from how often the branch went there; they add up to 1."""
    total = sum(went.values())
    if len(went) == 1:
        return dict.fromkeys(went, 1.0)
    weights = {target: (total - times) * (times if is_indirect else 1) for target, times in went.items()}
    return {target: weight / sum(weights.values()) for target, weight in weights.items()}
