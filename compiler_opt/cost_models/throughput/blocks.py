"""A basic block of machine code, what is known about it, and files of blocks.

A file of blocks (`.npz`, see `array_files`) has, for `N` blocks in their order:

    format          [1]     2
    code            [C]     uint8: the bytes of all blocks, one after the other
    code_ends       [N]     where each block ends in `code`
    texts           [T]     uint8: UTF-8 names of modules, functions and label sources, one after the other
    text_ends       [S]     where each name ends in `texts`
    module          [N]     number of the module's name
    function        [N]     number of the function's name
    block_id        [N]     the compiler's number of the block in its function
    frequency       [N]     see `Block`, as all that follows
    count           [N]     NaN if unknown
    num_copies      [N]
    annotations     [N, A]  in the order of `ANNOTATIONS`; NaN if unknown
    label_sources   [L]     numbers of the sources' names
    labels          [N, L]  NaN for no label from this source
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from compiler_opt.array_files import load_arrays, save_arrays
from compiler_opt.errors import CorpusError

ANNOTATIONS = ("instruction_misses", "data_misses", "last_level_misses", "mispredicted_entries")
"""What may be measured about a block when it runs, each per execution of the block.

Mispredicted entries are mispredicted branches that led to the block, see `measure/mispredictions.py`.
"""

UNKNOWN = (math.nan,) * len(ANNOTATIONS)
"""The annotations of a block that nobody has run."""

MIN_ALIKE = 0.8
"""The part of a function's blocks that must be alike in two builds for the function to count as unchanged."""

MAX_FILE_BYTES = 1 << 32
_FREQUENCY_TOLERANCE = 1e-3
_FORMAT = 2
_REMEDY = "make it again with compiler_opt cost_model blocks or profile"


@dataclasses.dataclass(frozen=True)
class Block:
    """A basic block.

    Attributes:
      code: its bytes as in the object: what the linker fills in is zero. In data sets, the targets of its relative
        branches are zero, too.
      module: the module that it comes from, e.g. `leveldb/db/builder.o`.
      function: symbol of its function.
      block_id: the compiler's number of the block in its function, as in `llvm-readobj --bb-addr-map`.
      frequency: how often it runs per call of the function, as the compiler estimates.
      count: how often it ran in a measurement; NaN if unknown.
      num_copies: blocks with these bytes in the data set's corpus, of which this one stands for all.
      annotations: events per execution in a measurement, in the order of `ANNOTATIONS`; NaN if unknown.
      labels: time per execution by its source: cycles, e.g. by `llvm-mca 22.1.0 skylake`, or nanoseconds, by
        `measured ns`.
    """

    code: bytes
    module: str
    function: str
    block_id: int
    frequency: float
    count: float = math.nan
    num_copies: int = 1
    annotations: tuple[float, ...] = UNKNOWN
    labels: Mapping[str, float] = dataclasses.field(default_factory=dict)


def is_close(one: Any, other: Any) -> Any:
    """Whether estimated frequencies are the same, but for rounding: of numbers, or of arrays element by element."""
    return np.abs(one - other) <= _FREQUENCY_TOLERANCE * other


def save_blocks(path: Path, blocks: Sequence[Block]) -> None:
    """Writes a file of blocks; raises OutputError if that is impossible."""
    save_arrays(path, to_arrays(blocks), compressed=True)


def to_arrays(blocks: Sequence[Block]) -> dict[str, np.ndarray]:
    """The arrays of a file of blocks."""
    numbers: dict[str, int] = {}

    def number(text: str) -> int:
        return numbers.setdefault(text, len(numbers))

    sources = sorted({source for block in blocks for source in block.labels})
    arrays = {
        "format": np.array([_FORMAT]),
        "module": np.array([number(block.module) for block in blocks], np.int32),
        "function": np.array([number(block.function) for block in blocks], np.int32),
        "block_id": np.array([block.block_id for block in blocks], np.int64),
        "frequency": np.array([block.frequency for block in blocks], np.float64),
        "count": np.array([block.count for block in blocks], np.float64),
        "num_copies": np.array([block.num_copies for block in blocks], np.int64),
        "annotations": np.array([block.annotations for block in blocks], np.float32).reshape(-1, len(ANNOTATIONS)),
        "label_sources": np.array([number(source) for source in sources], np.int32),
        "labels": np.array(
            [[block.labels.get(source, math.nan) for source in sources] for block in blocks], np.float64
        ).reshape(len(blocks), len(sources)),
    }
    texts = [text.encode("utf-8", "backslashreplace") for text in numbers]
    arrays["code"], arrays["code_ends"] = _joined([block.code for block in blocks])
    arrays["texts"], arrays["text_ends"] = _joined(texts)
    return arrays


