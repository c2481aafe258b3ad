"""Samples where in a program its time passes, by `perf record`.

    run = run_sampled(["./bench", "100"], Path("bench"))
    run.samples.offsets[0x16d0], run.samples.period_ns

The event is the processor's clock in user mode, which needs no counters of the processor. It interrupts the program
each `PERIOD_NS` of its CPU time, and the sample is the instruction that was then about to run or to complete. So
samples lean towards slow instructions and the ones after them, and blocks of few instructions are the least certain.

Samples are read from the text of `perf script`, which may come from another machine:

    perf record --buildid-mmap -e cpu-clock:u -c 50000 -o bench.data -- ./bench 100
    perf script -i bench.data --show-mmap-events -F pid,period,ip > bench.txt

     2586 PERF_RECORD_MMAP2 2586/2586: [0x5575cc2ec000(0x20000) @ 0x15000 <BUILD ID>]: r-xp /home/me/bench
     2586      50000      5575cc2ec7d0      the process, nanoseconds since the last sample, the address

A mapping says where a part of a file is in memory. Samples are counted by their offset in the program's file, so that
it does not matter where the program was loaded.
"""

import bisect
import collections
import dataclasses
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from compiler_opt.errors import ProtocolError, ToolchainError
from compiler_opt.files import read_regular, shown
from compiler_opt.llvm import processes
from compiler_opt.llvm.elf import ElfFile
from compiler_opt.llvm.processes import ProcessResult
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.measure import perf

PERIOD_NS = 50_000
MAX_SCRIPT_BYTES = 1 << 28

_EVENT = "cpu-clock:u"
_BUILD_ID_SECTION = ".note.gnu.build-id"
_NOTE_HEAD_BYTES = 16  # sizes of name and description, type, and the name `GNU`
_MAX_BUILD_ID_BYTES = 64
_FIELDS = ("--show-mmap-events", "-F", "pid,period,ip")
_RECORD_AGAIN = "record it with perf record --buildid-mmap and print it with perf script --show-mmap-events"
_REPEAT = """
import subprocess, sys
for _ in range(int(sys.argv[1])):
    status = subprocess.run(sys.argv[2:]).returncode
    if status:
        sys.exit(status if status > 0 else 128 - status)
"""
_SAMPLE = re.compile(r"\s*(\d{1,10})\s+(\d{1,15})\s+([0-9a-f]{1,16})\s*")
_MAPPING = re.compile(
    r"\s*\d+\s+PERF_RECORD_MMAP2 (-?\d{1,10})/-?\d+: \[0x([0-9a-f]{1,16})\(0x([0-9a-f]{1,16})\) @ "
    r"(0|0x[0-9a-f]{1,16}) (?:<([0-9a-f]+)>|[^\]<]*)\]: \S+ (.*)"
)
_OTHER_EVENT = re.compile(r"\s*\d+\s+PERF_RECORD_\w+.*|#.*|\s*")


@dataclasses.dataclass(frozen=True)
class Samples:
    """Samples of one program.

    Attributes:
      offsets: how many were at each offset in the program's file.
      elsewhere: how many were in libraries.
      period_ns: of CPU time between two samples; 0 if there are none.
    """

    offsets: Mapping[int, int]
    elsewhere: int
    period_ns: int

    def __add__(self, other: "Samples") -> "Samples":
        offsets = dict(collections.Counter(self.offsets) + collections.Counter(other.offsets))
        return Samples(offsets, self.elsewhere + other.elsewhere, self.period_ns or other.period_ns)


NO_SAMPLES = Samples({}, 0, 0)


@dataclasses.dataclass(frozen=True)
class SampledRun:
    """A run under perf: how it ended and what it printed, and its samples; None if the program failed."""

    result: ProcessResult
    samples: Samples | None


def check_sampling() -> None:
    """Tries to sample; raises ToolchainError if perf is not installed, or may not sample on this machine."""
    program = str(perf.installed())
    with scratch_directory() as scratch:
        result = processes.run(_record([program, "--version"], scratch / "perf.data"))
    if not result.ok:
        raise ToolchainError(
            f"perf: cannot sample here ({result.describe()}); allow it: sysctl kernel.perf_event_paranoid=2"
        )


def build_id(path: Path) -> str:
    """The build id of a program, which the linker writes into it.

    Raises:
      ProtocolError: it is no program, or has none.
    """
    file = ElfFile.read(path)
    sections = file.sections_named(_BUILD_ID_SECTION)
    note = file.section_bytes(sections[0]) if sections else b""
    found = note[_NOTE_HEAD_BYTES : _NOTE_HEAD_BYTES + _MAX_BUILD_ID_BYTES].hex()
    if not found:
        raise file.error("expected a build id, by which its profiles are known; link it with -Wl,--build-id")
    return found


