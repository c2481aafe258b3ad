r"""The format in which LLVM writes observations: a training log on disk and the interactive channel share it.

    {"features": [{"name": ..., "type": ..., "port": ..., "shape": [...]}, ...], "advice": {...} [, "score": {...}]}\n
    {"context": "name"}\n
    {"observation": 0}\n
    <the features' raw bytes, in header order, host byte order>\n
    [{"outcome": 0}\n <the score's raw bytes>\n]
    ... more observations, more contexts

Written by `llvm/lib/Analysis/TrainingLogger.cpp`. Over the channel the reader answers each observation with the raw
bytes of the advice tensor; answers are not echoed.
"""

import dataclasses
import functools
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler_opt.errors import ProtocolError
from compiler_opt.tensor_spec import TensorSpec

MAX_LINE_BYTES = 1 << 20
MAX_FEATURES = 4096


@dataclasses.dataclass(frozen=True)
class Header:
    """What a log or channel carries.

    Attributes:
      features: the tensors of one observation, in the order in which their bytes come.
      advice: the tensor that decides.
      score: the tensor that follows an observation as its outcome, if there is one.
    """

    features: tuple[TensorSpec, ...]
    advice: TensorSpec
    score: TensorSpec | None = None

    @functools.cached_property
    def observation_bytes(self) -> int:
        """Bytes of one observation, without the newline after it."""
        return sum(spec.num_bytes for spec in self.features)

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self.features)

    def decode(self, observations: bytes) -> dict[str, np.ndarray]:
        """Views into concatenated observations.

        Args:
          observations: the bytes of T observations, one after the other.

        Returns:
          for each feature a read-only array `[T, *shape]`; an extent of 1 in front is kept as LLVM gives it.
        """
        records = np.frombuffer(observations, dtype=record_dtype(self.features))
        return {spec.name: records[spec.name] for spec in self.features}


def record_dtype(features: Sequence[TensorSpec]) -> np.dtype:
    """The packed structured type of one observation."""
    return np.dtype([(spec.name, spec.dtype, spec.shape) for spec in features])


def parse_json_line(line: bytes) -> dict[str, Any]:
    """One of the JSON lines of the format.

    Raises:
      ProtocolError: it is not a JSON object.
    """
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"log: expected a line with a JSON object, found {line[:80]!r}") from error
    if not isinstance(value, dict):
        raise ProtocolError(f"log: expected a JSON object, found {line[:80]!r}")
    return value


def parse_header(line: bytes) -> Header:
    """The first line.

    Raises:
      ProtocolError: it lacks a part, or one of its tensors is not well formed; the message names it.
    """
    specs, advice, score = _parse_tensors(line)
    if advice is None:
        raise ProtocolError("log header: expected the key 'advice', found none")
    return Header(specs, advice, score)


# Every compilation begins with the same line, and checking forty tensors takes longer than reading a log.
@functools.lru_cache(maxsize=32)
def _parse_tensors(line: bytes) -> tuple[tuple[TensorSpec, ...], TensorSpec | None, TensorSpec | None]:
    """Features, advice and score as the first line has them."""
    value = parse_json_line(line)
    features = value.get("features")
    if not isinstance(features, list) or not features or len(features) > MAX_FEATURES:
        raise ProtocolError(f"log header: expected a list of 1 to {MAX_FEATURES} features, found {features!r:.80}")
    specs = tuple(TensorSpec.from_json(feature) for feature in features)
    names = [spec.name for spec in specs]
    for name in names:
        if names.count(name) > 1:
            raise ProtocolError(f"log header: the feature {name!r} is given twice")
    advice, score = (TensorSpec.from_json(value[key]) if key in value else None for key in ("advice", "score"))
    return specs, advice, score


@dataclasses.dataclass(frozen=True)
class TrainingLog:
    """A whole log: T observations, K outcomes.

    Attributes:
      features: the tensors of one observation, in the order in which their bytes come.
      advice: the tensor that decides, where the log names it.
      score: the tensor of an outcome, where the log has outcomes.
      contexts: name and index of the first observation of each context; one that is taken up again comes again.
      observations: `[T, bytes of one]` uint8.
      outcomes: `[K, *shape]` of the score; `[0]` without outcomes.
      outcome_of: `[K]` int64, the observation that each outcome follows.
      left_bytes: bytes at the end that are no whole record: the writer died.
    """

    features: tuple[TensorSpec, ...]
    advice: TensorSpec | None
    score: TensorSpec | None
    contexts: tuple[tuple[str, int], ...]
    observations: np.ndarray
    outcomes: np.ndarray
    outcome_of: np.ndarray
    left_bytes: int

    def __len__(self) -> int:
        return len(self.observations)

    def arrays(self) -> dict[str, np.ndarray]:
        """For each feature a read-only view `[T, *shape]`."""
        records = self.observations.view(record_dtype(self.features))[:, 0]
        return {spec.name: records[spec.name] for spec in self.features}


def decode_log(content: bytes) -> TrainingLog:
    """Reads a log, whatever its tensors; no Python object is made per observation.

    A log may end anywhere, also within a record, once its first line is complete: whole records are kept.

    Raises:
      ProtocolError: something in it is not of the format; the message says at which byte.
    """
    return _LogDecoder(content).decode()


