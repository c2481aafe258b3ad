"""Default traces: the decisions of the compiler's own heuristic over a corpus, from which policies are cloned.

On disk, `TRACE.meta.json` beside a trace has its features, and the compiler and corpus that it comes from. The
decisions are read and written by `rl.trace_files`, which needs TensorFlow.
"""

import dataclasses
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import msgspec
import numpy as np

from compiler_opt.checked_values import Json, NonNegativeInt, convert, read_json
from compiler_opt.collect.rollout import DefaultPolicy, FailureWatch, Rollout, RolloutSettings
from compiler_opt.collect.workers import Job, WorkerPool
from compiler_opt.corpus.module import Module
from compiler_opt.decisions.decision import Decision
from compiler_opt.errors import ConfigError, ProtocolError
from compiler_opt.files import shown
from compiler_opt.objectives.objective import Measurement
from compiler_opt.policies.policy import Policy
from compiler_opt.problem import AnyProblem
from compiler_opt.tensor_spec import TensorSpec

FORMAT = 1
REMAKE = "make the trace again with compiler_opt generate_default_trace"
WHOLE_MODULE = "default"
"""The identifier of a context that is all of a module."""

_MAX_META_BYTES = 1 << 26


@dataclasses.dataclass(frozen=True)
class TraceContext:
    """The T decisions of one context: a module or, in other tools' traces, a function.

    Attributes:
      module: the module's name.
      project: its project's name.
      identifier: of the context in the module; `WHOLE_MODULE` if it is all of the module.
      features: specs of `values`, in the compiler's order, with the shape of one decision.
      values: by feature `[T, *shape]`.
      advice: spec of `action`.
      action: `[T]`.
      reward: `[T]` float32; 0 for the default's decisions.
    """

    module: str
    project: str
    identifier: str
    features: tuple[TensorSpec, ...]
    values: Mapping[str, np.ndarray]
    advice: TensorSpec
    action: np.ndarray
    reward: np.ndarray


def sample_modules(modules: Sequence[Module], rate: float, seed: int) -> list[Module]:
    """Draws a share of the modules at random, at least one; keeps their order.

    Raises:
      ConfigError: the rate is not in (0, 1].
    """
    if not 0 < rate <= 1:
        raise ConfigError(f"sampling rate: expected a number over 0 and at most 1, found {rate}")
    count = max(1, round(rate * len(modules)))
    chosen = random.Random(seed).sample(range(len(modules)), count)
    return [modules[index] for index in sorted(chosen)]


def default_policy(problem: AnyProblem) -> Policy:
    """The policy that takes the compiler's own decisions, as far as it sends or shows them."""
    return problem.decision.default_policy or DefaultPolicy(problem)


def default_trace(
    modules: Iterable[Module],
    problem: AnyProblem,
    pool: WorkerPool[Measurement],
    settings: RolloutSettings = RolloutSettings(),
) -> Iterator[Rollout[Measurement]]:
    """Compiles each module with the compiler's own decisions, and records them; see `rollouts`.

    Raises:
      PolicyError: the compiler does not send its own decisions for this problem.
    """
    return rollouts(modules, default_policy(problem), pool, settings)


def rollouts(
    modules: Iterable[Module],
    policy: Policy,
    pool: WorkerPool[Measurement],
    settings: RolloutSettings = RolloutSettings(),
    seed: int = 0,
) -> Iterator[Rollout[Measurement]]:
    """Yields a rollout per module as they are done, including failures.

    Raises:
      CorpusError: most modules fail; the message gives the first reason.
    """
    jobs = [Job(module, policy, seed, settings) for module in modules]
    watch = FailureWatch(len(jobs))
    for _, rollout in pool.rollouts(jobs):
        watch.add(rollout.module, rollout.failure)
        yield rollout
    watch.finish()


