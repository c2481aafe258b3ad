"""One compilation under a policy, measured: the only way in which anything here compiles a module.

    rollout(module, policy, problem, toolchain) -> Rollout(trajectory, measurement, cost in CPU seconds, failure?)

Default traces, training, evaluation and imitation all call it.
"""

import dataclasses
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from compiler_opt.corpus.command_line import compile_command
from compiler_opt.corpus.description import Module, explain_failure
from compiler_opt.errors import CompileError, ConfigError, CorpusError, PolicyError, ProtocolError, ToolchainError
from compiler_opt.llvm import inliner_log, processes, remarks
from compiler_opt.llvm.advisors import INLINING
from compiler_opt.llvm.interactive import FunctionOfDecisions, InteractiveResult, compile_interactively
from compiler_opt.llvm.plugin import can_build, environment, inliner_plugin, load_option
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.native import native_blob
from compiler_opt.policies.network import NetworkPolicy, sampled_log_probs
from compiler_opt.policies.policy import Decider, FeaturePolicy, Policy, ReplayPolicy
from compiler_opt.problems.problem import Problem

BACKENDS = ("auto", "plugin", "channel")

_MAX_NATIVE_POLICIES = 8
"""Kept in a worker's scratch directory: a run has one policy at a time, an evaluation a few."""


@dataclasses.dataclass(frozen=True)
class RolloutSettings:
    """Limits of one compilation.

    Attributes:
      timeout_s: wall-clock seconds; a compilation that takes longer is a failure.
      memory_bytes: address space of the compiler.
      record_call_sites: of inlining, also learn who calls whom (over the channel this costs some 10% of the
        compilation).
      backend: how decisions get into the compiler: `plugin` (made in its own process), `channel` (over pipes), or
        `auto`: the plugin when it can be built for the compiler and the policy can run in it. Both give the same.
    """

    timeout_s: float = 120.0
    memory_bytes: int = processes.DEFAULT_MEMORY_BYTES
    record_call_sites: bool = False
    backend: str = "auto"

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise ConfigError(f"backend: expected one of {', '.join(BACKENDS)}; found {self.backend!r}")


@dataclasses.dataclass(frozen=True)
class Trajectory:
    """The decisions of one compilation, T of them.

    Attributes:
      header: what an observation consists of.
      observations: T observations as raw bytes.
      advice: `[T]`, int64 or float32 as the problem has it.
      log_probs: `[T]` float32 log probability of each advice, None unless the policy sampled.
      sites: where the decisions were made, see `Problem.credit`; None when the compiler does not tell, or was not
        asked to.
    """

    header: Header
    observations: bytes
    advice: np.ndarray
    log_probs: np.ndarray | None
    sites: remarks.CallSites | FunctionOfDecisions | None

    def __len__(self) -> int:
        return len(self.advice)

    def features(self) -> dict[str, np.ndarray]:
        """Arrays `[T, *shape]` by name; views."""
        return self.header.decode(self.observations)


@dataclasses.dataclass(frozen=True)
class Rollout:
    """What came of one compilation.

    Attributes:
      module: the module's name.
      project: its project's name.
      policy: the policy's name; `compiler` for a plain compilation.
      seed: what the policy's sampling started from.
      trajectory: None for a plain compilation, or when the module has nothing to decide.
      measurement: what the problem reads off the object; None after a failure.
      cpu_s: CPU seconds of the compiler.
      host_cpu_s: CPU seconds of this process for the same rollout.
      failure: why there is no measurement; one line.
    """

    module: str
    project: str
    policy: str
    seed: int
    trajectory: Trajectory | None
    measurement: Any
    cpu_s: float
    host_cpu_s: float
    failure: str | None


class DefaultPolicy(FeaturePolicy):
    """Decides what the compiler itself would; its trajectories are the default traces."""

    needs_default = True

    def __init__(self, problem: Problem):
        if problem.advisor.default_feature is None:
            raise PolicyError(f"{problem.name}: the compiler does not tell its own decision")
        super().__init__(problem.advisor.default_feature, name="default")


