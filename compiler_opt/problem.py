"""Problems: pairs of a decision and an objective. Those that ship are in the folders of `decisions/`, by name."""

import dataclasses
import importlib
import importlib.metadata
import pkgutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np

from compiler_opt.checked_values import Json
from compiler_opt.decisions.decision import Decision, Sites
from compiler_opt.errors import ConfigError, PolicyError
from compiler_opt.objectives.objective import Context, Measurement, Objective, Reader
from compiler_opt.policies.policy import Policy
from compiler_opt.policies.pretrained_index import policy_folder
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.learned_policy import LearnedPolicy

_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True)
class CompileTask(Generic[Measurement]):
    """What a worker knows of a problem: what is decided, and what is read from an object. Picklable."""

    decision: Decision
    reader: Reader[Measurement]

    @property
    def task(self) -> "CompileTask[Measurement]":
        """Itself, as `Problem.task`."""
        return self


@dataclasses.dataclass(frozen=True)
class Problem(Generic[Measurement, Context]):
    """A decision and an objective.

    PROBLEM = Problem(inlining.DECISION, FewFunctions(), "few_functions")

    Attributes:
      decision: what the compiler asks.
      objective: what the result costs.
      name: by default the decision's; policies and traces record it.

    Raises:
      ConfigError: the objective is none for these decisions.
    """

    decision: Decision
    objective: Objective[Measurement, Context]
    name: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or self.decision.name)
        if self.decision.moves_code and self.objective.per_call:
            raise ConfigError(
                f"{self.name}: {self.decision.name} moves code between functions, so it needs an objective that counts "
                f"whole programs, such as linked text; found {self.objective.score_name}, of each call of a function"
            )

    @property
    def task(self) -> CompileTask[Measurement]:
        """What is sent to workers."""
        return CompileTask(self.decision, self.objective.reader)

    @property
    def context_policies(self) -> tuple[Policy, ...]:
        """Policies under which modules are also compiled for `Objective.project_context`, besides the default."""
        return self.decision.bounding_policies if self.objective.has_copies else ()

    def score(self, measurement: Measurement, context: Context) -> float:
        """See `Objective.score`."""
        return self.objective.score(measurement, context)

    def own_costs(self, measurement: Measurement, context: Context) -> Mapping[str, float] | None:
        """What each function costs, if decisions change only the function that they are made in; otherwise None."""
        return None if self.decision.moves_code else self.objective.by_function(measurement, context)

    def credit(
        self, measurements: Sequence[Measurement], sites: Sequence[Sites], context: Context
    ) -> list[np.ndarray] | None:
        """Each decision's share of the difference between rollouts of the same module.

        Args:
          measurements: one per rollout.
          sites: one per rollout, of T decisions each.
          context: of the module's project.

        Returns:
          for each rollout `[T]` float64 in units of the score, positive if better than the group's mean; None if the
          objective has no finer costs than the module's score.
        """
        costs = [self.objective.by_function(measurement, context) for measurement in measurements]
        found = [each for each in costs if each is not None]
        return self.decision.credit(found, sites) if len(found) == len(costs) else None


AnyProblem: TypeAlias = Problem[Any, Any]
"""A problem whose types only its own module knows, such as one loaded by name."""

ENTRY_POINTS = "compiler_opt.problems"
"""The group of entry points by which other packages offer problems: `NAME = "MODULE:PROBLEM"`."""


def names() -> tuple[str, ...]:
    """The installed problems: the folders of `decisions/`, and the entry points of other packages."""
    return tuple(sorted(_references()))


def load(name: str) -> AnyProblem:
    """Loads a problem by its name or, from any package, by `MODULE:ATTRIBUTE`, which runs that package's code.

    Raises:
      ConfigError: there is no such problem.
    """
    references = _references()
    if ":" not in name and name not in references:
        raise ConfigError(
            f"unknown problem {name!r}; expected one of {', '.join(sorted(references))}, or MODULE:PROBLEM of your own"
        )
    expected = "MODULE:PROBLEM, a pair of a decision and an objective (docs/new_problem.md)"
    problem: AnyProblem = imported(references.get(name, name), Problem, f"problem {name!r}", expected)
    return problem


def imported(reference: str, kind: type[_T], origin: str, expected: str) -> _T:
    """What a user's module defines, by `MODULE:ATTRIBUTE`; runs the code of that module.

    Raises:
      ConfigError: there is no such thing, or it is of another type; the message begins with `origin`.
    """
    module, _, attribute = reference.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise ConfigError(f"{origin}: cannot be imported ({error}); expected {expected}") from error
    if not isinstance(found, kind):
        raise ConfigError(f"{origin}: expected an instance of {kind.__name__}, found {type(found).__name__}")
    return found


def recorded(metadata: Mapping[str, Json], origin: str) -> AnyProblem:
    """Loads the problem named in the metadata of a policy or trace; inlining if none is named.

    It must be installed: metadata may come from anybody, and must not choose what is imported.

    Raises:
      PolicyError: the problem is not installed; the message begins with `origin`.
    """
    name = str(metadata.get("problem", "inlining"))
    if name not in names():
        raise PolicyError(
            f"{origin}: is for the problem {name!r}; expected one of {', '.join(names())}, or "
            "--compile_task=MODULE:PROBLEM of your own"
        )
    return load(name)


def load_policy(directory: Path | str, *, name: str = "policy") -> LearnedPolicy:
    """Loads the greedy policy in a folder, or `pretrained:NAME`, whichever installed problem it is for.

    Raises:
      PolicyError: there is none, it is damaged, or its problem is not installed.
    """
    folder = policy_folder(directory)
    return recorded(NetworkWeights.load(folder).metadata, str(folder)).decision.load_policy(folder, name=name)


def _references() -> dict[str, str]:
    """`MODULE:ATTRIBUTE` of the installed problems, by name."""
    ours = (each.name for each in pkgutil.iter_modules([str(Path(__file__).with_name("decisions"))]) if each.ispkg)
    offered = {point.name: point.value for point in importlib.metadata.entry_points(group=ENTRY_POINTS)}
    return offered | {name: f"compiler_opt.decisions.{name}:PROBLEM" for name in ours}


def reward(score: float, baseline: float) -> float:
    """The reward: the share of the baseline that was saved, `1 - score / baseline`; 0 for an empty baseline."""
    return 1 - score / baseline if baseline > 0 else 0.0
