"""Decisions made by a compiler in development mode (built with TFLite), which evaluates models and logs by itself.

Without a model it logs what its own heuristic decides. A network comes as a folder (`policies.development_model`) below
`RolloutSettings.models`, by the policy's key: `export.development` makes it in the parent, since that takes
TensorFlow. In the training log an observation has the features, what else the model tells, of inlining the default
decision, and last the decision.
"""

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path

from compiler_opt.collect.compilation import Compilation
from compiler_opt.collect.logged import logged_trajectory
from compiler_opt.collect.trajectory import Trajectory
from compiler_opt.errors import PolicyError, ProtocolError, ToolchainError
from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.development_model import OUTPUT_SPEC_FILE, TFLITE_FILE, with_seed
from compiler_opt.policies.policy import Policy
from compiler_opt.spaces.learned_policy import LearnedPolicy


@dataclasses.dataclass(frozen=True)
class Prepared:
    """What it takes.

    Attributes:
      model: the folder of the policy's model; None for the compiler's own decisions.
    """

    model: Path | None


def prepare(compilation: Compilation, policy: Policy) -> Prepared | None:
    """What it takes to compile under a policy, or None when another backend is to.

    Unless the settings insist, that is all but the compiler's own decisions: a network draws otherwise here than
    elsewhere, and must be converted first.

    Raises:
      PolicyError, ToolchainError: it is not possible, and the settings insist on the development mode.
    """
    support = compilation.support
    insists = compilation.settings.backend == "development"
    if not insists:
        return Prepared(None) if policy.is_default and support.logs_default else None
    if not support.development:
        raise ToolchainError(
            f"{compilation.toolchain.clang}: has no development mode for {support.problem} (it was built without "
            "TFLite); use the backend auto"
        )
    if policy.is_default:
        if not support.logs_default:
            raise PolicyError(
                f"{compilation.toolchain.clang}: logs its own {support.problem} decisions without their features; use "
                "the backend auto"
            )
        return Prepared(None)
    if not (isinstance(policy, LearnedPolicy) and policy.runs_in_development_mode):
        raise PolicyError(f"policy {policy.name!r} cannot decide as a TFLite model; use the backend auto")
    assert support.advice is not None
    policy.check_header(Header(support.features, support.advice))
    models = compilation.settings.models
    if models is None or not (models / policy.key / TFLITE_FILE).is_file():
        raise PolicyError(
            f"policy {policy.name!r}: no TFLite model of it was made (see export/development.py); use the backend auto"
        )
    return Prepared(models / policy.key)


def run(compilation: Compilation, policy: Policy, prepared: Prepared) -> Trajectory | None:
    """Compiles in development mode and reads the log; None when there is nothing to decide.

    Raises:
      CompileError, CorpusError, ProtocolError: it fails.
      PolicyError: the model is not as converted.
    """
    path = compilation.log_path
    path.unlink(missing_ok=True)
    with _seeded(compilation, policy, prepared.model) as model:
        flags = compilation.advisor.development_options(path, model)
        compilation.compile(flags, call_sites=compilation.names_call_sites)
    if not path.is_file():
        raise ProtocolError(f"{compilation.module.name}: the compiler left no training log")
    specs = compilation.features_of_default if policy.needs_default else compilation.support.features
    return logged_trajectory(compilation, policy, specs)


@contextlib.contextmanager
def _seeded(compilation: Compilation, policy: Policy, model: Path | None) -> Iterator[Path | None]:
    """The folder of a model that draws by the compilation's seed, if it draws at all."""
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
