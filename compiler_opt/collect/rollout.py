"""One compilation under a policy, measured: the only way in which anything here compiles a module.

    rollout(module, policy, problem, toolchain) -> Rollout(trajectory, measurement, cost in CPU seconds, failure?)

Default traces, training, evaluation and imitation all call it.
"""

import dataclasses
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np

from compiler_opt.corpus.command_line import compile_command
from compiler_opt.corpus.description import Module, explain_failure
from compiler_opt.errors import CompileError, CorpusError, PolicyError, ProtocolError
from compiler_opt.llvm import processes, remarks
from compiler_opt.llvm.advisors import ADVISORS
from compiler_opt.llvm.interactive import InteractiveResult, compile_interactively
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.policy import Decider, FeaturePolicy, Policy, ReplayPolicy
from compiler_opt.problems.problem import Problem


@dataclasses.dataclass(frozen=True)
class RolloutSettings:
    """Limits of one compilation.

    Attributes:
      timeout_s: wall-clock seconds; a compilation that takes longer is a failure.
      memory_bytes: address space of the compiler.
      record_call_sites: also learn who calls whom (costs some 10% of the compilation).
    """

    timeout_s: float = 120.0
    memory_bytes: int = processes.DEFAULT_MEMORY_BYTES
    record_call_sites: bool = False


@dataclasses.dataclass(frozen=True)
class Trajectory:
    """The decisions of one compilation, T of them.

    Attributes:
      header: what an observation consists of.
      observations: T observations as raw bytes.
      advice: `[T]`, int64 or float32 as the problem has it.
      log_probs: `[T]` float32 log probability of each advice, None unless the policy sampled.
      call_sites: who calls whom, None unless asked for.
    """

    header: Header
    observations: bytes
    advice: np.ndarray
    log_probs: np.ndarray | None
    call_sites: remarks.CallSites | None

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
        if problem.default_feature is None:
            raise PolicyError(f"{problem.name}: the compiler does not tell its own decision")
        super().__init__(problem.default_feature, name="default")


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
        measurement = problem.measure(compilation.object_path)
        if keep_object is not None:
            keep_object.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(compilation.object_path, keep_object)
    except (CompileError, CorpusError, ProtocolError) as error:
        failure = str(error) if module.name in str(error) else f"{module.name}: {error}"
    finally:
        compilation.object_path.unlink(missing_ok=True)
        compilation.remarks_path.unlink(missing_ok=True)
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
        self.remarks_path = scratch / "remarks.yaml"
        self.cpu_s = 0.0
        self._module = module
        self._policy = policy
        self._toolchain = toolchain
        self._support = toolchain.require(problem.name)
        self._advisor = ADVISORS[problem.name]
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
            result = processes.run(
                self._command([]), timeout_s=self._settings.timeout_s, memory_bytes=self._settings.memory_bytes
            )
            self._account(result)
            return None
        if policy.needs_default and self._support.default_in_callee_slot:
            return self._replayed_default()
        trajectory, _ = self._converse(policy, include_default=policy.needs_default)
        return trajectory

    def _replayed_default(self) -> Trajectory | None:
        """On a compiler that overwrites a feature with the default decision: first the decisions, then the features."""
        slot = self._problem.default_slot
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
        record_call_sites = self._settings.record_call_sites
        result = compile_interactively(
            self._command([*flags, *(remarks.options(str(self.remarks_path)) if record_call_sites else ())]),
            channel_flag=self._advisor.channel_base,
            start_deciding=start,
            scratch=self._scratch,
            timeout_s=self._settings.timeout_s,
            memory_bytes=self._settings.memory_bytes,
        )
        self._account(result.process)
        if result.header is None or decider is None or not result.advice:
            return None, result
        call_sites = remarks.parse_call_sites(self.remarks_path.read_bytes()) if record_call_sites else None
        if call_sites is not None and len(call_sites.callers) != len(result.advice):
            raise ProtocolError(
                f"{self._module.name}: {len(result.advice)} decisions but {len(call_sites.callers)} remarks about them"
            )
        advice = np.array(result.advice, result.header.advice.dtype)
        return Trajectory(result.header, result.observations, advice, decider.log_probs(), call_sites), result

    def _command(self, flags: list[str]) -> list[str]:
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
