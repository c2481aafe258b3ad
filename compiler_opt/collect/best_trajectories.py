"""A store of the best trajectory of each module: who decided, what was decided, and what it won.

Legend: T decisions of a trajectory.

    store = BestTrajectories(folder)
    store.add(trajectory)                # kept if it is better than the one of the same module
    store.merge(other)                   # stores of several runs as one; in any order with the same result

A store is a folder of files that never change. The name of each has the SHA-256 of its content, so a damaged file is
noticed; it is skipped, by name. Where there are several files of one module, the best one counts.

    STORE/MODULE-SHA256.npz    `feature NAME` [T, ...] for each feature, advice [T], about (JSON as bytes)

MODULE is a hash of problem, compiler and module. Rewards are relative to the default's score, so that they can be
compared if both runs score alike: the same corpus and compiler, and no counting of copies by iteration.
"""

import dataclasses
import hashlib
import json
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np

from compiler_opt.array_files import load_arrays, pack_arrays
from compiler_opt.checked_values import convert
from compiler_opt.collect.store_files import check_usable, read_intact, write_file
from compiler_opt.files import parse_json, read_regular

MAX_FILE_BYTES = 1 << 30

_LOG = logging.getLogger(__name__)
_SUFFIX = ".npz"
_FEATURE = "feature "


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


class BestTrajectories:
    """A folder of trajectories, made when the first one is added."""

    def __init__(self, path: Path):
        self._path = path

    def add(self, trajectory: BestTrajectory) -> bool:
        """Keeps a trajectory if it is the first of its module or has a higher reward; returns whether it is kept.

        Of equal rewards, the one that is there stays. A damaged file of the module is replaced.

        Raises:
          OutputError: it cannot be written.
        """
        there = self._best(trajectory.key)
        if there is not None and there[1].reward >= trajectory.reward:
            return False
        about = {name: getattr(trajectory, name) for name in _About.__struct_fields__}
        arrays = {_FEATURE + name: np.ascontiguousarray(values) for name, values in trajectory.features.items()}
        arrays["advice"] = trajectory.advice
        arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
        self._replace(trajectory.key, pack_arrays(arrays, compressed=True))
        return True

    def fingerprint(self) -> str:
        """Identifies what the store has, whenever it was added."""
        names = "\n".join(path.name for path in self._files())
        return hashlib.sha256(names.encode()).hexdigest()

    def read(
        self, problem: str, features: Sequence[str], on_skipped: Callable[[str], object] = _LOG.warning
    ) -> Iterator[BestTrajectory]:
        """The best trajectory of each module for a problem, with these features, in the order of the modules' names.

        `on_skipped` gets a line for each file that is damaged, lacks a feature, or is about another problem.
        """

        def usable(path: Path) -> BestTrajectory:
            trajectory = _read(path)
            check_usable(trajectory.problem, problem, trajectory.features, features)
            return trajectory

        found: dict[str, BestTrajectory] = {}
        for _, trajectory in read_intact(self._files(), usable, on_skipped):
            best = found.get(trajectory.key)
            if best is None or trajectory.reward > best.reward:
                found[trajectory.key] = trajectory
        yield from sorted(found.values(), key=lambda each: (each.module, each.compiler))

    def merge(self, other: "BestTrajectories", on_skipped: Callable[[str], object] = _LOG.warning) -> int:
        """Adds what is better in another store, except for files that are damaged; returns how many were added.

        Of equal rewards, the file whose name is smaller stays, so that the order of merges makes no difference.

        Raises:
          OutputError: a file cannot be written.
        """
        added = 0
        for path, trajectory in read_intact(other._files(), _read, on_skipped):
            there = self._best(trajectory.key)
            if there is None or (-trajectory.reward, path.name) < (-there[1].reward, there[0].name):
                self._replace(trajectory.key, read_regular(path, MAX_FILE_BYTES))
                added += 1
        return added

    def _best(self, key: str) -> tuple[Path, BestTrajectory] | None:
        """The best intact trajectory of a key, and its file."""
        found = list(read_intact(self._files(key), _read, _LOG.warning))
        return min(found, key=lambda each: (-each[1].reward, each[0].name)) if found else None

    def _replace(self, key: str, content: bytes) -> None:
        """Writes a file, and removes the others of its key."""
        path = self._path / f"{key}-{hashlib.sha256(content).hexdigest()}{_SUFFIX}"
        write_file(path, content)
        for other in self._files(key):
            if other != path:
                other.unlink(missing_ok=True)

    def _files(self, key: str = "*") -> list[Path]:
        return sorted(self._path.glob(f"{key}-*{_SUFFIX}"))


def _read(path: Path) -> BestTrajectory:
    """Reads a file. Raises OSError or ValueError if it is damaged."""
    content = read_regular(path, MAX_FILE_BYTES)
    key, _, digest = path.stem.rpartition("-")
    if hashlib.sha256(content).hexdigest() != digest:
        raise ValueError("damaged: its name does not have the SHA-256 of its content")
    arrays = load_arrays(path, MAX_FILE_BYTES)
    for name in ("about", "advice"):
        if name not in arrays:
            raise ValueError(f"expected {name}")
    about = convert(parse_json(arrays["about"].astype(np.uint8).tobytes()), _About)
    features = {name.removeprefix(_FEATURE): values for name, values in arrays.items() if name.startswith(_FEATURE)}
    trajectory = BestTrajectory(
        about.problem,
        about.compiler,
        about.module,
        about.project,
        about.policy,
        about.reward,
        features,
        arrays["advice"],
    )
    if trajectory.key != key:
        raise ValueError("its name is that of another module")
    return trajectory