def rollout(
    module: Module,
    policy: Policy | None,
    problem: Problem,
    toolchain: Toolchain,
    *,
    scratch: Path,
    seed: int = 0,
    settings: RolloutSettings = RolloutSettings(),
    keep_object: Path | None = None,
) -> Rollout:
    """Compiles a module once and measures the object.

    Args:
      module: what to compile.
      policy: who decides; None compiles plainly, without advisor and channel.
      problem: what is decided and measured.
      toolchain: the compiler.
      scratch: a directory of the caller's own.
      seed: for a policy that samples.
      settings: limits.
      keep_object: where to copy the object to.

    Returns:
      the rollout; a module that cannot be compiled has a `failure`.

    Raises:
      PolicyError: the policy does not fit the compiler.
      ToolchainError: the compiler cannot be started or lacks the channel.
    """
    compilation = _Compilation(module, policy, problem, toolchain, scratch, seed, settings)
    host_cpu_s = time.process_time()
    trajectory, measurement, failure = None, None, None
    try:
        trajectory = compilation.run()
        measurement = problem.measure(compilation.object_path, compilation.measured_remarks())
        if keep_object is not None:
            keep_object.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(compilation.object_path, keep_object)
    except (CompileError, CorpusError, ProtocolError) as error:
        failure = str(error) if module.name in str(error) else f"{module.name}: {error}"
    finally:
        compilation.clean_up()
    return Rollout(
        module=module.name,
        project=module.project,
        policy=policy.name if policy is not None else "compiler",
        seed=seed,
        trajectory=trajectory,
        measurement=measurement,
        cpu_s=compilation.cpu_s,
        host_cpu_s=time.process_time() - host_cpu_s,
        failure=failure,
    )


