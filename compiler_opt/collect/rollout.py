"""Compiles one module under a policy and measures the object.

    rollout(module, policy, problem, toolchain) -> Rollout(trajectory, measurement, cost in CPU seconds, failure?)

Nothing else here compiles modules: default traces, training, evaluation and imitation all call it. `collect.backends`
are the ways in which decisions get into the compiler. A module that fails is counted and logged; a run stops only if
most modules fail (`check_failures`, `FailureWatch`).
"""

import contextlib
import dataclasses
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from compiler_opt.collect.backends import compile_under
from compiler_opt.collect.compilation import Compilation
from compiler_opt.collect.compilation import DefaultPolicy as DefaultPolicy
from compiler_opt.collect.compilation_files import CompilationFiles
from compiler_opt.collect.policy_folder import PolicyFolder
from compiler_opt.collect.rollout_settings import RolloutSettings as RolloutSettings
from compiler_opt.collect.trajectory import Trajectory
from compiler_opt.corpus.module import Module
from compiler_opt.errors import CompileError, CorpusError, ProtocolError, ResourceError
from compiler_opt.files import shown
from compiler_opt.llvm.scratch import remove_folder, scratch_directory
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.objectives.objective import Measurement
from compiler_opt.policies.policy import Policy
from compiler_opt.problem import CompileTask, Problem

T_co = TypeVar("T_co", covariant=True)

_HOPELESS = 20
"""If this many compilations fail and none succeeds, the others will fail too."""


@dataclasses.dataclass(frozen=True)
class Rollout(Generic[T_co]):
    """The result of one compilation.

    Attributes:
      module: the module's name.
      project: its project's name.
      policy: the policy's name; `compiler` for a plain compilation.
      seed: of the policy's samples.
      trajectory: None for a plain compilation, or if the module has nothing to decide.
      measurement: what the problem reads from the object; None after a failure.
      cpu_s: CPU seconds of the compiler.
      host_cpu_s: CPU seconds of this process for the same rollout.
      read_cpu_s: those among them that reading the object took.
      failure: why there is no measurement; one line.
      is_transient: whether it failed for lack of memory, disk or processes, or while its worker was stopped and
        continued, and may succeed another time.
    """

    module: str
    project: str
    policy: str
    seed: int
    trajectory: Trajectory | None = None
    measurement: T_co | None = None
    cpu_s: float = 0.0
    host_cpu_s: float = 0.0
    failure: str | None = None
    is_transient: bool = False
    read_cpu_s: float = 0.0

    def __repr__(self) -> str:
        result = f"{len(self.trajectory or ())} decisions" if self.failure is None else f"failure={shown(self.failure)}"
        return f"Rollout({self.module!r}, policy={self.policy!r}, {result}, {self.cpu_s:.2f} CPU s)"


def rollout(
    module: Module,
    policy: Policy | None,
    problem: Problem[Measurement, Any] | CompileTask[Measurement],
    toolchain: Toolchain,
    *,
    scratch: Path | str | None = None,
    seed: int = 0,
    settings: RolloutSettings = RolloutSettings(),
    keep_object: Path | str | None = None,
    scratch_bytes: int | None = None,
    policies: PolicyFolder | None = None,
    compilation_files: CompilationFiles | None = None,
) -> Rollout[Measurement]:
    """Compiles a module once and measures the object.

    Args:
      module: what to compile.
      policy: who decides; None compiles plainly, without advisor and channel.
      problem: what is decided and measured.
      toolchain: the compiler.
      scratch: a folder that no other process uses, from which files of the compilation are removed; None makes one.
      seed: for a policy that samples.
      settings: limits and the backend.
      keep_object: where to copy the object to.
      scratch_bytes: limit on all files that the compiler writes together; None for only the limit on each.
      policies: where backends look for what the policy needs, and write it if it is missing; by default in `scratch`.
      compilation_files: where to keep the compilation's files; None removes them.

    Returns:
      the rollout; if the module cannot be compiled, it has a `failure`.

    Raises:
      PolicyError: the policy does not fit the compiler.
      ToolchainError: the compiler cannot be started or lacks the channel.
    """
    kept = None if keep_object is None else Path(keep_object)
    with scratch_directory() if scratch is None else contextlib.nullcontext(Path(scratch)) as folder:
        compilation = Compilation(module, problem.task, toolchain, folder, seed, settings, scratch_bytes, policies)
        host_cpu_s = time.process_time()
        trajectory, measurement, failure, is_transient = None, None, None, False
        read_cpu_s = 0.0
        keeping = (
            contextlib.nullcontext()
            if compilation_files is None
            else compilation_files.keeping(compilation, policy_name(policy))
        )
        try:
            with _tidied(folder, kept), keeping:
                if policy is None:
                    compilation.compile([])
                else:
                    trajectory = compile_under(compilation, policy)
                before_cpu_s = time.process_time()
                measurement = problem.task.reader.read(compilation.object_path, compilation.measured_remarks())
                read_cpu_s = time.process_time() - before_cpu_s
                if kept is not None:
                    kept.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(compilation.object_path, kept)
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
            read_cpu_s=read_cpu_s,
        )


def policy_name(policy: Policy | None) -> str:
    """The policy's name in a rollout."""
    return policy.name if policy is not None else "compiler"


def check_failures(failures: Mapping[str, str], attempts: int, what: str = "modules") -> None:
    """Raises CorpusError if more than half of the attempts failed.

    The message gives the first of `failures`, the reasons by module; `what` is the plural noun in it.
    """
    if 2 * len(failures) > attempts:
        raise CorpusError(
            f"{len(failures)} of {attempts} {what} failed to compile; the first: {next(iter(failures.values()))}"
        )


class FailureWatch:
    """Counts failures as modules are done; stops early if the first ones all fail.

    watch = FailureWatch(len(modules))
    for rollout in ...:
        watch.add(rollout.module, rollout.failure)
    watch.finish()
    """

    def __init__(self, num_modules: int, what: str = "modules"):
        self._num_modules = num_modules
        self._what = what
        self._failures: dict[str, str] = {}
        self._done = 0

    def add(self, module: str, failure: str | None) -> None:
        """Counts a module; raises CorpusError if the first ones have all failed."""
        self._done += 1
        if failure is not None:
            self._failures[module] = failure
        if len(self._failures) == self._done >= min(_HOPELESS, self._num_modules):
            self.finish()

    def finish(self) -> None:
        """Raises CorpusError if more than half of the modules failed."""
        check_failures(self._failures, self._done, self._what)


_POLICIES = "policies"  # of `Compilation`, for the next rollouts, too


@contextlib.contextmanager
def _tidied(scratch: Path, kept: Path | None) -> Iterator[None]:
    """Removes what is new in a folder, including that of a killed compiler, except `kept` and policies.

    Folders, too: one that is named as the next object would make the next modules fail.
    """
    before = set(scratch.iterdir())
    try:
        yield
    finally:
        for path in scratch.iterdir():
            if path in before or path.name == _POLICIES or (kept is not None and path in (kept, *kept.parents)):
                continue
            if path.is_dir() and not path.is_symlink():
                remove_folder(path)
            else:
                with contextlib.suppress(OSError):
                    path.unlink()
