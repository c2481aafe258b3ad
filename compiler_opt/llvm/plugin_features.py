"""Features of inlining that only our plugin computes (`native/callsite_features.h`), beside LLVM's own.

    toolchain = inliner_plugin.with_plugin_features(toolchain, NAMES)   # rollouts now record them, after LLVM's

Policies observe those that their vocabulary has. They decide in the plugin: in rollouts by the backend `plugin`, and in
what `deploy` makes. LLVM's own forms of a policy (the channel, the development mode, models compiled into LLVM) cannot
have such features.
"""

from collections.abc import Collection, Iterable

import numpy as np

from compiler_opt.errors import PolicyError
from compiler_opt.tensor_spec import TensorSpec

NAMES = (
    "caller_linkage",
    "callee_linkage",
    "callee_calls_in_module",
    "callee_calls_in_caller",
    "callee_other_uses",
    "is_callee_dropped",
    "caller_instructions",
    "callee_instructions",
    "callee_direct_calls",
    "callee_calls",
    "callee_loads_stores",
    "callee_allocas",
    "callee_invokes",
    "call_arguments",
    "is_invoke",
    "is_no_return",
    "is_result_used",
    "is_in_loop",
    "is_cold",
    "callee_cost",
    "further_calls_percent",
)
"""The features, in the plugin's order: int64 scalars, which `docs/plugin_features.md` explains."""

HOTNESS = ("callsite_frequency", "callsite_hotness", "caller_hotness", "callee_hotness")
"""How often code runs: more features of the plugin, which need LLVM's block frequencies and the module's profile."""

CALLSITE_COUNT = "callsite_count"
"""How often the call runs in the module's profile, 0 without one: another feature of the plugin."""

DEFAULT_DECISION = "default_decision"
"""What LLVM's heuristic would do: another feature of the plugin, which costs a second analysis of each call."""

ALL = (*NAMES, *HOTNESS, CALLSITE_COUNT, DEFAULT_DECISION)

SETTING = "inlining.features"
"""The name in gin of the setting that chooses them."""


def among(names: Iterable[str]) -> tuple[str, ...]:
    """Those of the names that only the plugin computes."""
    return tuple(name for name in names if name in ALL)


def specs(names: Iterable[str]) -> tuple[TensorSpec, ...]:
    """The tensors of some of the plugin's features, in its order."""
    chosen = set(names)
    return tuple(TensorSpec(name, np.dtype(np.int64), (1,)) for name in ALL if name in chosen)


def check_observed(wanted: Iterable[str], observed: Collection[str], what: str) -> None:
    """Raises PolicyError if a trace, vocabulary or policy (`what`) lacks wanted features of the plugin."""
    missing = [name for name in among(wanted) if name not in observed]
    if missing:
        raise PolicyError(
            f"{what}: expected the features {', '.join(missing)} of {SETTING}, found none; make it from a trace that "
            f"generate_default_trace recorded with the same {SETTING}, or leave the setting out"
        )
