"""Decisions made in the compiler's own process, by our plugins: networks, and the compiler's own decisions."""

import dataclasses
from pathlib import Path

from compiler_opt.collect.compilation import Compilation
from compiler_opt.collect.logged import logged_trajectory
from compiler_opt.collect.trajectory import Trajectory
from compiler_opt.errors import PolicyError, ToolchainError
from compiler_opt.files import remove_oldest
from compiler_opt.llvm import inliner_log, regalloc_plugin
from compiler_opt.llvm.advisors import INLINING
from compiler_opt.llvm.inliner_plugin import can_build, environment, inliner_plugin
from compiler_opt.llvm.plugin import load_option
from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.policy import Policy
from compiler_opt.problems.problem import Problem
from compiler_opt.spaces.learned_policy import LearnedPolicy

NATIVE_SUFFIX = ".mlgo"
"""Of policies in a scratch directory, where they stay for the next compilation."""

_MAX_NATIVE_POLICIES = 8
"""Kept in a worker's scratch directory: a run has one policy at a time, an evaluation a few."""


@dataclasses.dataclass(frozen=True)
class Prepared:
    """What it takes.

    Attributes:
      plugin: the built plugin.
      blob: the policy's native form; None for the compiler's own decisions.
    """

    plugin: Path
    blob: Path | None


def prepare(compilation: Compilation, policy: Policy) -> Prepared | None:
    """What it takes to compile under a policy, or None when that is not possible and another backend will do.

    Raises:
      PolicyError, ToolchainError: it is not possible, and the settings insist on the plugin.
    """
    insists = compilation.settings.backend == "plugin"
    if not compilation.loads_plugins:
        if insists:
            raise PolicyError(
                f"{compilation.module.name}: as the backend of a ThinLTO link clang loads no plugin; "
                "use the backend auto"
            )
        return None
    inlines = compilation.advisor == INLINING
    if not _decides_within(policy, compilation.problem):
        if insists and inlines:
            raise PolicyError(f"policy {policy.name!r} cannot decide within the compiler; use the backend auto")
        # The register allocator's plugin has others asked over the channel.
        return None
    if not insists and not can_build(compilation.toolchain):
        return None
    try:
        blob = _blob(compilation.scratch, policy, compilation.problem) if isinstance(policy, LearnedPolicy) else None
        plugin = inliner_plugin if inlines else regalloc_plugin.regalloc_plugin
        return Prepared(plugin(compilation.toolchain), blob)
    except (PolicyError, ToolchainError):
        if insists:
            raise
        return None


def _decides_within(policy: Policy, problem: Problem) -> bool:
    if isinstance(policy, LearnedPolicy):
        return policy.runs_in_plugin
    return policy.is_default and problem.action_space.plugin_takes_default


def _blob(folder: Path, policy: LearnedPolicy, problem: Problem) -> Path:
    """The policy's native form, written once for each policy."""
    path = folder / f"{policy.key}{NATIVE_SUFFIX}"
    if not path.exists():
        remove_oldest(folder.glob(f"*{NATIVE_SUFFIX}"), _MAX_NATIVE_POLICIES)
        # Whole or not at all, should the disk be full.
        partial = path.with_suffix(".partial")
        partial.write_bytes(problem.native_form(policy.weights))
        partial.replace(path)
    return path


def run(compilation: Compilation, policy: Policy, prepared: Prepared) -> Trajectory | None:
    """Compiles with the plugin, which decides and writes down what it saw; None when there is nothing to decide.

    Raises:
      CompileError, CorpusError, ProtocolError: it fails.
      PolicyError: the policy does not fit the compiler.
    """
    if compilation.advisor != INLINING:
        return _run_regalloc(compilation, policy, prepared)
    features, advice = compilation.support.features, compilation.support.advice
    assert advice is not None
    temperature = 0.0
    if isinstance(policy, LearnedPolicy):
        policy.check_header(Header(features, advice))
        temperature = policy.temperature
    else:
        features = compilation.features_of_default
    log_path = compilation.log_path
    variables = environment(policy=prepared.blob, temperature=temperature, seed=compilation.seed, log=log_path)
    compilation.compile([load_option(prepared.plugin)], variables)
    log = inliner_log.read(log_path, features)
    if log is None:
        return None
    log_probs = None
    if isinstance(policy, LearnedPolicy) and temperature and log.logits is not None:
        log_probs = policy.logged_log_probs(log.advice, log.logits)
    call_sites = log.call_sites if compilation.settings.record_call_sites else None
    return Trajectory(Header(features, advice), log.observations, log.advice, log_probs, call_sites)


def _run_regalloc(compilation: Compilation, policy: Policy, prepared: Prepared) -> Trajectory | None:
    advisor, support, log = compilation.advisor, compilation.support, compilation.log_path
    assert support.advice is not None and advisor.plugin_default_feature is not None
    if isinstance(policy, LearnedPolicy):
        policy.check([spec.name for spec in support.features])
    nowhere = regalloc_plugin.make_nowhere(compilation.scratch)
    variables = regalloc_plugin.environment(policy=prepared.blob, log=log)
    compilation.compile(regalloc_plugin.options(prepared.plugin, advisor, nowhere), variables)
    if not log.exists():
        return None
    told = dataclasses.replace(support.advice, name=advisor.plugin_default_feature)
    return logged_trajectory(compilation, policy, (*support.features, told))
