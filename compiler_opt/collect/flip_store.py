"""A store of flips: what happened to the score when a single decision was changed.

Legend: N flips of a file, F features, M modules.

Flips are what search and studies of credit compile anyway, and what a network can learn the gain of an action from. A
store is a folder of files, each named by the SHA-256 of its content and never changed. So stores merge by copying
files, and a damaged file is noticed.

    STORE/SHA256.npz    observations [N, F] int64, actions, base_actions [N] int64, gains, linked_gains [N] float64,
                        owners [N] int32, about (JSON as bytes): problem, compiler, base, features, modules, projects
"""

import dataclasses
import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np

from compiler_opt.array_files import load_arrays, pack_arrays
from compiler_opt.checked_values import convert
from compiler_opt.collect.store_files import check_usable, read_intact, write_file
from compiler_opt.files import parse_json, read_regular, size_and_sha256

MAX_FILE_BYTES = 1 << 28

_LOG = logging.getLogger(__name__)
_SUFFIX = ".npz"
_COLUMNS = {"actions": "i8", "base_actions": "i8", "gains": "f8", "linked_gains": "f8", "owners": "i4"}


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


class FlipStore:
    """A folder of flips, made when the first ones are added."""

    def __init__(self, path: Path):
        self._path = path

    def add(self, flips: Flips) -> Path:
        """Writes a file, which appears whole or not at all; the same flips give the same file.

        Raises:
          OutputError: it cannot be written.
        """
        about = {name: getattr(flips, name) for name in _About.__struct_fields__}
        arrays = {name: getattr(flips, name).astype(kind) for name, kind in _COLUMNS.items()}
        arrays["observations"] = flips.observations.astype("i8")
        arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
        content = pack_arrays(arrays, compressed=True)
        return self._write(f"{hashlib.sha256(content).hexdigest()}{_SUFFIX}", content)

    def read(
        self, problem: str, features: Sequence[str], on_skipped: Callable[[str], object] = _LOG.warning
    ) -> Iterator[Flips]:
        """The flips of a problem, with these features in this order.

        `on_skipped` gets a line for each file that is damaged, lacks a feature, or is about another problem.
        """

        def usable(path: Path) -> Flips:
            flips = _read(path)
            check_usable(flips.problem, problem, flips.features, features)
            return flips

        for _, flips in read_intact(self._files(), usable, on_skipped):
            columns = [flips.features.index(name) for name in features]
            observations = flips.observations[:, columns]
            yield dataclasses.replace(flips, features=tuple(features), observations=observations)

    def merge(self, other: "FlipStore", on_skipped: Callable[[str], object] = _LOG.warning) -> int:
        """Adds all flips of another store, except for files that are damaged; returns the number of new files.

        Raises:
          OutputError: a file cannot be written.
        """
        before = len(self._files())
        for path, content in read_intact(other._files(), _intact_content, on_skipped):
            self._write(path.name, content)
        return len(self._files()) - before

    def _write(self, name: str, content: bytes) -> Path:
        path = self._path / name
        if not path.exists():
            write_file(path, content)
        return path

    def _files(self) -> list[Path]:
        return sorted(self._path.glob(f"*{_SUFFIX}"))


def _read(path: Path) -> Flips:
    """Reads a file. Raises OSError or ValueError if it is damaged."""
    arrays = load_arrays(path, MAX_FILE_BYTES)
    if size_and_sha256(path)[1] != path.stem:
        raise ValueError("damaged: its name is not the SHA-256 of its content")
    wanted = {"observations": "i8", "about": "u1", **_COLUMNS}
    for name, kind in wanted.items():
        if name not in arrays or arrays[name].dtype != np.dtype(kind):
            raise ValueError(f"expected {name} of type {np.dtype(kind)}")
    about = convert(parse_json(arrays["about"].tobytes()), _About)
    return Flips(
        about.problem,
        about.compiler,
        about.base,
        about.features,
        about.modules,
        about.projects,
        arrays["observations"],
        **{name: arrays[name] for name in _COLUMNS},
    )


def _intact_content(path: Path) -> bytes:
    _read(path)
    return read_regular(path, MAX_FILE_BYTES)
