"""What the compiler's own heuristic decides over a corpus: the examples that policies are first taught from."""

import dataclasses
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from compiler_opt.collect.failures import FailureWatch
from compiler_opt.collect.rollout import DefaultPolicy, Rollout, RolloutSettings
from compiler_opt.collect.workers import Job, WorkerPool
from compiler_opt.corpus.module import Module
from compiler_opt.errors import ConfigError
from compiler_opt.policies.policy import Policy
from compiler_opt.problems.problem import Problem
from compiler_opt.tensor_spec import TensorSpec

WHOLE_MODULE = "default"
"""The identifier of a context that is all of a module."""


@dataclasses.dataclass(frozen=True)
class TraceContext:
    """The decisions of one context: a module or, where the compiler tells them apart, a function. T decisions.

    Attributes:
      module: the module's name.
      project: its project's name.
      identifier: what within the module; `WHOLE_MODULE` for all of it.
      features: specs of `values`, in the compiler's order, each of the shape of one decision.
      values: by feature `[T, *shape]`.
      advice: spec of `action`.
      action: `[T]`, what was decided.
      reward: `[T]` float32; 0 for the default's decisions, which are what rewards are measured against.
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
    """A share of the modules, in their order; at least one.

    Raises:
      ConfigError: the rate is not over 0 and at most 1.
    """
    if not 0 < rate <= 1:
        raise ConfigError(f"sampling rate: expected a number over 0 and at most 1, found {rate}")
    count = max(1, round(rate * len(modules)))
    chosen = random.Random(seed).sample(range(len(modules)), count)
    return [modules[index] for index in sorted(chosen)]


def default_trace(
    modules: Iterable[Module], problem: Problem, pool: WorkerPool, settings: RolloutSettings = RolloutSettings()
) -> Iterator[Rollout]:
    """Compiles each module as the compiler's heuristic would have it, seeing every decision.

    Yields:
      a rollout per module, failed ones included, as they are done.

    Raises:
      CorpusError: most modules fail; the message gives the first reason.
      PolicyError: the compiler does not tell its own decisions for this problem.
    """
    return rollouts(modules, problem.default_policy or DefaultPolicy(problem), pool, settings)


def rollouts(
    modules: Iterable[Module],
    policy: Policy,
    pool: WorkerPool,
    settings: RolloutSettings = RolloutSettings(),
    seed: int = 0,
) -> Iterator[Rollout]:
    """One rollout per module, as they are done.

    Raises:
      CorpusError: most modules fail; the message gives the first reason.
    """
    jobs = [Job(module, policy, seed, settings) for module in modules]
    watch = FailureWatch(len(jobs))
    for _, rollout in pool.rollouts(jobs):
        watch.add(rollout.module, rollout.failure)
        yield rollout
    watch.finish()


def contexts(rollout: Rollout, problem: Problem) -> list[TraceContext]:
    """The contexts of a rollout that has not failed; none when its module has nothing to decide."""
    trajectory = rollout.trajectory
    if trajectory is None:
        return []
    # The default decision is the action already, and no policy may see it, unless its action space makes use of it.
    unseen = {problem.advisor.default_feature, problem.advisor.plugin_default_feature}
    unseen -= set(problem.action_space.optional_features)
    features = tuple(
        dataclasses.replace(spec, shape=decision_shape(spec))
        for spec in trajectory.header.features
        if spec.name not in unseen
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


def decision_shape(spec: TensorSpec) -> tuple[int, ...]:
    """A feature's shape without the batch dimension of 1 that LLVM puts in front."""
    return spec.shape[1:] if spec.shape[:1] == (1,) else spec.shape
