"""Decisions made by a compiler in development mode (built with TFLite), which evaluates models and logs by itself.

Without a model it logs what its own heuristic decides. A network's model is in the `PolicyFolder`; the host writes it,
which needs TensorFlow:

    model.tflite       made by `spaces.heads.tflite`
    output_spec.json   a list of {"logging_name", "tensor_spec"}: the decision first, then other outputs to log

In the training log, an observation has the features, the model's other outputs, the default decision (inlining only)
and last the decision. The register allocator's plugin writes such a log, too.

A model of a sampling policy has its own random numbers. TFLite keeps their state in the interpreter, of which LLVM has
one per compilation, and initialises it from two numbers in the model. The converter writes marks in their place, which
workers replace by the seed of a compilation, without TensorFlow. The samples differ from those of `policy.uniforms`.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from compiler_opt.collect.backends import Backend
from compiler_opt.collect.compilation import Compilation
from compiler_opt.collect.policy_folder import PolicyFolder
from compiler_opt.collect.rollout_settings import RolloutSettings
from compiler_opt.collect.trajectory import Trajectory
from compiler_opt.decisions.decision import Decision, Sites
from compiler_opt.errors import PolicyError, ProtocolError, ToolchainError
from compiler_opt.llvm.advisors import (
    INLINING,
    LOGITS,
    OUTPUT_SPEC_FILE,
    REBUILT_DEFAULT,
    SEED_MARKS,
    TFLITE_FILE,
    rebuilds_default,
)
from compiler_opt.llvm.interactive import functions_of
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.llvm.training_log import Header
from compiler_opt.llvm.training_log_reader import TrainingLog, read_log
from compiler_opt.policies.policy import Policy
from compiler_opt.spaces.learned_policy import LearnedPolicy
from compiler_opt.tensor_spec import TensorSpec
from compiler_opt.tensorflow_loading import load_tensorflow


class DevelopmentBackend(Backend):
    """Takes the default and networks with a TFLite model.

    Under `auto` only the default: networks use another random stream here.
    """

    def write_policy(
        self,
        policy: LearnedPolicy,
        decision: Decision,
        toolchain: Toolchain,
        policies: PolicyFolder,
        settings: RolloutSettings,
    ) -> None:
        """Converts the policy to TFLite, if LLVM's development mode is to decide by it. Raises PolicyError."""
        # `prepare` refuses other policies, and compilers without a development mode.
        if settings.backend != "development" or not policy.runs_in_development_mode:
            return
        support = toolchain.require(decision.advisor.problem)
        if not support.development:
            return
        check_representable(policy)
        if (policies.path(policy) / TFLITE_FILE).exists():
            return
        load_tensorflow()
        from compiler_opt.spaces.heads.tflite import tflite_files

        assert support.advice is not None
        files = tflite_files(policy.weights, decision.action_space, support.advice.name, temperature=policy.temperature)
        # The model last: compilations look for it.
        for name in (OUTPUT_SPEC_FILE, TFLITE_FILE):
            policies.file(policy, name, functools.partial(files.__getitem__, name))

    def prepare(self, compilation: Compilation, policy: Policy) -> Callable[[], Trajectory | None] | None:
        if not compilation.may_use("development"):
            return None
        support = compilation.support
        if compilation.settings.backend != "development" and not (policy.is_default and support.logs_default):
            return None
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
        check_representable(policy)
        if not (isinstance(policy, LearnedPolicy) and policy.runs_in_development_mode):
            raise PolicyError(f"policy {policy.name!r} cannot decide as a TFLite model; use the backend auto")
        assert support.advice is not None
        policy.check_header(Header(support.features, support.advice))
        model = compilation.policies.path(policy)
        if not (model / TFLITE_FILE).is_file():
            raise PolicyError(
                f"policy {policy.name!r}: no TFLite model of it was made, as a `WorkerPool` does; use the backend auto"
            )
        return functools.partial(_compile, compilation, policy, model)


def check_representable(policy: Policy) -> None:
    """Raises PolicyError if the policy needs earlier decisions, or a default that a TFLite model cannot rebuild."""
    if isinstance(policy, LearnedPolicy) and policy.weights.is_recurrent:
        raise PolicyError(
            f"policy {policy.name!r}: has a recurrent layer (LSTM), but LLVM does not tell a TFLite model where a "
            "module begins; use the backend auto, or a policy that was trained with network.lstm_units = 0"
        )
    if policy.needs_default and isinstance(policy, LearnedPolicy) and not rebuilds_default(policy.weights.features):
        raise PolicyError(
            f"policy {policy.name!r}: has the margin {policy.weights.margin:g}, but a TFLite model cannot rebuild the "
            f"default decision without the features {' and '.join(REBUILT_DEFAULT)}; use the backend auto, or a policy "
            "with margin 0 (--margin=0)"
        )


