"""Score and credit of inlining: text bytes as the linked program will have them.

Many objects of a C++ project have the same COMDAT functions, and the linker keeps one copy of each. So a byte of a
COMDAT group that `n` objects of the project emit costs `1/n` here. Object size alone is the wrong objective: policies
that reduced it by 6% reduced the linked program by 2%. The copies are counted once, in the objects that the default
compiles, among the modules that are linked together, so a module's score depends on its own compilation only.

A module has hundreds of decisions, and its size says little about any one of them. A decision can only change the size
of its caller, of the functions that its caller was itself inlined into, and of its callee, which disappears when all
its calls are inlined. Each decision is credited with their change, against the mean of a group of rollouts.
"""

import collections
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from compiler_opt.llvm.object_file import ObjectSizes
from compiler_opt.llvm.remarks import CallSites


def comdat_copies(objects: Iterable[ObjectSizes]) -> dict[str, int]:
    """How many objects of a project emit each COMDAT group, by signature; at least 1."""
    copies: collections.Counter[str] = collections.Counter()
    for sizes in objects:
        copies.update(sizes.comdats.keys())
    return dict(copies)


def weighted_text_bytes(sizes: ObjectSizes, copies: Mapping[str, int]) -> float:
    """The score of one object: its text bytes, those of a COMDAT group divided by its copies in the project.

    A group that is not in `copies`, because the default emits it nowhere, counts fully. Summed over the objects in
    which copies were counted, a group whose copies are equal counts exactly once.
    """
    return sizes.text_bytes - sum(
        group_bytes * (1 - 1 / copies[signature])
        for signature, group_bytes in sizes.comdats.items()
        if copies.get(signature, 1) > 1
    )


def function_weights(sizes: ObjectSizes, copies: Mapping[str, int]) -> dict[str, float]:
    """The cost of a byte of each function of the object: 1 / copies in a COMDAT group, otherwise 1."""
    return {function: 1 / copies.get(sizes.function_comdats.get(function, ""), 1) for function in sizes.functions}


def function_credit(
    group: Sequence[ObjectSizes], call_sites: Sequence[CallSites], copies: Mapping[str, int]
) -> list[np.ndarray]:
    """Credits each decision of a group of rollouts of one module.

    Args:
      group: sizes of each rollout's object.
      call_sites: of each rollout, T decisions.
      copies: how many objects of the project emit each COMDAT group.

    Returns:
      for each rollout `[T]` float64 weighted bytes saved against the group's mean, in the functions that the decision
      can change.
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
    # A function's body is also in every function that it was inlined into.
    inlined = np.unique(np.stack([sites.callees, sites.callers], axis=1)[sites.inlined], axis=0)
    passed_on = np.zeros(len(sites.functions))
    np.add.at(passed_on, inlined[:, 0], saved[inlined[:, 1]])
    return saved[sites.callers] + passed_on[sites.callers] + saved[sites.callees]
