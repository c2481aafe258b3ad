"""Decisions made by our plugins in the compiler's own process: those of networks, and the compiler's own."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path

from compiler_opt.collect.backends import Backend
from compiler_opt.collect.backends.development import logged_trajectory
from compiler_opt.collect.compilation import Compilation
from compiler_opt.collect.policy_folder import PolicyFolder
from compiler_opt.collect.rollout_settings import RolloutSettings
from compiler_opt.collect.trajectory import Trajectory
from compiler_opt.decisions.decision import Decision
from compiler_opt.errors import PolicyError, ToolchainError
from compiler_opt.llvm import regalloc_plugin
from compiler_opt.llvm.advisors import INLINING
from compiler_opt.llvm.inliner_plugin import can_build, environment, inliner_plugin, read_log
from compiler_opt.llvm.plugin import load_option
from compiler_opt.llvm.plugin_features import among, specs
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.decisions import Base, OverridingPolicy
from compiler_opt.policies.policy import Policy
from compiler_opt.spaces.learned_policy import LearnedPolicy
from compiler_opt.spaces.native import NATIVE_FILE


class PluginBackend(Backend):
    """Takes policies with a native form, the default, and for inlining these two with single decisions replayed."""

    def write_policy(
        self,
        policy: LearnedPolicy,
        decision: Decision,
        toolchain: Toolchain,
        policies: PolicyFolder,
        settings: RolloutSettings,
    ) -> None:
        del settings
        if policy.runs_in_plugin and can_build(toolchain):
            # If the network has no native form, `prepare` decides what that means.
            with contextlib.suppress(PolicyError):
                _write_native(policy, decision, policies)

    def prepare(self, compilation: Compilation, policy: Policy) -> Callable[[], Trajectory | None] | None:
        if not compilation.may_use("plugin"):
            return None
        base = policy.base if isinstance(policy, OverridingPolicy) and policy.decisions.on_calls else policy
        needed = _own_features(compilation, base)
        # No other backend replays decisions, or has the plugin's features.
        insists = compilation.settings.backend == "plugin" or base is not policy or bool(needed)
        if not compilation.loads_plugins:
            if needed:
                raise PolicyError(
                    f"{compilation.module.name}: only our plugin computes the features {', '.join(needed)}, and as the "
                    "backend of a ThinLTO link clang loads no plugin; leave such modules out, or inlining.features"
                )
            if insists:
                raise PolicyError(
                    f"{compilation.module.name}: as the backend of a ThinLTO link clang loads no plugin; "
                    "use the backend auto"
                )
            return None
        inlines = compilation.advisor == INLINING
        if not _decides_in_compiler(base, compilation.task.decision) or (base is not policy and not inlines):
            if insists and inlines:
                raise PolicyError(f"policy {policy.name!r} cannot decide within the compiler; use the backend auto")
            # The register allocator's plugin asks other policies over the channel.
            return None
        if not insists and not can_build(compilation.toolchain):
            return None
        try:
            native = None
            if isinstance(base, LearnedPolicy):
                native = _write_native(base, compilation.task.decision, compilation.policies)
            build = inliner_plugin if inlines else regalloc_plugin.regalloc_plugin
            plugin = build(compilation.toolchain)
        except (PolicyError, ToolchainError):
            if insists:
                raise
            return None
        return functools.partial(_inline if inlines else _allocate, compilation, policy, plugin, native)


def _own_features(compilation: Compilation, policy: Policy) -> tuple[str, ...]:
    """The features that only the plugin computes and that the policy observes or the default trace records."""
    if isinstance(policy, LearnedPolicy):
        return (*compilation.plugin_features, *policy.plugin_features)
    return compilation.plugin_features if policy.is_default else ()


def _write_native(policy: LearnedPolicy, decision: Decision, policies: PolicyFolder) -> Path:
    return policies.file(policy, NATIVE_FILE, lambda: decision.native_form(policy.weights))


def _decides_in_compiler(policy: Policy, decision: Decision) -> bool:
    if isinstance(policy, LearnedPolicy):
        return policy.runs_in_plugin
    return policy.is_default and decision.action_space.plugin_takes_default


def _write_decisions(compilation: Compilation, policy: OverridingPolicy, native: Path | None) -> Path:
    """Writes the policy's decisions for one compilation; `native` is its base's native form."""
    learned, base, origin = policy.base, Base(), f"policy {policy.name!r}"
    if isinstance(learned, LearnedPolicy) and native is not None:
        if learned.temperature:
            raise PolicyError(f"{origin}: expected a greedy base, found the temperature {learned.temperature}")
        base = Base(learned.weights, native.read_bytes())
    path = compilation.scratch / "decisions.mlgo"
    major = compilation.toolchain.version[0]
    path.write_bytes(policy.decisions.native_form(major=major, base=base, origin=origin))
    return path


def _inline(compilation: Compilation, policy: Policy, plugin: Path, native: Path | None) -> Trajectory | None:
    features, advice = compilation.support.features, compilation.support.advice
    assert advice is not None
    temperature, decisions, names_call_sites = 0.0, None, compilation.settings.record_call_sites
    if isinstance(policy, OverridingPolicy):
        decisions, names_call_sites = _write_decisions(compilation, policy, native), True
        policy = policy.base
    if isinstance(policy, LearnedPolicy):
        features += specs(set(policy.plugin_features) - set(compilation.plugin_features))
        policy.check_header(Header(features, advice))
        temperature = policy.temperature
    else:
        features = compilation.default_trace_features
    log_path = compilation.log_path
    variables = environment(
        policy=native,
        temperature=temperature,
        seed=compilation.seed,
        decisions=decisions,
        log=log_path,
        log_default=compilation.settings.record_default,
        log_features=among(spec.name for spec in features),
    )
    compilation.compile([load_option(plugin)], variables)
    log = read_log(log_path, features)
    if log is None:
        return None
    log_probs = None
    if isinstance(policy, LearnedPolicy) and temperature and log.logits is not None:
        log_probs = policy.logged_log_probs(log.advice, log.logits)
    return Trajectory(
        Header(features, advice),
        log.observations,
        log.advice,
        log_probs,
        log.call_sites if names_call_sites else None,
        default_advice=log.default_advice,
    )


def _allocate(compilation: Compilation, policy: Policy, plugin: Path, native: Path | None) -> Trajectory | None:
    advisor, support, log = compilation.advisor, compilation.support, compilation.log_path
    assert support.advice is not None and advisor.plugin_default_feature is not None
    if isinstance(policy, LearnedPolicy):
        policy.check([spec.name for spec in support.features])
    nowhere = regalloc_plugin.make_nowhere(compilation.scratch)
    variables = regalloc_plugin.environment(policy=native, log=log)
    compilation.compile(regalloc_plugin.options(plugin, advisor, nowhere), variables)
    if not log.exists():
        return None
    default_action = dataclasses.replace(support.advice, name=advisor.plugin_default_feature)
    return logged_trajectory(compilation, policy, (*support.features, default_action))


BACKEND = PluginBackend()
