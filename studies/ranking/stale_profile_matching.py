"""Stale-profile matching: what was measured of a base build, for another build of the program, which need not run.

The compiler numbers blocks before it allocates registers. So a function that has been compiled alike up to there has
blocks with the same numbers and estimated frequencies in both builds, but for a few that later passes add or remove;
others are taken as changed, such as those into which something else was inlined. In an unchanged function, these blocks
keep their counts per call and their annotations, and an added one runs as often as those with its estimated frequency
do on average. All other blocks run as often per call as the compiler estimates, times the factor by which it is off for
this function in the base build. Nothing is known about the misses of blocks that were not measured.

How often a function is called follows from its direct calls: one that is inlined in the other build is called less,
and one that no longer is inlined is called more. The compiler's estimates say by which factor, since what they are off
by is about the same in both builds; of a function without direct calls in the base build, the estimates themselves are
taken, by the callers' factors. What direct calls do not explain (calls through pointers, from code without an address
map, and within recursion) stays as it was measured.

Other ways to match blocks: Ayupov, Panchenko and Pupyrev, *Stale Profile Matching*, 2024.
"""

import dataclasses

import numpy as np

from compiler_opt.cost_models.throughput.blocks import ANNOTATIONS, MIN_ALIKE, is_close
from studies.ranking.builds import Build


@dataclasses.dataclass(frozen=True)
class MatchedProfile:
    """What a build would do, from a run of the base build. Legend: N blocks of the build, B of the base build.

    Attributes:
      counts: `[N]` how often each block would run.
      annotations: `[N, A]` events per execution; NaN if unknown.
      is_measured: `[N]` whether the count per call is that of a block of the base build.
      is_lost: `[B]` whether a block of the base build has no counterpart.
    """

    counts: np.ndarray
    annotations: np.ndarray
    is_measured: np.ndarray
    is_lost: np.ndarray


def match_profile(base: Build, build: Build) -> MatchedProfile:
    """Matches the blocks of a build with those of the base build; of itself, the profile is what was measured."""
    names = {name: number for number, name in enumerate(build.names())}
    # `[F of the base]`, -1 for a function that the other build lacks.
    matched = np.array([names.get(name, -1) for name in base.names()], np.int64)
    base_rows, build_rows = _rows(base), _rows(build)
    base_counts, base_annotations = base.counts, base.annotations
    base_frequencies, frequencies = _frequencies(base), _frequencies(build)
    rates = frequencies.copy()
    code_bytes = np.array([len(block.code) for block in base.blocks], np.float64)
    calls = base_counts[base.entries]
    annotations = np.full((len(build.blocks), len(ANNOTATIONS)), np.nan)
    is_measured, is_lost = np.zeros(len(build.blocks), np.bool_), np.ones(len(base.blocks), np.bool_)
    for number, other in enumerate(matched.tolist()):
        if other < 0 or not calls[number]:
            continue
        before, after = base_rows[number], build_rows[other]
        of_base, of_build = list(before.values()), list(after.values())
        alike = [
            (before[block_id], row)
            for block_id, row in after.items()
            if block_id in before and is_close(base_frequencies[before[block_id]], frequencies[row])
        ]
        estimated = (base_frequencies[of_base] * code_bytes[of_base]).sum() * calls[number]
        if estimated:
            rates[of_build] *= (base_counts[of_base] * code_bytes[of_base]).sum() / estimated
        if len(alike) < MIN_ALIKE * max(len(before), len(after)):
            continue
        sources, rows = np.array(alike).T
        rates[rows] = base_counts[sources] / calls[number]
        annotations[rows] = base_annotations[sources]
        is_measured[rows] = True
        is_lost[sources] = False
        for row in set(of_build).difference(rows.tolist()):
            similar = rows[is_close(frequencies[rows], frequencies[row])]
            if len(similar):
                rates[row] = rates[similar].mean()
    called = _calls(base, build, matched, rates)
    return MatchedProfile(rates * called[build.functions], annotations, is_measured, is_lost)


def _calls(base: Build, build: Build, matched: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """How often each function of the build is called, `[F]`, see the module; `rates` `[N]` of blocks are per call."""
    present = matched >= 0
    back = np.full(len(build.entries), -1)
    back[matched[present]] = np.flatnonzero(present)
    base_component, component = _components(base), _components(build)
    base_calls = base.calls[_is_across(base, base_component, matched, component)]
    build_calls = build.calls[_is_across(build, component, back, base_component)]
    # Of each function of the base build: measured calls, direct and other ones, and how many direct ones are estimated.
    direct = np.zeros(len(base.entries))
    np.add.at(direct, base_calls[:, 1], base.counts[base_calls[:, 0]])
    other = np.maximum(base.counts[base.entries] - direct, 0)
    estimated_direct = _direct(base, base_calls, _frequencies(base), other)[0]
    # Of each function of the other build: what does not depend on the counts of its callers.
    fixed = np.zeros(len(build.entries))
    fixed[matched[present]] = other[present]
    factors = np.full(len(build.entries), np.nan)
    usable = present & (estimated_direct > 0)
    factors[matched[usable]] = direct[usable] / estimated_direct[usable]
    estimated = factors * _direct(build, build_calls, _frequencies(build), fixed)[0]
    has_factor = np.isfinite(factors)
    fixed[has_factor] += estimated[has_factor]
    return _direct(build, build_calls[~has_factor[build_calls[:, 1]]], rates, fixed)[1]


def _direct(build: Build, calls: np.ndarray, rates: np.ndarray, fixed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Direct and all calls of each function, each `[F]`.

    Args:
      build: whose functions.
      calls: `[E, 2]` of `Build.calls`, without recursion.
      rates: `[N]` of blocks, per call of their function.
      fixed: `[F]` calls that are not among `calls`.
    """
    from scipy.sparse import csr_matrix

    blocks, callees = calls[:, 0], calls[:, 1]
    size = len(fixed)
    flow = csr_matrix((rates[blocks], (callees, build.functions[blocks])), shape=(size, size))
    direct = np.zeros(size)
    # There are at most `size` levels of calls.
    for _ in range(size):
        following = flow @ (fixed + direct)
        if np.array_equal(following, direct):
            break
        direct = following
    return direct, fixed + direct


def _components(build: Build) -> np.ndarray:
    """A number for each function, `[F]`, equal for functions that call each other recursively."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components

    size = len(build.entries)
    callers = build.functions[build.calls[:, 0]]
    graph = csr_matrix((np.ones(len(callers)), (callers, build.calls[:, 1])), shape=(size, size))
    return connected_components(graph, directed=True, connection="strong")[1]


def _is_across(build: Build, component: np.ndarray, matched: np.ndarray, other_component: np.ndarray) -> np.ndarray:
    """Whether each direct call `[E]` is no recursion in either build; `matched` `[F]` is -1 for new functions."""
    callers, callees = build.functions[build.calls[:, 0]], build.calls[:, 1]
    in_other = (matched[callers] >= 0) & (matched[callees] >= 0)
    in_other &= other_component[matched[callers]] == other_component[matched[callees]]
    return (component[callers] != component[callees]) & ~in_other


def _frequencies(build: Build) -> np.ndarray:
    """`[N]`, per call."""
    return np.array([block.frequency for block in build.blocks], np.float64)


def _rows(build: Build) -> list[dict[int, int]]:
    """The row of each block by its id, of each function, `[F]`."""
    rows: list[dict[int, int]] = [{} for _ in build.entries]
    for row, (function, block) in enumerate(zip(build.functions.tolist(), build.blocks, strict=True)):
        rows[function][block.block_id] = row
    return rows