class _Compilation:
    """The steps of one rollout, and what they cost."""

    def __init__(
        self,
        module: Module,
        policy: Policy | None,
        problem: Problem,
        toolchain: Toolchain,
        scratch: Path,
        seed: int,
        settings: RolloutSettings,
    ):
        self.object_path = scratch / "module.o"
        self._remarks_path = scratch / "remarks.yaml"
        self._log_path = scratch / "decisions.log"
        self.cpu_s = 0.0
        self._module = module
        self._policy = policy
        self._toolchain = toolchain
        self._support = toolchain.require(problem.advisor.problem)
        self._advisor = problem.advisor
        self._problem = problem
        self._scratch = scratch
        self._seed = seed
        self._settings = settings

    def run(self) -> Trajectory | None:
        """Leaves the object at `object_path`.

        Raises:
          CompileError: the compiler failed.
          ProtocolError, CorpusError: see `rollout`.
        """
        policy = self._policy
        if policy is None:
            self._compile([])
            return None
        native = self._native(policy)
        if native is not None:
            return self._in_process(policy, *native)
        if policy.needs_default and self._support.default_in_callee_slot:
            return self._replayed_default()
        trajectory, _ = self._converse(policy, include_default=policy.needs_default)
        return trajectory

    def measured_remarks(self) -> bytes:
        """What the problem's measurement needs of them."""
        if self._problem.remark_pass is None or not self._remarks_path.exists():
            return b""
        return self._remarks_path.read_bytes()

    def clean_up(self) -> None:
        """Removes the object and whatever else is there."""
        log = self._log_path
        for path in (self.object_path, self._remarks_path, log, inliner_log.names_path(log)):
            path.unlink(missing_ok=True)

    def _native(self, policy: Policy) -> tuple[Path, Path | None] | None:
        """The plugin and the policy's native form (None: the compiler's own decisions); None for the channel."""
        backend = self._settings.backend
        if backend == "channel":
            return None
        if self._advisor != INLINING or not isinstance(policy, (NetworkPolicy, DefaultPolicy)):
            if backend == "plugin":
                raise PolicyError(f"policy {policy.name!r} cannot decide within the compiler; use the backend auto")
            return None
        if backend == "auto" and not can_build(self._toolchain):
            return None
        try:
            blob = self._blob(policy) if isinstance(policy, NetworkPolicy) else None
            return inliner_plugin(self._toolchain), blob
        except (PolicyError, ToolchainError):
            if backend == "plugin":
                raise
            return None

    def _blob(self, policy: NetworkPolicy) -> Path:
        """The policy's native form, written once for each policy."""
        path = self._scratch / f"{policy.key}.mlgo"
        if not path.exists():
            policies = sorted(self._scratch.glob("*.mlgo"), key=lambda path: path.stat().st_mtime_ns)
            for old in policies[:-_MAX_NATIVE_POLICIES]:
                old.unlink()
            path.write_bytes(native_blob(policy.weights))
        return path

    def _in_process(self, policy: Policy, plugin: Path, blob: Path | None) -> Trajectory | None:
        """Compiles with the plugin, which decides and writes down what it saw."""
        features, advice = self._support.features, self._support.advice
        assert advice is not None
        temperature = 0.0
        if isinstance(policy, NetworkPolicy):
            policy.check_specs(features)
            temperature = policy.temperature
        elif not self._support.default_in_callee_slot:
            # As the channel has it: the default's decision is one of the features.
            features = (*features, dataclasses.replace(advice, name=self._advisor.default_feature or ""))
        variables = environment(policy=blob, temperature=temperature, seed=self._seed, log=self._log_path)
        self._compile([load_option(plugin)], variables)
        log = inliner_log.read(self._log_path, features)
        if log is None:
            return None
        log_probs = None
        if temperature and log.logits is not None:
            logits = log.logits.astype(np.float64)
            log_probs = sampled_log_probs(log.advice, (logits[:, 1] - logits[:, 0]) / temperature)
        call_sites = log.call_sites if self._settings.record_call_sites else None
        return Trajectory(Header(features, advice), log.observations, log.advice, log_probs, call_sites)

    def _compile(self, flags: list[str], variables: Mapping[str, str] | None = None) -> None:
        settings = self._settings
        result = processes.run(
            self._command(flags),
            timeout_s=settings.timeout_s,
            memory_bytes=settings.memory_bytes,
            environment=variables,
        )
        self._account(result)

    def _replayed_default(self) -> Trajectory | None:
        """On a compiler that overwrites a feature with the default decision: first the decisions, then the features."""
        slot = self._advisor.default_slot
        if slot is None:
            raise ProtocolError(f"{self._problem.name}: no feature is known to carry the default decision")
        told, _ = self._converse(FeaturePolicy(slot, name="default"), include_default=True)
        if told is None:
            return None
        seen, result = self._converse(ReplayPolicy(told.advice, name="default"), include_default=False)
        if seen is None or len(seen) != len(told):
            raise ProtocolError(
                f"{self._module.name}: the compiler asked for {len(told)} decisions, then {len(result.advice)} when "
                "they were replayed; the default trace of this module would be wrong"
            )
        return seen

    def _converse(self, policy: Policy, *, include_default: bool) -> tuple[Trajectory | None, InteractiveResult]:
        decider: Decider | None = None

        def start(header: Header) -> Decider:
            nonlocal decider
            decider = policy.start(header, self._seed)
            return decider

        flags = self._advisor.interactive_options(include_default=include_default)
        names_call_sites = self._settings.record_call_sites and self._advisor == INLINING
        result = compile_interactively(
            self._command([*flags, *(remarks.options(str(self._remarks_path)) if names_call_sites else ())]),
            channel_flag=self._advisor.channel_base,
            start_deciding=start,
            scratch=self._scratch,
            timeout_s=self._settings.timeout_s,
            memory_bytes=self._settings.memory_bytes,
        )
        self._account(result.process)
        if result.header is None or decider is None or not result.advice:
            return None, result
        sites: remarks.CallSites | FunctionOfDecisions | None = None
        if names_call_sites:
            sites = self._call_sites(len(result.advice))
        elif self._advisor != INLINING:
            sites = result.functions()
        advice = np.array(result.advice, result.header.advice.dtype)
        return Trajectory(result.header, result.observations, advice, decider.log_probs(), sites), result

    def _call_sites(self, num_decisions: int) -> remarks.CallSites:
        call_sites = remarks.parse_call_sites(self._remarks_path.read_bytes())
        if len(call_sites.callers) != num_decisions:
            raise ProtocolError(
                f"{self._module.name}: {num_decisions} decisions but {len(call_sites.callers)} remarks about them"
            )
        return call_sites

    def _command(self, flags: list[str]) -> list[str]:
        if self._problem.remark_pass is not None:
            flags = [*flags, *remarks.options(str(self._remarks_path), self._problem.remark_pass)]
        return compile_command(
            self._toolchain.clang, self._module.options(), self._module.bitcode_path, self.object_path, flags
        )

    def _account(self, process: processes.ProcessResult) -> None:
        self.cpu_s += process.cpu_s
        if not process.ok:
            reason = explain_failure(process.stderr_tail)
            if reason is not None:
                raise CorpusError(f"{self._module.bitcode_path}: {reason}")
            raise CompileError(f"{self._module.name}: {process.describe()}")
