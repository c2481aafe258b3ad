"""Inlining for size: whether to inline each call, to make the linked program small.

The score is text bytes as the linked program will have them: `comdats` weighs the functions of which the linker keeps
one copy. The copies are counted among the modules that are linked together, as the default or no inlining emits them,
and in training as the latest rollouts of the other modules do. `credit` says which decision has changed which function.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from compiler_opt.llvm.advisors import INLINING
from compiler_opt.llvm.object_file import ObjectSizes, read_object_sizes
from compiler_opt.llvm.remarks import CallSites
from compiler_opt.policies.policy import ConstantPolicy
from compiler_opt.problems.inlining.comdats import larger_copies, weighted_text_bytes
from compiler_opt.problems.inlining.credit import function_credit
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


class InliningForSize(Problem[ObjectSizes, Mapping[str, float]]):
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
    ) -> Mapping[str, float]:
        # The default emits no copy of what it always inlines; without inlining, all copies show that may be emitted.
        return {group: count for group, count in larger_copies(measurements, others).items() if count > 1}

    def shared_parts(self, measurement: ObjectSizes) -> Iterable[str]:
        return measurement.comdats.keys()

    def with_copies(self, context: Mapping[str, float], copies: Mapping[str, float]) -> Mapping[str, float]:
        return {**context, **copies}

    def score(self, measurement: ObjectSizes, context: Mapping[str, float]) -> float:
        return weighted_text_bytes(measurement, context)

    def credit(
        self, measurements: Sequence[ObjectSizes], sites: Sequence[Sites], context: Mapping[str, float]
    ) -> list[np.ndarray]:
        return function_credit(measurements, [each for each in sites if isinstance(each, CallSites)], context)


PROBLEM = InliningForSize()
