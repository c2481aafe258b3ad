"""Inlining for size: whether to inline each call, to make the linked program small.

The score is text bytes as the linked program will have them. Many objects of a C++ project have the same COMDAT
functions, and the linker keeps one copy of each. So a byte of a COMDAT group that `n` objects of the project emit costs
`1/n` here. Object size alone is the wrong objective: policies that reduced it by 6% reduced the linked program by 2%.
The copies are counted once, in the objects that the default compiles, among the modules that are linked together, so a
module's score depends on its own compilation only.

A module has hundreds of decisions, and its size says little about any one of them. A decision can only change the size
of its caller, of the functions that its caller was itself inlined into, and of its callee, which disappears when all
its calls are inlined. Each decision is credited with their change, against the mean of a group of rollouts.
"""

import collections
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from compiler_opt.llvm.advisors import INLINING
from compiler_opt.llvm.object_file import ObjectSizes, read_object_sizes
from compiler_opt.llvm.remarks import CallSites
from compiler_opt.policies.policy import ConstantPolicy
from compiler_opt.problems.problem import Problem, Sites
from compiler_opt.spaces.binary import Binary

FEATURES = (
    "sroa_savings",
    "sroa_losses",
    "load_elimination",
    "call_penalty",
    "call_argument_setup",
    "load_relative_intrinsic",
    "lowered_call_arg_setup",
    "indirect_call_penalty",
    "jump_table_penalty",
    "case_cluster_penalty",
    "switch_default_dest_penalty",
    "switch_penalty",
    "unsimplified_common_instructions",
    "num_loops",
    "dead_blocks",
    "simplified_instructions",
    "constant_args",
    "constant_offset_ptr_args",
    "callsite_cost",
    "cold_cc_penalty",
    "last_call_to_static_bonus",
    "is_multiple_blocks",
    "nested_inlines",
    "nested_inline_cost_estimate",
    "threshold",
    "callee_basic_block_count",
    "callsite_height",
    "node_count",
    "nr_ctant_params",
    "cost_estimate",
    "edge_count",
    "caller_users",
    "caller_conditionally_executed_blocks",
    "caller_basic_block_count",
    "callee_conditionally_executed_blocks",
    "callee_users",
    "is_callee_avail_external",
    "is_caller_avail_external",
)
"""Features of the advisor (`llvm/include/llvm/Analysis/InlineModelFeatureMaps.h`): int64 scalars that describe one
callsite, its caller and its callee."""


class InliningForSize(Problem[ObjectSizes, Mapping[str, int]]):
    """The score is COMDAT-weighted text bytes; a project's context is the number of copies of each COMDAT group."""

    name = "inlining"
    advisor = INLINING
    score_name = "COMDAT-weighted text"
    is_size = True
    feature_names = FEATURES
    action_space = Binary()
    context_policies = (ConstantPolicy(0, name="never"),)

    def measure(self, object_path: Path, remarks: bytes) -> ObjectSizes:
        del remarks
        return read_object_sizes(object_path)

    def project_context(
        self, measurements: Iterable[ObjectSizes], others: Iterable[ObjectSizes] = ()
    ) -> dict[str, int]:
        # The default emits no copy of what it always inlines; without inlining, the number of copies shows.
        copies = {**comdat_copies(others), **comdat_copies(measurements)}
        return {group: count for group, count in copies.items() if count > 1}

    def score(self, measurement: ObjectSizes, context: Mapping[str, int]) -> float:
        return weighted_text_bytes(measurement, context)

    def credit(
        self, measurements: Sequence[ObjectSizes], sites: Sequence[Sites], context: Mapping[str, int]
    ) -> list[np.ndarray]:
        return function_credit(measurements, [each for each in sites if isinstance(each, CallSites)], context)


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
    """Credits each decision of a group of rollouts of one module; see `Problem.credit`.

    The credit is the weighted bytes saved in the functions that the decision can change.
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


PROBLEM = InliningForSize()