class _LogDecoder:
    def __init__(self, content: bytes):
        self._content = content
        self._position = 0
        self._contexts: list[tuple[str, int]] = []
        self._observations: list[np.ndarray] = []
        self._num_observations = 0
        self._last_index = -1
        self._outcomes: list[np.ndarray] = []
        self._outcome_of: list[np.ndarray] = []

    def decode(self) -> TrainingLog:
        line = self._line()
        if line is None:
            raise ProtocolError("log: its first line is not complete")
        features, advice, score = _parse_tensors(line)
        self._observation_bytes = sum(spec.num_bytes for spec in features)
        self._score_bytes = score.num_bytes if score is not None else None
        self._position += len(line) + 1
        while (line := self._line()) is not None and self._record(line):
            pass
        outcomes = np.concatenate([np.zeros((0, self._score_bytes or 1), np.uint8), *self._outcomes])
        empty = np.zeros((0, self._observation_bytes), np.uint8)
        return TrainingLog(
            features,
            advice,
            score,
            tuple(self._contexts),
            np.concatenate([empty, *self._observations]),
            outcomes.view(score.dtype).reshape(-1, *score.shape) if score is not None else np.zeros(0),
            np.concatenate([np.zeros(0, np.int64), *self._outcome_of]),
            len(self._content) - self._position,
        )

    def _line(self) -> bytes | None:
        """The line at the current position, without its newline; None when it is not complete."""
        end = self._content.find(b"\n", self._position, self._position + MAX_LINE_BYTES)
        if end < 0:
            if len(self._content) - self._position > MAX_LINE_BYTES:
                raise self._wrong(f"expected a line, found none within {MAX_LINE_BYTES} bytes")
            return None
        return self._content[self._position : end]

    def _record(self, line: bytes) -> bool:
        """Reads what begins with a line; False when it is not complete."""
        value = parse_json_line(line)
        if len(value) == 1 and isinstance(context := value.get("context"), str):
            self._contexts.append((context, self._num_observations))
            self._position += len(line) + 1
            return True
        for kind in ("observation", "outcome"):
            index = value.get(kind)
            if len(value) == 1 and isinstance(index, int) and not isinstance(index, bool) and 0 <= index < 10**18:
                return self._run(line, index) if kind == "observation" else self._outcome(line, index)
        raise self._wrong(f"expected a context, an observation or an outcome, found {line[:80]!r}")

    def _run(self, line: bytes, index: int) -> bool:
        """Reads an observation and those after it that look alike: as many digits, and with or without outcome."""
        content, begin = self._content, self._position
        parts = [(line, self._observation_bytes)]
        stride = len(line) + self._observation_bytes + 2
        outcome_line = b'{"outcome":%d}' % index
        if self._score_bytes is not None and content.startswith(outcome_line + b"\n", begin + stride):
            parts.append((outcome_line, self._score_bytes))
            stride += len(outcome_line) + self._score_bytes + 2
        available = (len(content) - begin) // stride
        if not available and len(parts) == 2:
            del parts[1]
            stride = len(line) + self._observation_bytes + 2
            available = (len(content) - begin) // stride
        if not available:
            return False
        digits = len(str(index))
        alike = 10**digits - index if line == b'{"observation":%d}' % index else 1
        count = min(available, alike)
        block = np.frombuffer(content, np.uint8, count * stride, begin).reshape(count, stride)
        numbers = index + np.arange(count, dtype=np.int64)
        written = (numbers[:, np.newaxis] // 10 ** np.arange(digits - 1, -1, -1) % 10 + ord("0")).astype(np.uint8)
        good = np.ones(count, np.bool_)
        payloads, column = [], 0
        for text, num_bytes in parts:
            expected = np.tile(np.frombuffer(text + b"\n", np.uint8), (count, 1))
            if alike > 1:
                expected[:, len(text) - 1 - digits : len(text) - 1] = written
            good &= (block[:, column : column + len(text) + 1] == expected).all(axis=1)
            column += len(text) + 1
            payloads.append(block[:, column : column + num_bytes])
            column += num_bytes
            good &= block[:, column] == ord("\n")
            column += 1
        count = count if good.all() else int(good.argmin())
        if not count:
            raise self._wrong(f"expected a newline after observation {index}")
        self._observations.append(payloads[0][:count])
        if len(payloads) == 2:
            self._outcomes.append(payloads[1][:count])
            self._outcome_of.append(self._num_observations + np.arange(count, dtype=np.int64))
        self._num_observations += count
        self._last_index = index + count - 1 if len(payloads) == 1 else -1
        self._position += count * stride
        return True

    def _outcome(self, line: bytes, index: int) -> bool:
        """Reads an outcome that does not come with every observation."""
        if self._score_bytes is None:
            raise self._wrong("found an outcome, but the header has no score")
        if index != self._last_index:
            raise self._wrong(f"expected the outcome of the observation before it, found that of {index}")
        begin = self._position + len(line) + 1
        end = begin + self._score_bytes
        if len(self._content) <= end:
            return False
        if self._content[end] != ord("\n"):
            raise self._wrong(f"expected a newline after outcome {index}")
        self._outcomes.append(np.frombuffer(self._content, np.uint8, self._score_bytes, begin)[np.newaxis])
        self._outcome_of.append(np.array([self._num_observations - 1], np.int64))
        self._last_index = -1
        self._position = end + 1
        return True

    def _wrong(self, what: str) -> ProtocolError:
        return ProtocolError(f"log: at byte {self._position}: {what}")
