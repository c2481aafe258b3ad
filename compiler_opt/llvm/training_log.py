r"""The format in which LLVM writes observations: a training log on disk and the interactive channel share it.

    {"features": [{"name": ..., "type": ..., "port": ..., "shape": [...]}, ...], "advice": {...} [, "score": {...}]}\n
    {"context": "name"}\n
    {"observation": 0}\n
    <the features' raw bytes, in header order, host byte order>\n
    [{"outcome": 0}\n <the score's raw bytes>\n]
    ... more observations, more contexts

Written by `llvm/lib/Analysis/TrainingLogger.cpp`. Observations count from 0 in each context, and go on counting when a
context is taken up again. What a model tells beside its advice (such as logits) is among the features, after those of
the compiler. Over the channel the reader answers each observation with the raw bytes of the advice tensor; answers are
not echoed.

Here is what the two have in common; `training_log_reader` reads logs, `training_log_writer` writes them.
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
MAX_RECORD_BYTES = 1 << 28
"""What the features of one observation may take."""


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
    specs, advice, score = parse_tensors(line)
    if advice is None:
        raise ProtocolError("log header: expected the key 'advice', found none")
    return Header(specs, advice, score)


# Every compilation begins with the same line, and checking forty tensors takes longer than reading a log.
@functools.lru_cache(maxsize=32)
def parse_tensors(line: bytes) -> tuple[tuple[TensorSpec, ...], TensorSpec | None, TensorSpec | None]:
    """Features, advice and score as the first line has them.

    Raises:
      ProtocolError: one of them is not well formed; the message names it.
    """
    value = parse_json_line(line)
    features = value.get("features")
    if not isinstance(features, list) or not features or len(features) > MAX_FEATURES:
        raise ProtocolError(f"log header: expected a list of 1 to {MAX_FEATURES} features, found {features!r:.80}")
    specs = tuple(TensorSpec.from_json(feature) for feature in features)
    names = set()
    for spec in specs:
        if spec.name in names:
            raise ProtocolError(f"log header: the feature {spec.name!r} is given twice")
        names.add(spec.name)
    num_bytes = sum(spec.num_bytes for spec in specs)
    if num_bytes > MAX_RECORD_BYTES:
        raise ProtocolError(f"log header: an observation takes {num_bytes} bytes, over the limit {MAX_RECORD_BYTES}")
    advice, score = (TensorSpec.from_json(value[key]) if key in value else None for key in ("advice", "score"))
    return specs, advice, score
