"""Carries what was measured of a base build over to another build of the program, which then need not run.

A function that has the same block ids in both builds, as after another register allocation, keeps its counts per call
and its annotations, block by block. Blocks of any other function run as often per call as the compiler estimates, and
nothing is known about their misses.

How often functions are called follows from the direct calls in the code of the other build: one that is inlined there
is called less, and one that is no longer inlined is called more. What the direct calls of the base build do not
explain (calls through pointers, and from code without an address map) stays as it was measured:

    calls(f) = measured(f) + sum over direct calls of f in this build, by block b of g,  rate(b) calls(g)
                           - sum over direct calls of f in the base,   by block b of g,  count(b)

where rate(b) is how often b runs per call of g. Calls within recursion are left out of both sums, so they stay as they
were measured: an estimate that was a little too high would grow with each level.
"""

import dataclasses

import numpy as np

from compiler_opt.cost_models.ranking.builds import Build
from compiler_opt.cost_models.throughput.blocks import ANNOTATIONS


@dataclasses.dataclass(frozen=True)
class Carried:
    """What a build would do, from a run of the base build. Legend: N blocks of the build.

    Attributes:
      counts: `[N]` how often each block would run.
      annotations: `[N, A]` events per execution; NaN if unknown.
      is_measured: `[N]` whether both are those of a block of the base build.
    """

    counts: np.ndarray
    annotations: np.ndarray
    is_measured: np.ndarray


def carry(base: Build, build: Build) -> Carried:
    """Carries counts and annotations over; that of the base build to itself is what was measured."""
    names = {name: number for number, name in enumerate(build.names())}
    # `[F of the base]`, -1 for a function that the other build lacks.
    matched = np.array([names.get(name, -1) for name in base.names()], np.int64)
    base_rows, build_rows = _rows(base), _rows(build)
    base_counts, base_annotations = base.counts, base.annotations
    measured_calls = base_counts[base.entries]
    rates = np.array([block.frequency for block in build.blocks], np.float64)
    annotations = np.full((len(build.blocks), len(ANNOTATIONS)), np.nan)
    is_measured = np.zeros(len(build.blocks), np.bool_)
    for number, other in enumerate(matched.tolist()):
        if other < 0 or not measured_calls[number] or base_rows[number].keys() != build_rows[other].keys():
            continue
        for block_id, row in build_rows[other].items():
            source = base_rows[number][block_id]
            rates[row] = base_counts[source] / measured_calls[number]
            annotations[row] = base_annotations[source]
            is_measured[row] = True
    calls = _propagated(base, build, matched, measured_calls, rates)
    return Carried(rates * calls[build.functions], annotations, is_measured)


def _propagated(
    base: Build, build: Build, matched: np.ndarray, measured_calls: np.ndarray, rates: np.ndarray
) -> np.ndarray:
    """How often each function of the build is called, `[F]`, see the module."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components

    size = len(build.entries)
    blocks, callees = build.calls[:, 0], build.calls[:, 1]
    callers = build.functions[blocks]
    graph = csr_matrix((np.ones(len(blocks)), (callers, callees)), shape=(size, size))
    component = connected_components(graph, directed=True, connection="strong")[1]
    fixed = np.zeros(size)
    fixed[matched[matched >= 0]] = measured_calls[matched >= 0]
    base_blocks, base_callees = base.calls[:, 0], matched[base.calls[:, 1]]
    base_callers = matched[base.functions[base_blocks]]
    explained = base_callees >= 0
    # A caller that this build lacks is in no component.
    explained &= (base_callers < 0) | (component[base_callers] != component[base_callees])
    np.subtract.at(fixed, base_callees[explained], base.counts[base_blocks[explained]])
    fixed = np.maximum(fixed, 0)
    across = component[callers] != component[callees]
    flow = csr_matrix((rates[blocks[across]], (callees[across], callers[across])), shape=(size, size))
    calls = fixed
    # Without recursion, there are less than `size` levels.
    for _ in range(size):
        following = fixed + flow @ calls
        if np.array_equal(following, calls):
            break
        calls = following
    return calls


def _rows(build: Build) -> list[dict[int, int]]:
    """The row of each block by its id, of each function, `[F]`."""
    rows: list[dict[int, int]] = [{} for _ in build.entries]
    for row, (function, block) in enumerate(zip(build.functions.tolist(), build.blocks, strict=True)):
        rows[function][block.block_id] = row
    return rows
