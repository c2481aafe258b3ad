r"""LLVM's format of observations, shared by training logs and the interactive channel.

    {"features": [{"name": ..., "type": ..., "port": ..., "shape": [...]}, ...], "advice": {...} [, "score": {...}]}\n
    {"context": "name"}\n
    {"observation": 0}\n
    <the features' raw bytes, in header order and host byte order>\n
    [{"outcome": 0}\n <the score's raw bytes>\n]
    ... more observations, more contexts

Source: `llvm/lib/Analysis/TrainingLogger.cpp`. Observations of a context are numbered from 0; the numbers continue when
the context is resumed. A model's outputs other than the advice (such as logits) are features too, after the compiler's.
Over the channel, the host answers each observation with the raw bytes of the advice tensor; answers are not echoed.
`training_log_reader` reads logs.
"""

import dataclasses
import functools
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from compiler_opt.errors import ProtocolError
from compiler_opt.tensor_spec import TensorSpec

MAX_LINE_BYTES = 1 << 20
MAX_FEATURES = 4096
MAX_RECORD_BYTES = 1 << 28
"""The limit of the features of one observation."""


@dataclasses.dataclass(frozen=True)
class Header:
    """The tensors of a log or channel.

    All of a process that were unpickled and are equal are the same object.

    Attributes:
      features: the tensors of one observation, in the order of their bytes.
      advice: the tensor of the decision.
      score: the tensor of an outcome, if observations have outcomes.
    """

    features: tuple[TensorSpec, ...]
    advice: TensorSpec
    score: TensorSpec | None = None

    def __reduce__(self) -> tuple[Callable[[bytes], "Header"], tuple[bytes]]:
        """As a line of JSON: a host has thousands of rollouts at a time, and each its header."""
        return parse_header, (self.line,)

    @functools.cached_property
    def line(self) -> bytes:
        """LLVM's JSON form, as the first line of a channel."""
        score = {} if self.score is None else {"score": self.score.to_json()}
        features = [spec.to_json() for spec in self.features]
        return json.dumps({"features": features, "advice": self.advice.to_json(), **score}).encode()

    @functools.cached_property
    def observation_bytes(self) -> int:
        """Bytes of one observation, without the newline after it."""
        return sum(spec.num_bytes for spec in self.features)

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self.features)

    def decode(self, observations: bytes | memoryview) -> dict[str, np.ndarray]:
        """For each feature a read-only view `[T, *shape]` of the concatenated bytes of T observations."""
        records = np.frombuffer(observations, dtype=record_dtype(self.features))
        return {spec.name: records[spec.name] for spec in self.features}


def record_dtype(features: Sequence[TensorSpec]) -> np.dtype:
    """The packed structured type of one observation."""
    return np.dtype([(spec.name, spec.dtype, spec.shape) for spec in features])


def parse_json_line(line: bytes) -> dict[str, Any]:
    """Parses a line that must be a JSON object; raises ProtocolError if it is not."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"log: expected a line with a JSON object, found {line[:80]!r}") from error
    if not isinstance(value, dict):
        raise ProtocolError(f"log: expected a JSON object, found {line[:80]!r}")
    return value


@functools.lru_cache(maxsize=32)
def parse_header(line: bytes) -> Header:
    """Parses the first line of a channel; raises ProtocolError, which names the part that is missing or malformed."""
    specs, advice, score = parse_tensors(line)
    if advice is None:
        raise ProtocolError("log header: expected the key 'advice', found none")
    return Header(specs, advice, score)


# Every compilation begins with the same line; checking forty tensors takes longer than reading a log.
@functools.lru_cache(maxsize=32)
def parse_tensors(line: bytes) -> tuple[tuple[TensorSpec, ...], TensorSpec | None, TensorSpec | None]:
    """Parses the first line of a log to features, advice and score; raises ProtocolError if one is malformed."""
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
