"""Reads training logs from memory (`decode_log`) or a file (`read_log`); `training_log` describes the format."""

import dataclasses
import functools
import mmap
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

import numpy as np

from compiler_opt.errors import ProtocolError
from compiler_opt.llvm.training_log import MAX_LINE_BYTES, parse_json_line, parse_tensors, record_dtype
from compiler_opt.tensor_spec import TensorSpec

_Buffer: TypeAlias = bytes | mmap.mmap

_FEW = 64
"""The number of records compared at once; it quadruples whenever all of them match."""

_COPIED_BYTES = 1 << 19
"""Columns are filled in pieces of this size, which stay in the core's cache between the two copies."""


@dataclasses.dataclass(frozen=True)
class TrainingLog:
    """A training log of T observations and K outcomes.

    Attributes:
      features: the tensors of one observation, in the order of their bytes.
      advice: the tensor of the decision, if the log names it.
      score: the tensor of an outcome, if the log has outcomes.
      contexts: name and index of the first observation of each context; a resumed context is listed again.
      blocks: read-only views `[t, bytes of one]` uint8 of the T observations in order. The records of a block are
        equidistant, so each context and each power of ten begins another.
      outcomes: `[K, *shape]` of the score; `[0]` without outcomes.
      outcome_of: `[K]` int64, the index of each outcome's observation.
      left_bytes: bytes of an incomplete record at the end, left by a writer that died.
    """

    features: tuple[TensorSpec, ...]
    advice: TensorSpec | None
    score: TensorSpec | None
    contexts: tuple[tuple[str, int], ...]
    blocks: tuple[np.ndarray, ...]
    outcomes: np.ndarray
    outcome_of: np.ndarray
    left_bytes: int

    def __len__(self) -> int:
        return sum(map(len, self.blocks))

    @functools.cached_property
    def observations(self) -> np.ndarray:
        """`[T, bytes of one]` uint8, read-only: the block itself if there is only one, else a copy, made once."""
        if len(self.blocks) == 1:
            return self.blocks[0]
        empty = np.zeros((0, sum(spec.num_bytes for spec in self.features)), np.uint8)
        observations = np.concatenate([empty, *self.blocks])
        observations.flags.writeable = False
        return observations

    def arrays(self) -> dict[str, np.ndarray]:
        """For each feature a read-only view `[T, *shape]` of `observations`, not contiguous."""
        records = self.observations.view(record_dtype(self.features))[:, 0]
        return {spec.name: records[spec.name] for spec in self.features}

    def columns(self, names: Iterable[str] | None = None) -> dict[str, np.ndarray]:
        """For each named feature (by default all) a contiguous copy `[T, *shape]`, faster to compute with than a view.

        Raises:
          KeyError: the log has no such feature.
        """
        dtype = record_dtype(self.features)
        specs = {spec.name: spec for spec in self.features}
        wanted = [specs[name] for name in (specs if names is None else names)]
        columns = {spec.name: np.empty((len(self), *spec.shape), spec.dtype) for spec in wanted}
        begin = 0
        for pieces in _groups(self.blocks, max(1, _COPIED_BYTES // dtype.itemsize)):
            records = np.concatenate(pieces).view(dtype)[:, 0]
            for name, column in columns.items():
                column[begin : begin + len(records)] = records[name]
            begin += len(records)
        return columns


def _groups(blocks: Iterable[np.ndarray], length: int) -> Iterator[list[np.ndarray]]:
    """Regroups rows into groups of `length` to twice `length` rows; the last may be smaller."""
    group: list[np.ndarray] = []
    num_rows = 0
    for block in blocks:
        for begin in range(0, len(block), length):
            piece = block[begin : begin + length]
            group.append(piece)
            num_rows += len(piece)
            if num_rows >= length:
                yield group
                group, num_rows = [], 0
    if group:
        yield group


def decode_log(content: bytes | mmap.mmap) -> TrainingLog:
    """Reads a log; for a long one, without creating a Python object per observation.

    Once its first line is complete, a log may end anywhere, even within a record: complete records are kept.

    Raises:
      ProtocolError: the log is malformed; the message says at which byte.
    """
    line = _line(content, 0)
    if line is None:
        raise ProtocolError("log: its first line is not complete")
    scanner = _Scanner(line)
    end = scanner.scan(content, len(line) + 1)
    return scanner.take(content, len(content) - end)


def read_log(path: Path) -> TrainingLog:
    """Reads a log from a file by mapping it, so that pages are read when they are used.

    The file must not be truncated while `blocks` exist.

    Raises:
      ProtocolError: see `decode_log`.
      OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        # A pipe has no size, and an empty file cannot be mapped.
        size = os.fstat(file.fileno()).st_size
        return decode_log(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else file.read())


def _line(content: _Buffer, position: int) -> bytes | None:
    """The line at a position, without its newline; None if it is incomplete. Raises ProtocolError if it is too long."""
    end = content.find(b"\n", position, position + MAX_LINE_BYTES)
    if end >= 0:
        return content[position:end]
    if len(content) - position >= MAX_LINE_BYTES:
        raise ProtocolError(f"log: at byte {position}: expected a line, found none within {MAX_LINE_BYTES} bytes")
    return None


class _Progressions:
    """Increasing numbers, stored as arithmetic progressions."""

    def __init__(self) -> None:
        self._runs: list[list[int]] = []  # first, step, count

    def add(self, first: int, step: int = 0, count: int = 1) -> None:
        """Appends `count` numbers, beginning with `first`."""
        if self._runs:
            run = self._runs[-1]
            if run[2] == 1:
                run[1] = first - run[0]
            if run[0] + run[1] * run[2] == first and (count == 1 or step == run[1]):
                run[2] += count
                return
        self._runs.append([first, step, count])

    def numbers(self) -> np.ndarray:
        """All of them, int64."""
        runs = [first + step * np.arange(count) for first, step, count in self._runs]
        return np.concatenate([np.zeros(0, np.int64), *runs])

    def views(self, content: _Buffer, dtype: np.dtype, length: int) -> list[np.ndarray]:
        """For each progression of positions a view `[count, length]` of the contents there."""
        return [
            np.ndarray((count, length), dtype, content, first, (step, dtype.itemsize))
            for first, step, count in self._runs
        ]


class _Scanner:
    """Finds the records after the first line."""

    def __init__(self, first_line: bytes):
        self.features, self.advice, self.score = parse_tensors(first_line)
        self._observation_bytes = sum(spec.num_bytes for spec in self.features)
        self._score_bytes = self.score.num_bytes if self.score is not None else 0
        self._num_observations = 0
        self._next: int | None = None  # the next observation's number; None where any may begin a context
        self._last: int | None = None  # the number of the observation that an outcome may follow
        self._expected = _FEW  # number of records to compare
        self._contexts: list[tuple[str, int]] = []
        self._payloads, self._outcomes, self._outcome_of = _Progressions(), _Progressions(), _Progressions()

    def take(self, content: _Buffer, left_bytes: int) -> TrainingLog:
        """The log that `scan` has read."""
        outcomes = np.zeros(0)
        if self.score is not None:
            scores = self._outcomes.views(content, self.score.dtype, self.score.num_elements)
            empty = np.zeros((0, self.score.num_elements), self.score.dtype)
            outcomes = np.concatenate([empty, *scores]).reshape(-1, *self.score.shape)
        return TrainingLog(
            self.features,
            self.advice,
            self.score,
            tuple(self._contexts),
            tuple(self._payloads.views(content, np.dtype(np.uint8), self._observation_bytes)),
            outcomes,
            self._outcome_of.numbers(),
            left_bytes,
        )

    def scan(self, content: _Buffer, position: int) -> int:
        """Reads the complete records; returns where the rest begins."""
        while (line := _line(content, position)) is not None:
            end = self._record(content, position, line)
            if end is None:
                return position
            position = end
        return position

    def _record(self, content: _Buffer, position: int, line: bytes) -> int | None:
        """Reads the record of a line, or several alike; returns their end, None if the record is incomplete."""
        kind, value = self._parse(line, position)
        begin = position + len(line) + 1
        if isinstance(value, str):
            self._contexts.append((value, self._num_observations))
            self._next = None
            return begin
        if kind == "outcome":
            return self._outcome(content, position, begin, value)
        if self._next not in (None, value):
            raise self._error(position, f"expected observation {self._next}, found {value}")
        return self._equal_records(content, position, value) or self._observation(content, begin, value)

    def _parse(self, line: bytes, position: int) -> tuple[str, str | int]:
        """The kind of a line, and the context's name or the observation's index."""
        # Exactly as LLVM writes it: no need to parse JSON.
        if line == b'{"observation":%d}' % (self._next or 0):
            return "observation", self._next or 0
        if self._last is not None and line == b'{"outcome":%d}' % self._last:
            return "outcome", self._last
        value = parse_json_line(line)
        if len(value) == 1:
            [(kind, content)] = value.items()
            if kind == "context" and isinstance(content, str):
                return kind, content
            if kind in ("observation", "outcome") and type(content) is int and 0 <= content < 10**18:
                return kind, content
        raise self._error(position, f"expected a context, an observation or an outcome, found {line[:80]!r}")

    def _observation(self, content: _Buffer, begin: int, index: int) -> int | None:
        end = self._payload_end(content, begin + self._observation_bytes, f"observation {index}")
        if end is not None:
            self._payloads.add(begin)
            self._num_observations += 1
            self._next, self._last = index + 1, index
        return end

    def _outcome(self, content: _Buffer, position: int, begin: int, index: int) -> int | None:
        if self.score is None:
            raise self._error(position, "found an outcome, but the header has no score")
        if index != self._last:
            raise self._error(position, f"expected the outcome of the observation before it, found that of {index}")
        end = self._payload_end(content, begin + self._score_bytes, f"outcome {index}")
        if end is not None:
            self._outcomes.add(begin)
            self._outcome_of.add(self._num_observations - 1)
            self._last = None
        return end

    def _payload_end(self, content: _Buffer, newline: int, what: str) -> int | None:
        """The end of a tensor, after its newline; None if it is incomplete."""
        if newline >= len(content):
            return None
        if content[newline] != ord("\n"):
            raise self._error(newline, f"expected a newline after {what}")
        return newline + 1

    def _equal_records(self, content: _Buffer, position: int, index: int) -> int | None:
        """Reads equal-sized records: all or none have outcomes, and their numbers differ in the last three digits only.

        Returns their end; None if not even the first is complete and exactly as LLVM writes it.
        """
        tried = min(self._expected, _num_alike(index))
        payload = position + len(b'{"observation":%d}\n' % index)
        outcome_line = payload + self._observation_bytes
        line = b'\n{"outcome":%d}\n' % index
        outcome = outcome_line + len(line)
        has_outcome = self.score is not None and content[outcome_line:outcome] == line
        end = (outcome + self._score_bytes if has_outcome else outcome_line) + 1
        distance = end - position
        count = min(tried, (len(content) - position) // distance)
        newlines = content[end - 1 : position + count * distance : distance]
        count = len(newlines) - len(newlines.lstrip(b"\n"))
        count = _num_lines(content, position, distance, count, b'{"observation":', index)
        if has_outcome:
            count = _num_lines(content, outcome_line, distance, count, b'\n{"outcome":', index)
        self._expected = 4 * tried if count == tried else _FEW
        if not count:
            return None
        self._payloads.add(payload, distance, count)
        self._last = index + count - 1
        if has_outcome:
            self._outcomes.add(outcome, distance, count)
            self._outcome_of.add(self._num_observations, 1, count)
            self._last = None
        self._num_observations += count
        self._next = index + count
        return position + count * distance

    def _error(self, position: int, what: str) -> ProtocolError:
        return ProtocolError(f"log: at byte {position}: {what}")


def _num_alike(index: int) -> int:
    """How many numbers, from this one on, differ in the last three digits only and have as many digits."""
    unit = min(10 ** len(str(index)), 1000)
    return unit - index % unit


def _num_lines(content: _Buffer, position: int, distance: int, count: int, before: bytes, index: int) -> int:
    """How many of `count` equidistant records have the expected line, up to the first that does not."""
    if not count:
        return 0
    unit = min(10 ** len(str(index)), 1000)
    lines = _lines(before, index // unit, unit)
    length = len(lines) // unit
    lines = lines[index % unit * length : (index % unit + count) * length]
    places: np.ndarray = np.ndarray((count,), np.dtype((np.void, length)), content, position, (distance,))
    # Contiguous first: otherwise numpy copies byte by byte.
    found = np.ascontiguousarray(places).tobytes()
    if found == lines:
        return count
    return int((np.frombuffer(found, np.uint8) != np.frombuffer(lines, np.uint8)).argmax()) // length


@functools.lru_cache(maxsize=64)
def _lines(before: bytes, first_digits: int, unit: int) -> bytes:
    """One line for each number that has these first digits (none if 0), followed by an ending below `unit`."""
    return _endings(unit).replace(b"?", before + (b"%d" % first_digits if first_digits else b""))


@functools.lru_cache
def _endings(unit: int) -> bytes:
    """The zero-padded numbers below a power of ten, each as `?012}` and a newline."""
    return b"".join(b"?%b}\n" % str(unit + number)[1:].encode() for number in range(unit))
