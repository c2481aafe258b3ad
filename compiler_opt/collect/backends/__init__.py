"""How a policy's decisions get into the compiler: one module here for each of `NAMES`, with a `BACKEND`.

host, once per policy:      for backend in installed(): backend.write_policy(policy, ...)
worker, each compilation:   for backend in installed():
                                compile = backend.prepare(compilation, policy)
                                if compile is not None:
                                    return compile()
"""

import abc
import functools
import importlib
from collections.abc import Callable, Sequence

from compiler_opt.collect.compilation import Compilation
from compiler_opt.collect.policy_folder import PolicyFolder
from compiler_opt.collect.rollout_settings import AUTO, NAMES, RolloutSettings
from compiler_opt.collect.trajectory import Trajectory
from compiler_opt.decisions.decision import Decision
from compiler_opt.errors import PolicyError
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.policy import Policy
from compiler_opt.spaces.learned_policy import LearnedPolicy


class Backend(abc.ABC):
    """One way to compile under a policy; has no state."""

    def write_policy(
        self,
        policy: LearnedPolicy,
        decision: Decision,
        toolchain: Toolchain,
        policies: PolicyFolder,
        settings: RolloutSettings,
    ) -> None:
        """Writes the files that compilations under a policy read, so that workers need not; by default none.

        Raises:
          OSError: the disk is full.
          PolicyError: the settings insist on this backend, and it does not apply.
        """
        del policy, decision, toolchain, policies, settings

    @abc.abstractmethod
    def prepare(self, compilation: Compilation, policy: Policy) -> Callable[[], Trajectory | None] | None:
        """Returns a function that compiles under the policy, or None if this backend does not apply.

        The function returns the trajectory, None if the module has nothing to decide, and raises CompileError,
        CorpusError or ProtocolError if the module cannot be compiled.

        Raises:
          PolicyError, ToolchainError: the settings insist on this backend, and it does not apply.
        """


@functools.cache
def installed() -> tuple[Backend, ...]:
    """All backends, in the order of `NAMES`."""
    return tuple(importlib.import_module(f"{__name__}.{name}").BACKEND for name in NAMES)


def compile_under(
    compilation: Compilation, policy: Policy, backends: Sequence[Backend] | None = None
) -> Trajectory | None:
    """Compiles by the first backend that applies; see `Backend.prepare` and `Toolchain.require` for the errors."""
    compilation.toolchain.require(compilation.advisor.problem)
    for backend in installed() if backends is None else backends:
        compile_module = backend.prepare(compilation, policy)
        if compile_module is not None:
            return compile_module()
    raise PolicyError(f"policy {policy.name!r}: no backend takes it; use the backend {AUTO}")
