"""Inlining: whether to inline each call; by default to make the linked program small.

`credit` says which decision has changed which function, `bodies` which functions hold which bodies.
"""

from compiler_opt.decisions.decision import Decision
from compiler_opt.decisions.inlining.credit import function_credit
from compiler_opt.llvm.advisors import INLINING
from compiler_opt.objectives.linked_text import LinkedText
from compiler_opt.policies.policy import ConstantPolicy
from compiler_opt.problem import Problem
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
call site, its caller and its callee."""


# What is not inlined is emitted, so without inlining everything is that the default may have inlined.
DECISION = Decision(
    name="inlining",
    advisor=INLINING,
    feature_names=FEATURES,
    action_space=Binary(),
    credit=function_credit,
    moves_code=True,
    bounding_policies=(ConstantPolicy(0, name="never"),),
)

PROBLEM = Problem(DECISION, LinkedText())