def with_seed(model: bytes, seed: int) -> bytes:
    """Sets the seed (its lowest 64 bits) of a sampling model, which has marks as converted.

    Raises:
      PolicyError: the model does not have each mark once.
    """
    for mark, value in zip(SEED_MARKS, (seed % (1 << 64), 1), strict=True):
        content = mark.to_bytes(8, "little")
        if model.count(content) != 1:
            raise PolicyError(
                f"TFLite: expected one mark for a seed in the model, found {model.count(content)}; convert the policy "
                "again, with the version of TensorFlow that ./bootstrap.sh installs"
            )
        model = model.replace(content, value.to_bytes(8, "little"))
    return model


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
    """The folder of the model, which samples, if at all, with the compilation's seed."""
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


def logged_trajectory(compilation: Compilation, policy: Policy, specs: tuple[TensorSpec, ...]) -> Trajectory | None:
    """Reads `compilation.log_path`, which has the compiler's features first and the decision last.

    The trajectory's observations have the features `specs`. Returns None if there are no decisions.

    Raises:
      ProtocolError: the log is damaged, or another compiler's.
    """
    log = read_log(compilation.log_path)
    if log.left_bytes:
        raise ProtocolError(
            f"{compilation.module.name}: the training log is cut off: after {len(log)} decisions {log.left_bytes} "
            "bytes are not a whole record (disk full?)"
        )
    support = compilation.support
    assert support.advice is not None
    _check_tensors(compilation, log, (*support.features, support.advice))
    if not len(log):
        return None
    advice = _column(compilation, log, support.advice.name).reshape(-1)
    log_probs = None
    if isinstance(policy, LearnedPolicy) and policy.temperature:
        logits = _column(compilation, log, LOGITS).reshape(len(log), -1)
        log_probs = policy.logged_log_probs(advice, logits)
    sites: Sites | None = None
    if compilation.names_call_sites:
        sites = compilation.call_sites(log.columns([spec.name for spec in support.features]), advice)
    elif compilation.advisor != INLINING:
        sites = functions_of(log.contexts, len(log))
    header, observations = Header(specs, support.advice), _observations(log, specs)
    return Trajectory(header, observations, advice, log_probs, sites, outcomes=_outcomes(log))


def _check_tensors(compilation: Compilation, log: TrainingLog, expected: tuple[TensorSpec, ...]) -> None:
    """Raises ProtocolError unless the log has the compiler's features first and its decision last."""
    name, num_features = compilation.module.name, len(expected) - 1
    for spec, found in zip(expected, (*log.features[:num_features], log.features[-1]), strict=False):
        if found != spec:
            raise ProtocolError(
                f"{name}: training log: expected the tensor {spec.to_json()}, found {found.to_json()}: another "
                "compiler than the one probed wrote the log"
            )
    if len(log.features) <= num_features:
        raise ProtocolError(
            f"{name}: training log: expected {num_features} features and the decision, found "
            f"{len(log.features)} tensors"
        )


def _column(compilation: Compilation, log: TrainingLog, name: str) -> np.ndarray:
    """`[T, *shape]` of one tensor."""
    try:
        return log.columns([name])[name]
    except KeyError:
        raise ProtocolError(
            f"{compilation.module.name}: training log: expected the tensor {name!r}, found none"
        ) from None


def _observations(log: TrainingLog, specs: tuple[TensorSpec, ...]) -> bytes:
    """The bytes of the given tensors of each observation, in the order of `specs`."""
    places, begin = {}, 0
    for spec in log.features:
        places[spec.name] = slice(begin, begin + spec.num_bytes)
        begin += spec.num_bytes
    missing = [spec.name for spec in specs if spec.name not in places]
    if missing:
        raise ProtocolError(f"training log: expected the tensors {', '.join(missing)}, found none")
    return np.concatenate([log.observations[:, places[spec.name]] for spec in specs], axis=1).tobytes()


def _outcomes(log: TrainingLog) -> np.ndarray | None:
    """`[T]` float64, see `Trajectory`."""
    if log.score is None:
        return None
    outcomes = np.full(len(log), np.nan)
    if len(log.outcomes):
        outcomes[log.outcome_of] = log.outcomes.reshape(len(log.outcomes), -1)[:, 0]
    return outcomes


BACKEND = DevelopmentBackend()
