"""Decisions made in the compiler's own process, by the inliner plugin: networks, and the compiler's own decisions."""

import dataclasses
from pathlib import Path

from compiler_opt.collect.compilation import Compilation, DefaultPolicy
from compiler_opt.collect.trajectory import Trajectory
from compiler_opt.errors import PolicyError, ToolchainError
from compiler_opt.files import remove_oldest
from compiler_opt.llvm import inliner_log
from compiler_opt.llvm.advisors import INLINING
from compiler_opt.llvm.plugin import can_build, environment, inliner_plugin, load_option
from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.native import native_blob
from compiler_opt.policies.network import NetworkPolicy
from compiler_opt.policies.policy import Policy

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
    if compilation.advisor != INLINING:
        # The register allocator's plugin tells more; decisions are made over the channel.
        return None
    if not isinstance(policy, (NetworkPolicy, DefaultPolicy)):
        if insists:
            raise PolicyError(f"policy {policy.name!r} cannot decide within the compiler; use the backend auto")
        return None
    if not insists and not can_build(compilation.toolchain):
        return None
    try:
        blob = _blob(compilation.scratch, policy) if isinstance(policy, NetworkPolicy) else None
        return Prepared(inliner_plugin(compilation.toolchain), blob)
    except (PolicyError, ToolchainError):
        if insists:
            raise
        return None


def _blob(scratch: Path, policy: NetworkPolicy) -> Path:
    """The policy's native form, written once for each policy."""
    path = scratch / f"{policy.key}.mlgo"
    if not path.exists():
        remove_oldest(scratch.glob("*.mlgo"), _MAX_NATIVE_POLICIES)
        path.write_bytes(native_blob(policy.weights))
    return path


def run(compilation: Compilation, policy: Policy, prepared: Prepared) -> Trajectory | None:
    """Compiles with the plugin, which decides and writes down what it saw; None when there is nothing to decide.

    Raises:
      CompileError, CorpusError, ProtocolError: it fails.
      PolicyError: the policy does not fit the compiler.
    """
    features, advice = compilation.support.features, compilation.support.advice
    assert advice is not None
    temperature = 0.0
    if isinstance(policy, NetworkPolicy):
        policy.check_specs(features)
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
    if isinstance(policy, NetworkPolicy) and temperature and log.logits is not None:
        log_probs = policy.log_probs(log.advice, log.logits)
    call_sites = log.call_sites if compilation.settings.record_call_sites else None
    return Trajectory(Header(features, advice), log.observations, log.advice, log_probs, call_sites)