def run_sampled(
    command: Sequence[str],
    program: Path,
    *,
    repetitions: int = 1,
    timeout_s: float = processes.DEFAULT_TIMEOUT_S,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> SampledRun:
    """Runs a command under perf, several times in a row, until it fails.

    Args:
      command: argument list.
      program: the file whose samples are counted: the command's program, or one that it starts.
      repetitions: how often it runs. Starting perf and reading its samples takes a second, so that this pays for short
        runs; the standard output is that of all runs.
      timeout_s: wall-clock limit of all runs together, in seconds.
      cwd: working directory.
      environment: all environment variables; None for this process's.

    Raises:
      ProtocolError: the program has no build id, no samples, or they cannot be read.
      ToolchainError: perf is not installed.
    """
    expected = build_id(program)
    with scratch_directory() as scratch:
        data = scratch / "perf.data"
        repeated = [sys.executable, "-c", _REPEAT, str(repetitions), *command] if repetitions > 1 else command
        result = processes.run(_record(repeated, data), timeout_s=timeout_s, cwd=cwd, environment=environment)
        if not result.ok:
            return SampledRun(result, None)
        script = processes.run(
            [str(perf.installed()), "script", "-i", str(data), *_FIELDS],
            max_stdout_bytes=MAX_SCRIPT_BYTES,
            timeout_s=timeout_s,
        )
        if not script.ok:
            raise ProtocolError(f"{command[0]}: its samples cannot be read: {script.describe()}")
    return SampledRun(result, parse(script.stdout, expected, command[0]))


def read_script(path: Path, program: Path) -> Samples:
    """The samples of a program in a file with the output of `perf script`; for errors see `parse`."""
    try:
        content = read_regular(path, MAX_SCRIPT_BYTES)
    except OSError as error:
        raise ProtocolError(f"{path}: cannot be read: {error.strerror}") from None
    return parse(content, build_id(program), str(path))


def parse(content: bytes, expected: str, origin: str = "perf script") -> Samples:
    """Reads the output of `perf script`; see the module. What follows the last whole line is ignored.

    Args:
      content: the output.
      expected: build id of the program.
      origin: begins messages.

    Raises:
      ProtocolError: it has another format, or no mapping or samples of a program with this build id.
    """
    lines = content.decode("utf-8", "replace").split("\n")[:-1]
    mappings: dict[int, list[tuple[int, int, int]]] = collections.defaultdict(list)
    others: dict[str, str] = {}
    found: list[tuple[int, int]] = []
    periods: set[int] = set()
    for number, line in enumerate(lines, 1):
        if sample := _SAMPLE.fullmatch(line):
            found.append((int(sample[1]), int(sample[3], 16)))
            periods.add(int(sample[2]))
        elif mapping := _MAPPING.fullmatch(line):
            pid, identity = int(mapping[1]), mapping[5]
            start, size, offset = (int(mapping[group], 16) for group in (2, 3, 4))
            if identity == expected:
                bisect.insort(mappings[pid], (start, start + size, offset))
            elif identity:
                others.setdefault(identity, mapping[6])
        elif not _OTHER_EVENT.fullmatch(line):
            raise ProtocolError(
                f"{origin}: line {number}: expected a process, a period and an address, found {shown(line)}; print it "
                f"with perf script {' '.join(_FIELDS)}"
            )
    if not mappings:
        seen = next((f"found {identity} of {path}" for identity, path in others.items()), "found no build ids")
        raise ProtocolError(
            f"{origin}: expected samples of the program with the build id {expected}, {seen}; {_RECORD_AGAIN}"
        )
    if len(periods) != 1 or 0 in periods:
        raise ProtocolError(
            f"{origin}: expected samples with one period, found {len(periods)} periods; record it with perf record -c "
            f"{PERIOD_NS}"
        )
    offsets: collections.Counter[int] = collections.Counter()
    elsewhere = 0
    for pid, address in found:
        # Other processes are no part of it, such as the one that repeats the command.
        if pid in mappings:
            place = _offset(mappings[pid], address)
            if place is None:
                elsewhere += 1
            else:
                offsets[place] += 1
    return Samples(dict(offsets), elsewhere, periods.pop())


def _offset(mappings: Sequence[tuple[int, int, int]], address: int) -> int | None:
    """The offset in the program's file of an address in memory."""
    position = bisect.bisect_right(mappings, (address, 1 << 65, 0)) - 1
    if position < 0 or address >= mappings[position][1]:
        return None
    start, _, offset = mappings[position]
    return address - start + offset


def _record(command: Sequence[str], data: Path) -> list[str]:
    options = ["record", "--quiet", "--buildid-mmap", "-e", _EVENT, "-c", str(PERIOD_NS), "-o", str(data), "--"]
    return [str(perf.installed()), *options, *command]
