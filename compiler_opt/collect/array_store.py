"""A store of arrays: a folder of files that are named by the SHA-256 of their content and never change.

So stores merge by copying files, and a damaged file is noticed; it is set aside (`NAME.damaged`), by name.

    STORE/[KEY-]SHA256.npz    arrays, and then `about` (JSON as bytes)

Where there are several files of a key, the best one counts.
"""

import abc
import hashlib
import json
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import msgspec
import numpy as np

from compiler_opt.array_files import load_arrays, pack_arrays
from compiler_opt.checked_values import convert
from compiler_opt.files import one_line, parse_json, read_regular, shown, write_atomically
from compiler_opt.kept_results import find_kept

_LOG = logging.getLogger(__name__)
_SUFFIX = ".npz"
_ABOUT = "about"
_SHA256_DIGITS = 64

OnSkipped = Callable[[str], object]


class Entry(Protocol):
    """What a file has: something about a problem, with observations of features."""

    @property
    def problem(self) -> str: ...

    @property
    def features(self) -> Collection[str]: ...


E = TypeVar("E", bound=Entry)


class ArrayStore(abc.ABC, Generic[E]):
    """A folder of entries, made when the first one is added.

    Attributes:
      max_bytes: limit of a file, and of its unpacked contents.
      about: the attributes of an entry that are not arrays.
    """

    max_bytes: ClassVar[int]
    about: ClassVar[type[msgspec.Struct]]

    def __init__(self, path: Path):
        self._path = path

    @abc.abstractmethod
    def _arrays(self, entry: E) -> Mapping[str, np.ndarray]:
        """In the order of the file."""

    @abc.abstractmethod
    def _entry(self, arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> E:
        """The inverse of `_arrays`. Raises ValueError if the arrays do not fit."""

    def _key(self, entry: E) -> str:
        """What entries compete for, followed by `-`; those without a key do not compete."""
        return ""

    def _rank(self, entry: E) -> float:
        """Lower is better."""
        return 0.0

    def fingerprint(self) -> str:
        """Identifies what the store has, whenever it was added."""
        names = "\n".join(path.name for path in self._files())
        return hashlib.sha256(names.encode()).hexdigest()

    def merge(self, other: "ArrayStore[E]", on_skipped: OnSkipped = _LOG.warning) -> int:
        """Adds what is missing, or better in another store, except for damaged files; returns how many were added.

        Of equally good files of a key, the one whose name is smaller stays: the order of merges makes no difference.

        Raises:
          OutputError: a file cannot be written.
        """
        added = 0
        for path, entry in other._intact(other._files(), on_skipped):
            there = self._best(_key_in(path) or path.stem)
            if there is None or self._order((path, entry)) < self._order(there):
                self._put(path.name, read_regular(path, self.max_bytes))
                added += 1
        return added

    def _write(self, entry: E) -> Path:
        """Writes an entry in place of all others of its key; the same entry gives the same file."""
        about = {name: getattr(entry, name) for name in self.about.__struct_fields__}
        arrays = {**self._arrays(entry), _ABOUT: np.frombuffer(json.dumps(about).encode(), np.uint8)}
        content = pack_arrays(arrays, compressed=True)
        return self._put(f"{self._key(entry)}{hashlib.sha256(content).hexdigest()}{_SUFFIX}", content)

    def _usable(self, problem: str, features: Sequence[str], on_skipped: OnSkipped) -> Iterator[E]:
        """The entries about a problem that have these features; `on_skipped` gets a line for each other file."""

        def check(entry: E) -> None:
            if entry.problem != problem:
                raise ValueError(f"is about {shown(entry.problem)}, not about {problem}")
            if missing := [name for name in features if name not in entry.features]:
                raise ValueError(f"lacks the features {', '.join(missing)}")

        for _, entry in self._intact(self._files(), on_skipped, check):
            yield entry

    def _best(self, prefix: str) -> tuple[Path, E] | None:
        """The best intact entry of those whose names begin so, and its file."""
        found = list(self._intact(self._files(prefix), _LOG.warning))
        return min(found, key=self._order) if found else None

    def _order(self, file: tuple[Path, E]) -> tuple[float, str]:
        return self._rank(file[1]), file[0].name

    def _intact(
        self, paths: Sequence[Path], on_skipped: OnSkipped, check: Callable[[E], object] = lambda _: None
    ) -> Iterator[tuple[Path, E]]:
        for path in paths:
            entry = find_kept(path, self._read, consequence="left out", warn=on_skipped)
            if entry is None:
                continue
            try:
                check(entry)
            except ValueError as error:
                on_skipped(f"{path}: skipped: {one_line(str(error)):.200}")
            else:
                yield path, entry

    def _read(self, path: Path) -> E:
        """Reads a file. Raises OSError or ValueError if it is damaged."""
        digest = hashlib.sha256(read_regular(path, self.max_bytes)).hexdigest()
        if path.stem != _key_in(path) + digest:
            raise ValueError("damaged: its name does not have the SHA-256 of its content")
        arrays = load_arrays(path, self.max_bytes)
        if _ABOUT not in arrays or arrays[_ABOUT].dtype != np.uint8:
            raise ValueError(f"expected {_ABOUT} of type uint8")
        about = convert(parse_json(arrays.pop(_ABOUT).tobytes()), self.about)
        entry = self._entry(arrays, msgspec.structs.asdict(about))
        if self._key(entry) != _key_in(path):
            raise ValueError("its name is that of another entry")
        return entry

    def _put(self, name: str, content: bytes) -> Path:
        """Writes a file, and removes the others of its key."""
        path = self._path / name
        write_atomically(path, content)
        for other in self._files(key) if (key := _key_in(path)) else []:
            if other != path:
                other.unlink(missing_ok=True)
        return path

    def _files(self, prefix: str = "") -> list[Path]:
        return sorted(self._path.glob(f"{prefix}*{_SUFFIX}"))


def _key_in(path: Path) -> str:
    return path.stem[:-_SHA256_DIGITS]
