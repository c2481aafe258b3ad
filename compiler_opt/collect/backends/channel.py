"""Decisions made in our process, over the compiler's interactive channel: any policy, any problem."""

import dataclasses
import functools
from collections.abc import Callable

import numpy as np

from compiler_opt.collect.backends import Backend
from compiler_opt.collect.backends.two_processes import compile_in_two_processes
from compiler_opt.collect.compilation import Compilation
from compiler_opt.collect.trajectory import Trajectory
from compiler_opt.decisions.decision import Sites
from compiler_opt.errors import ProtocolError, ToolchainError
from compiler_opt.llvm import ir2vec, regalloc_plugin
from compiler_opt.llvm.advisors import INLINING
from compiler_opt.llvm.interactive import Connect, InteractiveResult, compile_interactively, llvm_channel
from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.policy import Decider, FeaturePolicy, Policy, ReplayPolicy
from compiler_opt.spaces.learned_policy import LearnedPolicy
from compiler_opt.tensor_spec import TensorSpec


class ChannelBackend(Backend):
    """Takes every policy."""

    def prepare(self, compilation: Compilation, policy: Policy) -> Callable[[], Trajectory | None]:
        if isinstance(policy, LearnedPolicy) and policy.plugin_features:
            policy.check(set(policy.needed_features) - set(policy.plugin_features))
        return functools.partial(_compile, compilation, policy)


def _compile(compilation: Compilation, policy: Policy) -> Trajectory | None:
    if policy.needs_default and compilation.support.default_in_callee_slot:
        if policy.is_default:
            return _replayed_default(compilation)
        return compile_in_two_processes(compilation, policy, _slot_policy(compilation), _converse)
    trajectory, _ = _converse(compilation, policy, include_default=policy.needs_default)
    if trajectory is not None and policy.needs_default and isinstance(policy, LearnedPolicy):
        # As from the plugin, which asks for the default decision only where the policy needs it.
        return _with_features(trajectory, compilation.support.features)
    return trajectory


def _with_features(trajectory: Trajectory, features: tuple[TensorSpec, ...]) -> Trajectory:
    """The trajectory with its first features alone, which must be these."""
    header, num_bytes = trajectory.header, sum(spec.num_bytes for spec in features)
    assert header.features[: len(features)] == features
    rows = np.frombuffer(trajectory.observations, np.uint8).reshape(len(trajectory), -1)
    observations = np.ascontiguousarray(rows[:, :num_bytes]).tobytes()
    return dataclasses.replace(trajectory, header=Header(features, header.advice), observations=observations)


def _replayed_default(compilation: Compilation) -> Trajectory | None:
    """Records the default on a compiler that overwrites a feature with it: first the decisions, then the features."""
    recorded, _ = _converse(compilation, _slot_policy(compilation), include_default=True)
    if recorded is None:
        return None
    replayed, result = _converse(compilation, ReplayPolicy(recorded.advice, name="default"), include_default=False)
    if replayed is None or len(replayed) != len(recorded):
        raise ProtocolError(
            f"{compilation.module.name}: the compiler asked for {len(recorded)} decisions, then {len(result.advice)} "
            "when they were replayed; the default trace of this module would be wrong"
        )
    return replayed


def _slot_policy(compilation: Compilation) -> FeaturePolicy:
    """Takes the default decision from the feature that it overwrites."""
    slot = compilation.advisor.default_slot
    if slot is None:
        raise ProtocolError(f"{compilation.task.decision.name}: no feature is known to carry the default decision")
    return FeaturePolicy(slot, name="default")


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
        sandbox=compilation.sandbox,
    )
    compilation.account(result.process)
    compilation.generate_code()
    if result.header is None or decider is None or not result.advice:
        return None, result
    advice = np.array(result.advice, result.header.advice.dtype)
    sites: Sites | None = None
    if compilation.names_call_sites:
        sites = compilation.call_sites(result.header.decode(result.observations), advice)
    elif compilation.advisor != INLINING:
        sites = result.functions()
    header, log_probs, actions = ir2vec.flattened(result.header), decider.log_probs(), decider.sampled_actions()
    return Trajectory(header, result.observations, advice, log_probs, sites, actions), result


def _channel(compilation: Compilation, *, include_default: bool) -> Connect:
    """The plugin's channel, which adds the default decision as a feature, if available; otherwise LLVM's.

    Raises:
      ToolchainError: the plugin cannot be built, and the settings insist on it.
    """
    advisor = compilation.advisor
    # The options give LLVM itself a channel that nobody answers: where clang loads no plugin, it would wait forever.
    if advisor.plugin_default_feature is not None and compilation.may_use("plugin") and compilation.loads_plugins:
        try:
            plugin = regalloc_plugin.regalloc_plugin(compilation.toolchain)
            return regalloc_plugin.plugin_channel(plugin, advisor, regalloc_plugin.make_nowhere(compilation.scratch))
        except ToolchainError:
            if compilation.settings.backend == "plugin":
                raise
    return llvm_channel(advisor, include_default=include_default, takes_llvm_options=compilation.uses_opt)


BACKEND = ChannelBackend()
