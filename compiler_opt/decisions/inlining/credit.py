"""Credit: which decision has changed which function.

Legend: F functions, T decisions of a rollout.

A module has hundreds of decisions, and its size says little about any one of them. A decision can only change the size
of its caller, of the functions that its caller's body is inlined into afterwards, directly or within another function,
and of its callee, which disappears when all its calls are inlined. What is split off a coroutine counts as part of it.
Each decision is credited with their change, against the mean of a group of rollouts.
"""

import collections
from collections.abc import Mapping, Sequence

import numpy as np

from compiler_opt.decisions.inlining.bodies import coroutine_of
from compiler_opt.llvm.remarks import CallSites


def function_credit(group: Sequence[Mapping[str, float]], call_sites: Sequence[CallSites]) -> list[np.ndarray]:
    """Credits each decision of a group of rollouts of one module with what the functions save that it can change.

    See `Decision.credit`.
    """
    costs: list[dict[str, float]] = []
    mean: collections.defaultdict[str, float] = collections.defaultdict(float)
    for by_function in group:
        cost = dict(by_function)
        parts = [(coroutine, function) for function in cost if (coroutine := coroutine_of(function))]
        for coroutine, part in parts:
            cost[coroutine] = cost.get(coroutine, 0.0) + cost[part]
        costs.append(cost)
        for function, value in cost.items():
            mean[function] += value / len(group)
    return [
        decision_credit(
            np.array([mean.get(function, 0.0) - cost.get(function, 0.0) for function in sites.functions]), sites
        )
        for cost, sites in zip(costs, call_sites, strict=True)
    ]


def decision_credit(saved: np.ndarray, sites: CallSites) -> np.ndarray:
    """Sums up, for each decision, what is saved in the functions that it can change, each once.

    Inlining copies the callee's body as it is at that moment. So the order of the decisions says where a body gets to:
    from the last decision to the first, each function's later callers are known before they are needed.

    Args:
      saved: `[F]` of each function of `sites`, in order.
      sites: of T decisions, in the order of the compilation.

    Returns:
      `[T]` float64.
    """
    values = saved.tolist()
    (changed,) = np.nonzero(saved)
    # Sets of functions are bits of an integer; only functions that have changed need one.
    bits = [0] * len(values)
    for position, function in enumerate(changed.tolist()):
        bits[function] = 1 << position
    by_bit = saved[changed].tolist()
    holders = list(bits)  # the functions that hold each function's body after the decision at hand, itself among them
    totals = list(values)  # what is saved in these
    credits: list[float] = []
    decisions = zip(sites.callers.tolist(), sites.callees.tolist(), sites.inlined.tolist(), strict=True)
    for caller, callee, is_inlined in reversed(list(decisions)):
        held = holders[caller]
        credits.append(totals[caller] + (0.0 if held & bits[callee] else values[callee]))
        added = held & ~holders[callee] if is_inlined else 0
        holders[callee] |= added
        while added:
            lowest = added & -added
            totals[callee] += by_bit[lowest.bit_length() - 1]
            added ^= lowest
    credits.reverse()
    return np.array(credits, np.float64)
