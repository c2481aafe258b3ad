"""Decisions made here, over the interactive channel: any policy, any problem."""

import numpy as np

from compiler_opt.collect.compilation import Compilation
from compiler_opt.collect.trajectory import Trajectory
from compiler_opt.errors import ProtocolError, ToolchainError
from compiler_opt.llvm import ir2vec, regalloc_plugin, remarks
from compiler_opt.llvm.advisors import INLINING
from compiler_opt.llvm.interactive import (
    Connect,
    FunctionOfDecisions,
    InteractiveResult,
    compile_interactively,
    llvm_channel,
)
from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.policy import Decider, FeaturePolicy, Policy, ReplayPolicy


def run(compilation: Compilation, policy: Policy) -> Trajectory | None:
    """Compiles under a policy; None when there is nothing to decide.

    Raises:
      CompileError, CorpusError, ProtocolError: it fails.
      PolicyError: the policy does not fit the compiler.
    """
    if policy.needs_default and compilation.support.default_in_callee_slot:
        return _replayed_default(compilation)
    trajectory, _ = _converse(compilation, policy, include_default=policy.needs_default)
    return trajectory


def _replayed_default(compilation: Compilation) -> Trajectory | None:
    """On a compiler that overwrites a feature with the default decision: first the decisions, then the features."""
    slot = compilation.advisor.default_slot
    if slot is None:
        raise ProtocolError(f"{compilation.problem.name}: no feature is known to carry the default decision")
    told, _ = _converse(compilation, FeaturePolicy(slot, name="default"), include_default=True)
    if told is None:
        return None
    seen, result = _converse(compilation, ReplayPolicy(told.advice, name="default"), include_default=False)
    if seen is None or len(seen) != len(told):
        raise ProtocolError(
            f"{compilation.module.name}: the compiler asked for {len(told)} decisions, then {len(result.advice)} when "
            "they were replayed; the default trace of this module would be wrong"
        )
    return seen


def _converse(
    compilation: Compilation, policy: Policy, *, include_default: bool
) -> tuple[Trajectory | None, InteractiveResult]:
    decider: Decider | None = None

    def start(header: Header) -> Decider:
        nonlocal decider
        decider = policy.start(ir2vec.flattened(header), compilation.seed)
        return decider

    options = compilation.embeddings.options() if compilation.embeddings is not None else ()
    result = compile_interactively(
        compilation.command(options, call_sites=compilation.names_call_sites),
        connect=_channel(compilation, include_default=include_default),
        start_deciding=start,
        scratch=compilation.scratch,
        timeout_s=compilation.settings.timeout_s,
        memory_bytes=compilation.settings.memory_bytes,
        file_bytes=compilation.file_bytes,
    )
    compilation.account(result.process)
    compilation.generate_code()
    if result.header is None or decider is None or not result.advice:
        return None, result
    advice = np.array(result.advice, result.header.advice.dtype)
    sites: remarks.CallSites | FunctionOfDecisions | None = None
    if compilation.names_call_sites:
        sites = compilation.call_sites(result.header.decode(result.observations), advice)
    elif compilation.advisor != INLINING:
        sites = result.functions()
    log_probs, sampled_actions = decider.log_probs(), decider.sampled_actions()
    header = ir2vec.flattened(result.header)
    return Trajectory(header, result.observations, advice, log_probs, sites, sampled_actions), result


def _channel(compilation: Compilation, *, include_default: bool) -> Connect:
    """That of the plugin which tells the default's decisions beside the rest, where there is one; else LLVM's own.

    Raises:
      ToolchainError: there is no plugin, and the settings insist on it.
    """
    advisor, backend = compilation.advisor, compilation.settings.backend
    # Asked over a channel that leads nowhere, without the plugin, LLVM would wait for ever.
    if advisor.plugin_default_feature is not None and backend in ("auto", "plugin") and compilation.loads_plugins:
        try:
            plugin = regalloc_plugin.regalloc_plugin(compilation.toolchain)
            return regalloc_plugin.plugin_channel(plugin, advisor, regalloc_plugin.make_nowhere(compilation.scratch))
        except ToolchainError:
            if backend == "plugin":
                raise
    return llvm_channel(advisor, include_default=include_default, takes_llvm_options=compilation.uses_opt)
