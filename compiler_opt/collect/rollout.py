"""One compilation under a policy, measured: the only way in which anything here compiles a module.

    rollout(module, policy, problem, toolchain) -> Rollout(trajectory, measurement, cost in CPU seconds, failure?)

Default traces, training, evaluation and imitation all call it. How decisions get into the compiler is the business of
`channel_backend`, `plugin_backend` and `development_backend`; `compilation` has what they share.
"""

import contextlib
import dataclasses
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from compiler_opt.collect import channel_backend, development_backend, plugin_backend
from compiler_opt.collect.compilation import Compilation, EmbeddedPolicy
from compiler_opt.collect.compilation import DefaultPolicy as DefaultPolicy
from compiler_opt.collect.compilation import RolloutSettings as RolloutSettings
from compiler_opt.collect.trajectory import Trajectory as Trajectory
from compiler_opt.corpus.module import Module
from compiler_opt.errors import CompileError, CorpusError, ProtocolError, ResourceError
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.policy import Policy
from compiler_opt.problems.problem import Problem


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
      is_transient: whether it failed for want of memory, disk or processes: another time it may succeed.
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
    is_transient: bool = False


def rollout(
    module: Module,
    policy: Policy | None,
    problem: Problem,
    toolchain: Toolchain,
    *,
    scratch: Path | None = None,
    seed: int = 0,
    settings: RolloutSettings = RolloutSettings(),
    keep_object: Path | None = None,
    scratch_bytes: int | None = None,
) -> Rollout:
    """Compiles a module once and measures the object.

    Args:
      module: what to compile.
      policy: who decides; None compiles plainly, without advisor and channel.
      problem: what is decided and measured.
      toolchain: the compiler.
      scratch: a directory of the caller's own, in which nothing of the compilation stays; None makes one.
      seed: for a policy that samples.
      settings: limits.
      keep_object: where to copy the object to.
      scratch_bytes: what the compiler may write there; None for no limit but that of each file.

    Returns:
      the rollout; a module that cannot be compiled has a `failure`.

    Raises:
      PolicyError: the policy does not fit the compiler.
      ToolchainError: the compiler cannot be started or lacks the channel.
    """
    if scratch is None:
        with scratch_directory() as own:
            return rollout(
                *(module, policy, problem, toolchain),
                scratch=own,
                seed=seed,
                settings=settings,
                keep_object=keep_object,
                scratch_bytes=scratch_bytes,
            )
    compilation = Compilation(module, problem, toolchain, scratch, seed, settings, scratch_bytes)
    host_cpu_s = time.process_time()
    trajectory, measurement, failure, is_transient = None, None, None, False
    try:
        with _tidied(scratch, keep_object):
            trajectory = _run(compilation, policy)
            measurement = problem.measure(compilation.object_path, compilation.measured_remarks())
            if keep_object is not None:
                keep_object.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(compilation.object_path, keep_object)
    except (CompileError, CorpusError, ProtocolError, ResourceError) as error:
        failure = str(error) if module.name in str(error) else f"{module.name}: {error}"
        is_transient = isinstance(error, ResourceError)
    except (MemoryError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in ResourceError.ERRNOS:
            raise
        failure, is_transient = f"{module.name}: out of memory or disk: {error}", True
    return Rollout(
        module=module.name,
        project=module.project,
        policy=policy_name(policy),
        seed=seed,
        trajectory=trajectory,
        measurement=measurement,
        cpu_s=compilation.cpu_s,
        host_cpu_s=time.process_time() - host_cpu_s,
        failure=failure,
        is_transient=is_transient,
    )


def policy_name(policy: Policy | None) -> str:
    """What a rollout calls the policy."""
    return policy.name if policy is not None else "compiler"


@contextlib.contextmanager
def _tidied(scratch: Path, kept: Path | None) -> Iterator[None]:
    """Removes the files that are new in a folder, also what a killed compiler has left; not one, and not policies."""
    before = set(scratch.iterdir())
    try:
        yield
    finally:
        for path in scratch.iterdir():
            if path not in before and path != kept and path.suffix != plugin_backend.NATIVE_SUFFIX:
                with contextlib.suppress(OSError):
                    path.unlink()


def _run(compilation: Compilation, policy: Policy | None) -> Trajectory | None:
    """Compiles by the backend that fits, or that the settings ask for."""
    if policy is None:
        compilation.compile([])
        return None
    if isinstance(policy, EmbeddedPolicy):
        compilation.compile_by_embedded_model()
        return None
    backend = compilation.settings.backend
    if compilation.uses_opt or compilation.embeddings is not None:
        return channel_backend.run(compilation, policy)
    if backend in ("auto", "plugin"):
        plugin = plugin_backend.prepare(compilation, policy)
        if plugin is not None:
            return plugin_backend.run(compilation, policy, plugin)
    if backend in ("auto", "development"):
        development = development_backend.prepare(compilation, policy)
        if development is not None:
            return development_backend.run(compilation, policy, development)
    return channel_backend.run(compilation, policy)
