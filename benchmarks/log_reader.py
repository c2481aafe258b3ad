"""Measures reading a training log from page cache, in GB per CPU second: our reader, and one record at a time.

Two logs are written to a temporary directory: one like inlining's (38 scalar int64 features, an outcome after each
observation, few long contexts) and one like eviction's (features `[1, 33]`, a context for each function, an outcome
after its last observation). The ways to read alternate, so that changes of the machine's speed affect all alike.
Figures are per second of this process's CPU time, kernel included, because other programs may run; wall-clock time is
printed, too.

- bytes: reads the file into memory and nothing else; the machine's limit.
- blocks: `read_log`, which finds every record and checks every line; views into the file, no feature decoded.
- arrays: blocks, and each feature as a view `[T, ...]` of one copy in which the observations are contiguous.
- columns: blocks, and each feature as a contiguous array `[T, ...]` of its own.
- columns, summed: columns, and the sum of every feature.
- record at a time: a Python loop that makes a numpy array of every tensor of every record, without joining them. It
  reads only the beginning of the log, which is compared with the same part of `read_log`'s result.
"""

import dataclasses
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from absl import flags

from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.training_log_reader import decode_log, read_log
from compiler_opt.tensor_spec import TensorSpec
from compiler_opt.tools import entry_point, shared_flags
from tests.llvm.training_log_writer import TrainingLogWriter

_MEGABYTES = flags.DEFINE_integer("megabytes", 300, "Size of each log.", 1)
_PLAIN_MEGABYTES = flags.DEFINE_integer("plain_megabytes", 10, "Part of it for the record-at-a-time reader.", 1)
_REPETITIONS = flags.DEFINE_integer("repetitions", 9, "Repetitions of each log and way.", 1)
_SEED = shared_flags.seed("the numbers in the logs", 1)

_INT64, _FLOAT = np.dtype("i8"), np.dtype("f4")
_ADVICE, _SCORE = TensorSpec("advice", _INT64, (1,)), TensorSpec("reward", _FLOAT, (1,))
_PLAIN = "record at a time"


@dataclasses.dataclass(frozen=True)
class _Kind:
    """A log to write: how many observations a context has on average, and whether each has an outcome."""

    name: str
    features: list[TensorSpec]
    mean_context: int
    outcomes: bool


_KINDS = (
    _Kind("inlining", [TensorSpec(f"feature {place}", _INT64, (1,)) for place in range(38)], 100_000, True),
    _Kind(
        "eviction",
        [
            *(TensorSpec(f"integer {place}", _INT64, (1, 33)) for place in range(6)),
            *(TensorSpec(f"real {place}", _FLOAT, (1, 33)) for place in range(12)),
            TensorSpec("progress", _FLOAT, (1,)),
            TensorSpec("index_to_evict", _INT64, (1,)),
        ],
        10,
        False,
    ),
)


@entry_point.command
def entry() -> None:
    print("GB per CPU second, page cache: median (least to most) of the repetitions")
    with scratch_directory() as scratch:
        for kind in _KINDS:
            path = scratch / kind.name
            _write(path, kind)
            _measure(path, kind)
            path.unlink()
    print(f"  {_REPETITIONS.value} repetitions; Python {platform.python_version()}; numpy {np.__version__}")
    print(f"  {os.cpu_count()} threads, of which one reads; {platform.machine()}")


def _write(path: Path, kind: _Kind) -> None:
    rng = np.random.default_rng(_SEED.value)
    with path.open("wb") as file:
        writer = TrainingLogWriter(file, kind.features, advice=_ADVICE, score=_SCORE)
        num_contexts = 0
        while file.tell() < 1e6 * _MEGABYTES.value:
            writer.context(f"context {num_contexts}")
            num_contexts += 1
            length = int(rng.geometric(1 / kind.mean_context))
            arrays = {
                spec.name: rng.integers(0, 1000, (length, *spec.shape)).astype(spec.dtype) for spec in kind.features
            }
            writer.observations(arrays, rng.random((length, 1)) if kind.outcomes else None)
            if not kind.outcomes:
                writer.outcome(0.5)


def _measure(path: Path, kind: _Kind) -> None:
    log = read_log(path)
    size = path.stat().st_size
    print(f"{kind.name}: {size / 1e6:.0f} MB, {len(log)} observations, {len(log.contexts)} contexts")
    _compare_beginning(path)
    ways: dict[str, Callable[[], int]] = {
        "bytes": lambda: len(path.read_bytes()),
        "blocks": lambda: size - read_log(path).left_bytes,
        "arrays": lambda: size * bool(read_log(path).arrays()),
        "columns": lambda: size * bool(read_log(path).columns()),
        "columns, summed": lambda: size * bool([column.sum() for column in read_log(path).columns().values()]),
        _PLAIN: lambda: _record_at_a_time(path)[0],
    }
    cpu: dict[str, list[float]] = {name: [] for name in ways}
    wall: dict[str, list[float]] = {name: [] for name in ways}
    # The first repetition warms caches and does not count.
    for repetition in range(-1, _REPETITIONS.value):
        for name, read in ways.items():
            start_s, cpu_start_s = time.perf_counter(), time.process_time()
            gigabytes = read() / 1e9
            cpu_s, wall_s = time.process_time() - cpu_start_s, time.perf_counter() - start_s
            if repetition >= 0:
                cpu[name].append(gigabytes / cpu_s)
                wall[name].append(gigabytes / wall_s)
    plain = statistics.median(cpu[_PLAIN])
    for name, speeds in cpu.items():
        median = statistics.median(speeds)
        ratio = median / plain
        print(
            f"  {name:16} {median:6.3f}  ({min(speeds):.3f} to {max(speeds):.3f}), {ratio:5.1f} times the last; "
            f"wall clock {statistics.median(wall[name]):.3f} ({min(wall[name]):.3f} to {max(wall[name]):.3f})"
        )


def _record_at_a_time(path: Path) -> tuple[int, list[dict[str, np.ndarray]]]:
    """The plain loop over the beginning of the log; returns the bytes read and the result."""
    records = []
    with path.open("rb") as file:
        features = [TensorSpec.from_json(feature) for feature in json.loads(file.readline())["features"]]
        while file.tell() < 1e6 * _PLAIN_MEGABYTES.value and (line := file.readline()):
            event = json.loads(line)
            if "observation" in event:
                records.append(
                    {
                        spec.name: np.frombuffer(file.read(spec.num_bytes), spec.dtype).reshape(spec.shape)
                        for spec in features
                    }
                )
                file.read(1)
            elif "outcome" in event:
                np.frombuffer(file.read(_SCORE.num_bytes), _SCORE.dtype)
                file.read(1)
        return file.tell(), records


def _compare_beginning(path: Path) -> None:
    num_bytes, records = _record_at_a_time(path)
    with path.open("rb") as file:
        log = decode_log(file.read(num_bytes))
    assert len(log) == len(records)
    for name, column in log.columns().items():
        np.testing.assert_array_equal(column, np.stack([record[name] for record in records]))


if __name__ == "__main__":
    entry()
