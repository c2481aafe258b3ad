"""Which inlining decision earned what: the size change of the functions that it concerns.

A module makes hundreds of decisions, and its total size says little about any one of them. But functions are measured
one by one: a decision can only change the size of its caller, of what its caller was itself inlined into, and of its
callee (which disappears when all its calls are inlined). Each decision gets the change of those, against the mean of a
group of rollouts of the same module.
"""

import collections
from collections.abc import Mapping, Sequence

import numpy as np

from compiler_opt.llvm.object_file import ObjectSizes
from compiler_opt.llvm.remarks import CallSites
from compiler_opt.problems.inlining.score import function_weights


def function_credit(
    group: Sequence[ObjectSizes], call_sites: Sequence[CallSites], copies: Mapping[str, int]
) -> list[np.ndarray]:
    """Credits each decision of a group of rollouts of one module.

    Args:
      group: sizes of each rollout's object.
      call_sites: of each rollout, T decisions.
      copies: how many objects of the project emit each COMDAT group (see `score`).

    Returns:
      for each rollout `[T]` float64 weighted bytes saved against the group's mean, in the functions concerned.
    """
    costs: list[dict[str, float]] = []
    mean: collections.defaultdict[str, float] = collections.defaultdict(float)
    for sizes in group:
        weights = function_weights(sizes, copies)
        cost = {function: num_bytes * weights[function] for function, num_bytes in sizes.functions.items()}
        costs.append(cost)
        for function, weighted_bytes in cost.items():
            mean[function] += weighted_bytes / len(group)
    return [_decision_credit(cost, mean, sites) for cost, sites in zip(costs, call_sites, strict=True)]


def _decision_credit(cost: Mapping[str, float], mean: Mapping[str, float], sites: CallSites) -> np.ndarray:
    saved = np.array([mean.get(function, 0.0) - cost.get(function, 0.0) for function in sites.functions])
    # Where a function's body went: every function that has inlined it counts for the decisions within it.
    inlined = np.unique(np.stack([sites.callees, sites.callers], axis=1)[sites.inlined], axis=0)
    passed_on = np.zeros(len(sites.functions))
    np.add.at(passed_on, inlined[:, 0], saved[inlined[:, 1]])
    credit: np.ndarray = saved[sites.callers] + passed_on[sites.callers] + saved[sites.callees]
    return credit
