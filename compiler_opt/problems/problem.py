"""What every decision problem tells the rest of the system; each has a folder here with the same file names in it."""

import abc
import importlib
import pkgutil
import types
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from compiler_opt import problems
from compiler_opt.errors import ConfigError
from compiler_opt.llvm.remarks import CallSites
from compiler_opt.policies.policy import Policy


class Problem(abc.ABC):
    """One kind of decision: what is compiled how, and what the result costs.

    A *measurement* is what a worker reads off one object file; it is small enough to send between processes. A *score*
    is what that costs (lower is better), given the *context* of the module's project.
    """

    name: str
    """Also the name of its advisor in `llvm.advisors`, its folder here, and its folder of gin files."""

    feature_names: tuple[str, ...]
    """What policies see, in order; the compiler may offer more."""

    default_feature: str | None
    """The feature in which the compiler reports its own decision when asked, if it does."""

    default_slot: str | None
    """The feature that compilers with the include-default bug overwrite with their own decision instead."""

    @abc.abstractmethod
    def measure(self, object_path: Path) -> Any:
        """Reads what the score needs off an object file.

        Raises:
          ProtocolError: the object is damaged.
        """

    context_policies: tuple[Policy, ...] = ()
    """Policies whose compilations tell scoring more of a project than the default's alone."""

    @abc.abstractmethod
    def project_context(self, measurements: Iterable[Any], others: Iterable[Any] = ()) -> Any:
        """What scoring needs to know of a project; JSON.

        Args:
          measurements: of the project's modules as the default compiles them.
          others: of the same modules under `context_policies`; without them the context is less exact.
        """

    @abc.abstractmethod
    def score(self, measurement: Any, context: Any) -> float:
        """What a module's object costs; lower is better, the default's is the baseline."""

    @abc.abstractmethod
    def credit(
        self, measurements: Sequence[Any], call_sites: Sequence[CallSites], context: Any
    ) -> list[np.ndarray] | None:
        """Each decision's own share of what it changed, for rollouts of the same module.

        Args:
          measurements: one per rollout.
          call_sites: one per rollout; T decisions each.
          context: of the module's project.

        Returns:
          for each rollout `[T]` float64, better than the group's mean when positive, in the units of the score; None
          when the problem has no finer credit than the module's score.
        """


def names() -> tuple[str, ...]:
    """The problems that there are: the folders beside this file."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(problems.__path__) if module.ispkg))


def load(name: str) -> Problem:
    """The problem of that name.

    Raises:
      ConfigError: there is none.
    """
    if name not in names():
        raise ConfigError(f"unknown problem {name!r}; expected one of {', '.join(names())}")
    module: types.ModuleType = importlib.import_module(f"{problems.__name__}.{name}")
    problem: Problem = module.PROBLEM
    return problem


def reward(score: float, baseline: float) -> float:
    """The reward: the share of the baseline that was saved, `1 - score / baseline`; 0 for an empty baseline."""
    return 1 - score / baseline if baseline > 0 else 0.0
