"""A store of the best trajectory of each module: who decided, what was decided, and what it won.

Legend: T decisions of a trajectory.

    store = BestTrajectories(folder)
    store.add(trajectory)                # kept if it is better than the one of the same module
    store.merge(other)                   # stores of several runs as one; in any order with the same result

The files (`array_store`), of which the best one of a module counts:

    STORE/MODULE-SHA256.npz    `feature NAME` [T, ...] for each feature, advice [T],
                               about: problem, compiler, module, project, policy, reward

MODULE is a hash of problem, compiler and module. Rewards are relative to the default's score, so that they can be
compared if both runs score alike: the same corpus and compiler, and no counting of copies by iteration.
"""

import dataclasses
import hashlib
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import msgspec
import numpy as np

from compiler_opt.collect.array_store import ArrayStore, OnSkipped

_LOG = logging.getLogger(__name__)
_FEATURE, _ADVICE = "feature ", "advice"


@dataclasses.dataclass(frozen=True, eq=False)
class BestTrajectory:
    """T decisions of one compilation of a module.

    Attributes:
      problem: the problem's name.
      compiler: version of the compiler.
      module: the module's name.
      project: its project's name.
      policy: the name of the policy that decided.
      reward: 1 - score / the default's score.
      features: by name `[T, ...]`, what was observed.
      advice: `[T]`, what was decided; integers or real numbers.
    """

    problem: str
    compiler: str
    module: str
    project: str
    policy: str
    reward: float
    features: Mapping[str, np.ndarray]
    advice: np.ndarray

    def __post_init__(self) -> None:
        """Raises ValueError if the columns do not match, or the reward is no finite number."""
        if self.advice.ndim != 1:
            raise ValueError(f"advice: expected a column, found shape {self.advice.shape}")
        for name, values in self.features.items():
            if values.shape[:1] != self.advice.shape:
                raise ValueError(f"{name}: expected {len(self.advice)} observations, found shape {values.shape}")
        if not math.isfinite(self.reward):
            raise ValueError(f"reward: expected a finite number, found {self.reward}")

    def __len__(self) -> int:
        return len(self.advice)

    @property
    def key(self) -> str:
        """Identifies what trajectories compete for: problem, compiler and module."""
        content = "\0".join((self.problem, self.compiler, self.module))
        return hashlib.sha256(content.encode("utf-8", "surrogateescape")).hexdigest()[:16]


_Name = Annotated[str, msgspec.Meta(max_length=1 << 16)]


class _About(msgspec.Struct):
    problem: _Name
    compiler: _Name
    module: _Name
    project: _Name
    policy: _Name
    reward: float


class BestTrajectories(ArrayStore[BestTrajectory]):
    """A folder of trajectories, made when the first one is added."""

    max_bytes = 1 << 30
    about = _About

    def add(self, trajectory: BestTrajectory) -> bool:
        """Keeps a trajectory if it is the first of its module or has a higher reward; returns whether it is kept.

        Of equal rewards, the one that is there stays. A damaged file of the module is replaced.

        Raises:
          OutputError: it cannot be written.
        """
        there = self._best(self._key(trajectory))
        if there is not None and there[1].reward >= trajectory.reward:
            return False
        self._write(trajectory)
        return True

    def read(
        self, problem: str, features: Sequence[str], on_skipped: OnSkipped = _LOG.warning
    ) -> Iterator[BestTrajectory]:
        """The best trajectory of each module for a problem, with these features, in the order of the modules' names.

        `on_skipped` gets a line for each file that is damaged, lacks a feature, or is about another problem.
        """
        found: dict[str, BestTrajectory] = {}
        for trajectory in self._usable(problem, features, on_skipped):
            best = found.get(trajectory.key)
            if best is None or trajectory.reward > best.reward:
                found[trajectory.key] = trajectory
        yield from sorted(found.values(), key=lambda each: (each.module, each.compiler))

    def _arrays(self, entry: BestTrajectory) -> Mapping[str, np.ndarray]:
        features = {_FEATURE + name: np.ascontiguousarray(values) for name, values in entry.features.items()}
        return {**features, _ADVICE: entry.advice}

    def _entry(self, arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> BestTrajectory:
        if _ADVICE not in arrays:
            raise ValueError(f"expected {_ADVICE}")
        features = {name.removeprefix(_FEATURE): values for name, values in arrays.items() if name.startswith(_FEATURE)}
        return BestTrajectory(**about, features=features, advice=arrays[_ADVICE])

    def _key(self, entry: BestTrajectory) -> str:
        return f"{entry.key}-"

    def _rank(self, entry: BestTrajectory) -> float:
        return -entry.reward