def load_blocks(path: Path) -> list[Block]:
    """Reads a file of blocks.

    Raises:
      CorpusError: there is none, or it is damaged.
    """
    try:
        return from_arrays(load_arrays(path, MAX_FILE_BYTES))
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read: {error.strerror}; {_REMEDY}") from None
    except KeyError as error:
        raise CorpusError(f"{path}: no file of blocks: it lacks {error}; {_REMEDY}") from None
    except ValueError as error:
        raise CorpusError(f"{path}: damaged: {error}; {_REMEDY}") from None


def from_arrays(arrays: Mapping[str, np.ndarray]) -> list[Block]:
    """The blocks of a file's arrays; raises KeyError or ValueError if they do not fit together."""
    if arrays["format"].tolist() != [_FORMAT]:
        raise ValueError(f"expected format {_FORMAT}, found {arrays['format'].tolist()[:3]}")
    codes = _split(arrays, "code", "code_ends")
    texts = [text.decode("utf-8", "replace") for text in _split(arrays, "texts", "text_ends")]
    size = len(codes)
    columns = {name: arrays[name] for name in ("module", "function", "block_id", "frequency", "count", "num_copies")}
    annotations, labels = arrays["annotations"], arrays["labels"]
    sources = _names(texts, "label_sources", arrays["label_sources"])
    shapes = {**dict.fromkeys(columns, (size,)), "annotations": (size, len(ANNOTATIONS))}
    for name, shape in {**shapes, "labels": (size, len(sources))}.items():
        if arrays[name].shape != shape:
            raise ValueError(f"{name}: expected the shape {shape}, found {arrays[name].shape}")
    if len(labels) and ((labels <= 0) | np.isinf(labels)).any():
        raise ValueError("labels: expected positive cycles")
    if not (np.isfinite(columns["frequency"]) & (columns["frequency"] >= 0)).all():
        raise ValueError("frequency: expected finite numbers of at least 0")
    modules, functions = (_names(texts, name, columns[name]) for name in ("module", "function"))
    known = ~np.isnan(labels)
    return [
        Block(
            code,
            module,
            function,
            block_id,
            frequency,
            count,
            num_copies,
            tuple(annotation),
            _labels(sources, is_known, label),
        )
        for code, module, function, block_id, frequency, count, num_copies, annotation, is_known, label in zip(
            codes,
            modules,
            functions,
            *(columns[name].tolist() for name in ("block_id", "frequency", "count", "num_copies")),
            annotations.tolist(),
            known.tolist(),
            labels.tolist(),
            strict=True,
        )
    ]


def _labels(sources: Sequence[str], is_known: Sequence[bool], label: Sequence[float]) -> dict[str, float]:
    return {source: value for source, known, value in zip(sources, is_known, label, strict=True) if known}


def _names(texts: Sequence[str], name: str, numbers: np.ndarray) -> list[str]:
    if numbers.dtype.kind != "i" or numbers.ndim != 1:
        raise ValueError(f"{name}: expected integers")
    if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < len(texts):
        raise ValueError(f"{name}: expected numbers of {len(texts)} names, found others")
    return [texts[number] for number in numbers.tolist()]


def _joined(parts: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
    return np.frombuffer(b"".join(parts), np.uint8), np.cumsum([len(part) for part in parts], dtype=np.int64)


def _split(arrays: Mapping[str, np.ndarray], name: str, ends_name: str) -> list[bytes]:
    content, ends = arrays[name], arrays[ends_name]
    if content.dtype != np.uint8 or content.ndim != 1 or ends.dtype.kind != "i" or ends.ndim != 1:
        raise ValueError(f"{name}: expected bytes and where they end")
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])[: len(ends)]
    if (starts > ends).any() or (ends[-1] if len(ends) else 0) != len(content):
        raise ValueError(f"{ends_name}: expected ascending positions up to {len(content)}")
    joined = content.tobytes()
    return [joined[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