def contexts(rollout: Rollout[object], decision: Decision) -> list[TraceContext]:
    """The contexts of a successful rollout; none if the module has nothing to decide."""
    trajectory = rollout.trajectory
    if trajectory is None:
        return []
    # The default decision is already the action. Policies may not observe it, unless the action space uses it.
    hidden = {decision.advisor.default_feature, decision.advisor.plugin_default_feature}
    hidden -= set(decision.action_space.optional_features)
    # LLVM puts a batch dimension of 1 in front.
    features = tuple(
        dataclasses.replace(spec, shape=spec.shape[1:] if spec.shape[:1] == (1,) else spec.shape)
        for spec in trajectory.header.features
        if spec.name not in hidden
    )
    decoded = trajectory.features()
    values = {spec.name: decoded[spec.name].reshape(len(trajectory), *spec.shape) for spec in features}
    return [
        TraceContext(
            module=rollout.module,
            project=rollout.project,
            identifier=WHOLE_MODULE,
            features=features,
            values=values,
            advice=dataclasses.replace(trajectory.header.advice, shape=()),
            action=trajectory.advice,
            reward=np.zeros(len(trajectory), np.float32),
        )
    ]


def meta_path(path: Path) -> Path:
    """The path of a trace's description."""
    return path.with_name(f"{path.name}.meta.json")


class _Description(msgspec.Struct):
    features: list[Json]
    advice: Json
    num_contexts: NonNegativeInt
    num_decisions: NonNegativeInt
    trace_bytes: NonNegativeInt


Describe: TypeAlias = Callable[[Path], dict[str, Json]]
"""Describes a trace that has no description, from its records; raises ProtocolError if they are no trace."""


class TraceDescription:
    """The description of a trace on disk, in one file or several.

    Attributes:
      path: the trace, or its first file.
      paths: all of its files.
      about: everything in the description of the first file.
      features: specs of the features of each decision.
      advice: spec of the decision.
      num_contexts: number of contexts.
      num_decisions: number of decisions in all contexts.
      undescribed: those of its files that have no description.
    """

    def __init__(self, path: Path, *others: Path, describe: Describe | None = None):
        """Reads the descriptions; `describe` makes one for a file that has none, as those of other tools.

        Raises:
          ProtocolError: a file or its description is missing or damaged, or they do not belong together; or two files
            have different features.
        """
        self.path, self.paths = path, (path, *others)
        self.undescribed = tuple(each for each in self.paths if each.is_file() and not meta_path(each).is_file())
        first, *rest = (_described(each, None if each not in self.undescribed else describe) for each in self.paths)
        self.about, self.features, self.advice = first.about, first.features, first.advice
        for other in rest:
            if {spec.name: spec.shape for spec in other.features} != {spec.name: spec.shape for spec in self.features}:
                raise ProtocolError(f"{other.path}: its decisions have other features than those of {path}; {REMAKE}")
            if other.about.get("problem") != self.about.get("problem"):
                raise ProtocolError(f"{other.path}: is for another problem than {path}; give traces of one problem")
        self.num_contexts = sum(each.found.num_contexts for each in (first, *rest))
        self.num_decisions = sum(each.found.num_decisions for each in (first, *rest))


class _FileDescription(NamedTuple):
    """The description of one file of a trace."""

    path: Path
    about: dict[str, Json]
    found: _Description
    features: tuple[TensorSpec, ...]
    advice: TensorSpec


def _described(path: Path, describe: Describe | None) -> _FileDescription:
    """The description of a file, as it is on disk or, with `describe`, as that makes it."""
    meta = meta_path(path)
    if describe is None:
        for file in (path, meta):
            if not file.is_file():
                raise ProtocolError(f"{file}: no such file; {REMAKE}")
        about = read_json(meta, dict[str, Json], max_bytes=_MAX_META_BYTES, error=ProtocolError, remedy=REMAKE)
        if about.get("format") != FORMAT:
            raise ProtocolError(f"{meta}: expected format {FORMAT}, found {shown(about.get('format'))}; {REMAKE}")
    else:
        about = describe(path)
    try:
        found = convert(about, _Description)
        features, advice = tuple(map(TensorSpec.from_json, found.features)), TensorSpec.from_json(found.advice)
    except (ValueError, ProtocolError) as error:
        raise ProtocolError(f"{meta}: {error}; {REMAKE}") from None
    if path.stat().st_size != found.trace_bytes:
        raise ProtocolError(
            f"{path}: expected {found.trace_bytes} bytes, found {path.stat().st_size}: trace and {meta.name} do "
            f"not belong together; {REMAKE}"
        )
    return _FileDescription(path, about, found, features, advice)
