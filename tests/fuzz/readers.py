"""Fuzzes the Python readers of untrusted files with mutated valid files: each is read, or refused in one line."""

import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from compiler_opt.array_files import load_arrays
from compiler_opt.corpus import bitcode
from compiler_opt.corpus.command_lines.command_line import compile_command
from compiler_opt.corpus.module import parse_options
from compiler_opt.errors import CompilerOptError
from compiler_opt.llvm import object_comparison, remarks
from compiler_opt.llvm.elf import ElfFile
from compiler_opt.llvm.object_file import object_sizes
from compiler_opt.llvm.training_log_reader import decode_log
from tests.fuzz.native import Fuzzed

_SECONDS_PER_INPUT = 10.0
_MAX_INPUT_BYTES = 1 << 16
_HOSTILE = [0, 1, 3, 0x7F, 0x80, 0xFF, 0xFFFF, 1 << 31, (1 << 32) - 1, 1 << 63, (1 << 64) - 1]


def _read_bitcode(data: bytes) -> None:
    bitcode.producer_version(data)
    bitcode.target_triple(data)
    bitcode.check(data, "fuzzed.bc", "make it again")
    assert b"".join(bitcode.split(data)) == data or not data.startswith(b"BC")


def _read_elf(data: bytes) -> None:
    file = ElfFile(Path("fuzzed.o"), data)
    sizes = object_sizes(file)
    assert all(value >= 0 for value in sizes.functions.values())
    assert object_comparison.compare(file, file) == ()


def _read_training_log(data: bytes) -> None:
    log = decode_log(data)
    assert 0 <= log.left_bytes < len(data)
    for column in log.arrays().values():
        assert len(column) == len(log)


def _read_remarks(data: bytes) -> None:
    remarks.parse_costs(data)
    remarks.parse_call_sites(data, {}, np.zeros(1, "i8"))


def _read_options(data: bytes) -> None:
    command = compile_command("clang", parse_options(data), "in.bc", "out.o")
    assert command[-5:] == ["-x", "ir", "in.bc", "-o", "out.o"]


def _read_arrays(data: bytes) -> None:
    file = os.memfd_create("fuzzed")
    try:
        os.write(file, data)
        for array in load_arrays(Path(f"/proc/self/fd/{file}"), _MAX_INPUT_BYTES).values():
            array.sum()
    finally:
        os.close(file)


READERS: dict[str, Callable[[bytes], None]] = {
    "arrays": _read_arrays,
    "bitcode": _read_bitcode,
    "elf": _read_elf,
    "options": _read_options,
    "remarks": _read_remarks,
    "training_log": _read_training_log,
}


def mutated(seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """One of the seeds with a few changes: bits, bytes, whole numbers, pieces removed, repeated or of another seed."""
    data = bytearray(rng.choice(seeds))
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        place = rng.randrange(len(data) + 1)
        kind = rng.randrange(7)
        if kind == 0 and data:
            data[place % len(data)] ^= 1 << rng.randrange(8)
        elif kind == 1 and data:
            data[place % len(data)] = rng.randrange(256)
        elif kind == 2:
            size = rng.choice((1, 2, 4, 8))
            number = rng.choice((*_HOSTILE, len(data), len(data) - place)) % (1 << 8 * size)
            data[place : place + size] = number.to_bytes(size, "little" if rng.randrange(2) else "big")
        elif kind == 3:
            del data[place : place + rng.choice((1, 4, 16, 256))]
        elif kind == 4:
            other = rng.choice(seeds)
            start = rng.randrange(len(other) + 1)
            data[place:place] = other[start : start + rng.choice((1, 8, 64, 256))]
        elif kind == 5:
            piece = data[place : place + rng.choice((1, 8, 64))]
            data[place:place] = piece * rng.choice((1, 2, 100))
        else:
            del data[place:]
        del data[_MAX_INPUT_BYTES:]
    return bytes(data)


def run(
    name: str, read: Callable[[bytes], None], seeds: Sequence[bytes], findings: Path, *, inputs: int, seed: int
) -> Fuzzed:
    """Gives a reader mutated seeds; stops at the first that it neither reads nor refuses, kept in `findings`.

    `Fuzzed.coverage` is the number of inputs that were read. For single-threaded programs.
    """

    def too_slow(*_: object) -> None:
        raise TimeoutError(f"took more than {_SECONDS_PER_INPUT:.0f} s")

    rng, begun_s = random.Random(seed), time.process_time()
    before = signal.signal(signal.SIGALRM, too_slow)
    accepted = 0
    try:
        for count in range(inputs):
            data = mutated(seeds, rng)
            signal.setitimer(signal.ITIMER_REAL, _SECONDS_PER_INPUT)
            problem = _problem(read, data)
            signal.setitimer(signal.ITIMER_REAL, 0)
            accepted += problem is None
            if problem:
                path = findings / f"{name}-{count}"
                path.write_bytes(data)
                return Fuzzed(name, count, accepted, time.process_time() - begun_s, f"{problem}; {path}")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return Fuzzed(name, inputs, accepted, time.process_time() - begun_s)


def _problem(read: Callable[[bytes], None], data: bytes) -> str | None:
    """None if it was read, empty if it was refused as it should be, else what is wrong."""
    try:
        read(data)
    except (CompilerOptError, ValueError) as error:
        # ValueError is what `array_files` and `bitcode.split` raise; UnicodeError is no refusal.
        if "\n" in str(error) or isinstance(error, UnicodeError):
            return f"{type(error).__name__}: {error}"
        return ""
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None
