"""Decisions of the model that is built into the compiler: made there, and not logged."""

from collections.abc import Callable

from compiler_opt.collect.backends import Backend
from compiler_opt.collect.compilation import Compilation
from compiler_opt.collect.trajectory import Trajectory
from compiler_opt.decisions.decision import Decision
from compiler_opt.errors import PolicyError, ToolchainError
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.policy import Decider, Policy


class EmbeddedPolicy(Policy):
    """The model that is built into the compiler; its decisions are not recorded."""

    name = "embedded"

    def start(self, header: Header, seed: int) -> Decider:
        raise PolicyError("the compiler's built-in model decides within the compiler only; compile by `rollout`")


def check_embedded_model(toolchain: Toolchain, decision: Decision) -> None:
    """Raises ToolchainError when no model is built into the compiler."""
    if not toolchain.require(decision.advisor.problem).embedded:
        raise ToolchainError(
            f"{toolchain.clang}: no model for {decision.advisor.problem} is built into it (it cannot set up the "
            "release mode without a channel); use a clang that was built with one, see docs/deploy_forms.md"
        )


class EmbeddedBackend(Backend):
    """Takes the embedded policy under any settings, and no other policy."""

    def prepare(self, compilation: Compilation, policy: Policy) -> Callable[[], Trajectory | None] | None:
        if not isinstance(policy, EmbeddedPolicy):
            if compilation.settings.backend == "embedded":
                raise PolicyError(f"policy {policy.name!r} is not the compiler's built-in model; use the backend auto")
            return None
        check_embedded_model(compilation.toolchain, compilation.task.decision)
        return lambda: compilation.compile(compilation.advisor.embedded_options())


BACKEND = EmbeddedBackend()
