"""Decisions made by a compiler in development mode (built with TFLite), which evaluates models and logs by itself.

Without a model it logs what its own heuristic decides. A network's model (`policies.development_model`) is in the
`PolicyFolder`; the host writes it by `export.formats`, which needs TensorFlow. In the training log, an observation
has the features, the model's other outputs, the default decision (inlining only) and last the decision.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from pathlib import Path

from compiler_opt.collect.backends import Backend
from compiler_opt.collect.backends.training_log import logged_trajectory
from compiler_opt.collect.compilation import Compilation
from compiler_opt.collect.rollout import Trajectory
from compiler_opt.errors import PolicyError, ProtocolError, ToolchainError
from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.development_model import OUTPUT_SPEC_FILE, TFLITE_FILE, with_seed
from compiler_opt.policies.policy import Policy
from compiler_opt.spaces.learned_policy import LearnedPolicy


class DevelopmentBackend(Backend):
    """Takes the default and networks with a TFLite model.

    Under `auto` only the default: networks use another random stream here, and must be converted first.
    """

    def prepare(self, compilation: Compilation, policy: Policy) -> Callable[[], Trajectory | None] | None:
        if not compilation.may_use("development"):
            return None
        support = compilation.support
        if compilation.settings.backend != "development":
            if not (policy.is_default and support.logs_default):
                return None
            return functools.partial(_compile, compilation, policy, None)
        if not support.development:
            raise ToolchainError(
                f"{compilation.toolchain.clang}: has no development mode for {support.problem} (it was built without "
                "TFLite); use the backend auto"
            )
        if policy.is_default:
            if not support.logs_default:
                raise PolicyError(
                    f"{compilation.toolchain.clang}: logs its own {support.problem} decisions without their features; "
                    "use the backend auto"
                )
            return functools.partial(_compile, compilation, policy, None)
        if not (isinstance(policy, LearnedPolicy) and policy.runs_in_development_mode):
            raise PolicyError(f"policy {policy.name!r} cannot decide as a TFLite model; use the backend auto")
        assert support.advice is not None
        policy.check_header(Header(support.features, support.advice))
        model = compilation.policies.path(policy)
        if not (model / TFLITE_FILE).is_file():
            raise PolicyError(
                f"policy {policy.name!r}: no TFLite model of it was made (see export/formats.py); use the backend auto"
            )
        return functools.partial(_compile, compilation, policy, model)


def _compile(compilation: Compilation, policy: Policy, model: Path | None) -> Trajectory | None:
    path = compilation.log_path
    path.unlink(missing_ok=True)
    with _seeded(compilation, policy, model) as seeded:
        flags = compilation.advisor.development_options(path, seeded)
        compilation.compile(flags, call_sites=compilation.names_call_sites)
    if not path.is_file():
        raise ProtocolError(f"{compilation.module.name}: the compiler left no training log")
    specs = compilation.default_trace_features if policy.needs_default else compilation.support.features
    return logged_trajectory(compilation, policy, specs)


@contextlib.contextmanager
def _seeded(compilation: Compilation, policy: Policy, model: Path | None) -> Iterator[Path | None]:
    """The folder of a model that samples with the compilation's seed, if it samples."""
    if model is None or not isinstance(policy, LearnedPolicy) or not policy.temperature:
        yield model
        return
    folder = compilation.scratch / "model"
    contents = {
        TFLITE_FILE: with_seed((model / TFLITE_FILE).read_bytes(), compilation.seed),
        OUTPUT_SPEC_FILE: (model / OUTPUT_SPEC_FILE).read_bytes(),
    }
    folder.mkdir()
    try:
        for name, content in contents.items():
            (folder / name).write_bytes(content)
        yield folder
    finally:
        for name in contents:
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()


BACKEND = DevelopmentBackend()
