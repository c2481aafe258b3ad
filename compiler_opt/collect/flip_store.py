"""A store of flips: what happened to the score when a single decision was changed.

Legend: N flips of a file, F features, M modules.

Flips are what search and studies of credit compile anyway, and what a network can learn the gain of an action from.
The files (`array_store`):

    STORE/SHA256.npz    actions, base_actions [N] int64, gains, linked_gains [N] float64, owners [N] int32,
                        observations [N, F] int64, about: problem, compiler, base, features, modules, projects
"""

import dataclasses
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from compiler_opt.collect.array_store import ArrayStore, OnSkipped

_LOG = logging.getLogger(__name__)
_COLUMNS = {"actions": "i8", "base_actions": "i8", "gains": "f8", "linked_gains": "f8", "owners": "i4"}
_ARRAYS = {**_COLUMNS, "observations": "i8"}


@dataclasses.dataclass(frozen=True, eq=False)
class Flips:
    """N flips by one compiler.

    Attributes:
      problem: the problem's name.
      compiler: version of the compiler.
      base: who took all other decisions: `default`, or a policy's checksum.
      features: names of F features.
      modules: names of M modules.
      projects: names of their projects.
      observations: `[N, F]` int64, what was observed where the decision was changed.
      actions: `[N]` int64, the action that was taken there.
      base_actions: `[N]` int64, the action that `base` takes.
      gains: `[N]` float64, how much the score of the module fell.
      linked_gains: `[N]` float64, how much the linked program shrank, in bytes; NaN where it was not linked.
      owners: `[N]` int32, index of each flip's module.
    """

    problem: str
    compiler: str
    base: str
    features: tuple[str, ...]
    modules: tuple[str, ...]
    projects: tuple[str, ...]
    observations: np.ndarray
    actions: np.ndarray
    base_actions: np.ndarray
    gains: np.ndarray
    linked_gains: np.ndarray
    owners: np.ndarray

    def __post_init__(self) -> None:
        """Raises ValueError if the columns do not match."""
        count, width = len(self.actions), len(self.features)
        if self.observations.shape != (count, width):
            raise ValueError(f"observations: expected shape {(count, width)}, found {self.observations.shape}")
        for name in _COLUMNS:
            if getattr(self, name).shape != (count,):
                raise ValueError(f"{name}: expected {count} numbers, found shape {getattr(self, name).shape}")
        if len(self.projects) != len(self.modules):
            raise ValueError(f"projects: expected one for each of {len(self.modules)}, found {len(self.projects)}")
        if count and not 0 <= self.owners.min() <= self.owners.max() < len(self.modules):
            raise ValueError(f"owners: expected indices of {len(self.modules)} modules")
        if not np.isfinite(self.gains).all():
            raise ValueError("gains: expected finite numbers")

    def __len__(self) -> int:
        return len(self.actions)


_Name = Annotated[str, msgspec.Meta(max_length=1 << 16)]


class _About(msgspec.Struct):
    problem: _Name
    compiler: _Name
    base: _Name
    features: tuple[_Name, ...]
    modules: tuple[_Name, ...]
    projects: tuple[_Name, ...]


class FlipStore(ArrayStore[Flips]):
    """A folder of flips, made when the first ones are added."""

    max_bytes = 1 << 28
    about = _About

    def add(self, flips: Flips) -> Path:
        """Writes a file, which appears whole or not at all; the same flips give the same file.

        Raises:
          OutputError: it cannot be written.
        """
        return self._write(flips)

    def read(self, problem: str, features: Sequence[str], on_skipped: OnSkipped = _LOG.warning) -> Iterator[Flips]:
        """The flips of a problem, with these features in this order.

        `on_skipped` gets a line for each file that is damaged, lacks a feature, or is about another problem.
        """
        for flips in self._usable(problem, features, on_skipped):
            columns = [flips.features.index(name) for name in features]
            observations = flips.observations[:, columns]
            yield dataclasses.replace(flips, features=tuple(features), observations=observations)

    def _arrays(self, entry: Flips) -> Mapping[str, np.ndarray]:
        return {name: getattr(entry, name).astype(kind) for name, kind in _ARRAYS.items()}

    def _entry(self, arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> Flips:
        for name, kind in _ARRAYS.items():
            if name not in arrays or arrays[name].dtype != np.dtype(kind):
                raise ValueError(f"expected {name} of type {np.dtype(kind)}")
        return Flips(**{**about, **{name: arrays[name] for name in _ARRAYS}})
