"""Writes training logs byte for byte as LLVM's `Logger` does; `compiler_opt.llvm.training_log` describes the format."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import ArrayLike

from compiler_opt.llvm.training_log import parse_tensors, record_dtype
from compiler_opt.tensor_spec import TensorSpec


class TrainingLogWriter:
    """Writes a log; numbers the observations of each context.

    writer = TrainingLogWriter(file, features, advice=advice, score=score)
    writer.context("module")
    writer.observation({"callee_users": 3, "caller_users": 1})
    writer.outcome(0.5)
    """

    def __init__(
        self,
        file: BinaryIO,
        features: Sequence[TensorSpec],
        *,
        advice: TensorSpec | None = None,
        score: TensorSpec | None = None,
    ):
        """Writes the first line.

        Args:
          file: open for writing; the caller flushes and closes it.
          features: the tensors of one observation.
          advice: the tensor of the decision, if the log is to name it.
          score: the tensor of an outcome, if there are to be outcomes.

        Raises:
          ProtocolError: a log of these tensors could not be read.
        """
        header: dict[str, Any] = {"features": [spec.to_json() for spec in features]}
        header |= {name: spec.to_json() for name, spec in (("score", score), ("advice", advice)) if spec is not None}
        line = _json_line(header)
        parse_tensors(line[:-1])
        self._file = file
        self._features = tuple(features)
        self._score = score
        self._context = ""
        self._counts: dict[str, int] = {}
        self._without_outcome: str | None = None  # the context of the last observation, while it has none
        file.write(line)

    def context(self, name: str) -> None:
        """Begins a context, or takes it up again."""
        self._file.write(_json_line({"context": name}))
        self._context = name

    def observation(self, tensors: Mapping[str, ArrayLike]) -> None:
        """Writes an observation, given the numbers of each feature.

        Raises:
          ValueError: a feature is missing, is unknown, or has numbers that do not fit it.
        """
        self.observations({name: np.asarray(tensor)[np.newaxis] for name, tensor in tensors.items()})

    def observations(self, arrays: Mapping[str, ArrayLike], outcomes: ArrayLike | None = None) -> None:
        """Writes T observations.

        Args:
          arrays: for each feature `[T, *shape]`, as `TrainingLog.arrays` gives them.
          outcomes: `[T, *shape]` of the score, if each observation has one.

        Raises:
          ValueError: a feature is missing, is unknown, or has numbers that do not fit it.
        """
        names = [spec.name for spec in self._features]
        if sorted(names) != sorted(arrays):
            raise ValueError(f"expected the features {', '.join(names)}; found {', '.join(arrays)}")
        length = len(np.asarray(arrays[names[0]]))
        records: np.ndarray = np.empty(length, record_dtype(self._features))
        for spec in self._features:
            records[spec.name] = _tensors(spec, arrays[spec.name], length)
        scores = None if outcomes is None else _tensors(self._outcome_spec(), outcomes, length)
        for row in range(length):
            self._write_observation(records[row].tobytes())
            if scores is not None:
                self._write_outcome(scores[row].tobytes())

    def outcome(self, value: ArrayLike) -> None:
        """Writes the outcome of the last observation.

        Raises:
          ValueError: there is no such observation in this context, it has an outcome, or the log has no score.
        """
        score = self._outcome_spec()
        if self._without_outcome != self._context:
            raise ValueError(f"context {self._context!r}: there is no observation that could have an outcome")
        self._write_outcome(_tensors(score, value, 1).tobytes())

    def _outcome_spec(self) -> TensorSpec:
        if self._score is None:
            raise ValueError("a log without a score has no outcomes")
        return self._score

    def _write_observation(self, payload: bytes) -> None:
        index = self._counts.get(self._context, 0)
        self._file.write(b'{"observation":%d}\n%b\n' % (index, payload))
        self._counts[self._context] = index + 1
        self._without_outcome = self._context

    def _write_outcome(self, payload: bytes) -> None:
        self._file.write(b'{"outcome":%d}\n%b\n' % (self._counts[self._context] - 1, payload))
        self._without_outcome = None


def _tensors(spec: TensorSpec, values: ArrayLike, length: int) -> np.ndarray:
    """`[length, *shape]` of the tensor's type."""
    given = np.asarray(values)
    if given.size != length * spec.num_elements:
        raise ValueError(f"tensor {spec.name!r}: expected the shape {(length, *spec.shape)}, found {given.shape}")
    with np.errstate(invalid="ignore"):
        array = given.astype(spec.dtype)
    if spec.dtype.kind in "iu" and not np.array_equal(array, given):
        raise ValueError(f"tensor {spec.name!r}: not all numbers are of the type {spec.dtype}")
    return array.reshape(length, *spec.shape)


def _json_line(value: Mapping[str, Any]) -> bytes:
    """As LLVM writes JSON, which has no short escapes for two of the control characters."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    escapes = {r"\b": r"\u0008", r"\f": r"\u000c"}
    return re.sub(r"\\.", lambda match: escapes.get(match[0], match[0]), text).encode() + b"\n"
