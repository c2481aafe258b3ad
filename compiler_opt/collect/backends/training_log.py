"""Reads the training log that LLVM's development mode or our plugin has written, as a trajectory."""

import numpy as np

from compiler_opt.collect.compilation import Compilation
from compiler_opt.collect.rollout import Trajectory
from compiler_opt.errors import ProtocolError
from compiler_opt.llvm.advisors import INLINING
from compiler_opt.llvm.interactive import functions_of
from compiler_opt.llvm.training_log import Header
from compiler_opt.llvm.training_log_reader import TrainingLog, read_log
from compiler_opt.policies.development_model import LOGITS
from compiler_opt.policies.policy import Policy
from compiler_opt.problems.problem import Sites
from compiler_opt.spaces.learned_policy import LearnedPolicy
from compiler_opt.tensor_spec import TensorSpec


def logged_trajectory(compilation: Compilation, policy: Policy, specs: tuple[TensorSpec, ...]) -> Trajectory | None:
    """Reads `compilation.log_path`, which has the compiler's features first and the decision last.

    Args:
      compilation: the compilation that wrote the log.
      policy: who decided.
      specs: the features of the trajectory's observations.

    Returns:
      the trajectory; None if it has no decisions.

    Raises:
      ProtocolError: the log is damaged, or another compiler's.
    """
    log = read_log(compilation.log_path)
    if log.left_bytes:
        raise ProtocolError(
            f"{compilation.module.name}: the training log is cut off: after {len(log)} decisions {log.left_bytes} "
            "bytes are not a whole record (disk full?)"
        )
    _check_tensors(compilation, log)
    return _trajectory(compilation, policy, log, specs) if len(log) else None


def _check_tensors(compilation: Compilation, log: TrainingLog) -> None:
    """Raises ProtocolError unless the log has the compiler's features first and its decision last."""
    support = compilation.support
    assert support.advice is not None
    found = (*log.features[: len(support.features)], log.features[-1])
    for expected, spec in zip((*support.features, support.advice), found, strict=False):
        if spec != expected:
            raise ProtocolError(
                f"{compilation.module.name}: training log: expected the tensor {expected.to_json()}, found "
                f"{spec.to_json()}: another compiler than the one probed wrote the log"
            )
    if len(log.features) <= len(support.features):
        raise ProtocolError(
            f"{compilation.module.name}: training log: expected {len(support.features)} features and the decision, "
            f"found {len(log.features)} tensors"
        )


def _trajectory(
    compilation: Compilation, policy: Policy, log: TrainingLog, specs: tuple[TensorSpec, ...]
) -> Trajectory:
    support = compilation.support
    assert support.advice is not None
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
