"""Runs a program under valgrind's callgrind, and reads the profile.

    profile = run_profiled(["./bench", "100"], scratch=folder).profile
    profile.total.instructions, profile.total.cycles
    profile.functions[Function("/home/me/bench", "_Z5parsePKc")].instructions

A profile is text: a header of `name: value`, then lines in which the last `ob=`, `fn=`, `cob=` and `cfn=` hold until
the next one:

    positions: line            what a position is: a source line, or, with `instr line`, an address and a line
    events: Ir Dr Dw ...       which counts follow, in this order
    ob=FILE                    the object file of the following functions
    fn=SYMBOL                  the function of the following counts
    POSITION COUNT...          its own counts at one position; those that are missing at the end are 0
    cob=FILE, cfn=SYMBOL       a function that it calls; without `cob`, in the same object file
    calls=NUMBER POSITION      how often, and where to; the next line has what these calls cost, inclusive
    jump=NUMBER POSITION       how often, and where to, a jump went; the next line has its own position
    jcnd=NUMBER/ALL POSITION   the same of a conditional branch, which was executed ALL times
    totals: COUNT...           the sums of all own counts, at the end

Callgrind simulates the caches and the branch predictor of one fixed machine, so the same run gives the same counts on
every machine, up to what depends on the environment (paths, the number of environment variables).
"""

import collections
import dataclasses
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from compiler_opt.errors import ProtocolError, ToolchainError
from compiler_opt.files import read_regular, shown
from compiler_opt.llvm import processes
from compiler_opt.llvm.processes import ProcessResult

CACHES = ("--I1=32768,8,64", "--D1=49152,12,64", "--LL=2097152,16,64")
"""Bytes, ways and bytes per line of the simulated caches. Callgrind's own choice depends on the machine."""

MAX_PROFILE_BYTES = 1 << 28

_Key = TypeVar("_Key")

_OPTIONS = (
    "--tool=callgrind",
    "-q",
    "--demangle=no",
    "--compress-strings=no",
    "--compress-pos=no",
)
_BY_INSTRUCTION = ("--dump-instr=yes", "--collect-jumps=yes", "--skip-plt=no")
_SIMULATION = ("--cache-sim=yes", "--branch-sim=yes", *CACHES)
_HEADER = re.compile(r"(?:version|creator|pid|thread|cmd|part|desc|positions|events|summary): ?(.*)")
_EVENT = re.compile(r"[A-Za-z][A-Za-z0-9]{0,31}")
_NUMBER = re.compile(r"[0-9]{1,19}")
_ADDRESS = re.compile(r"0x[0-9a-f]{1,16}")
_POSITIONS = ("line", "instr line")
_RECURSION = re.compile(r"'[0-9]+$")
"""Callgrind adds the depth of recursion to a function's name."""


@dataclasses.dataclass(frozen=True, order=True)
class Function:
    """A function of a running program: the object file that it is in, and its symbol (not demangled).

    The symbol is `???` or an address where there is none. Functions that were inlined are part of their callers.
    """

    object: str
    symbol: str


@dataclasses.dataclass(frozen=True)
class Counts:
    """What a run, or a part of it, has done.

    Attributes:
      instructions: executed.
      reads: of data.
      writes: of data.
      l1_misses: of the first-level caches, for instructions and data.
      ll_misses: of the last-level cache; each is also one of the first level.
      mispredicts: of conditional and indirect branches.
      instruction_misses: of the first-level cache for instructions; each is also one of the first level.
      indirect_mispredicts: of indirect jumps and calls; each is also one of `mispredicts`.
    """

    instructions: int = 0
    reads: int = 0
    writes: int = 0
    l1_misses: int = 0
    ll_misses: int = 0
    mispredicts: int = 0
    instruction_misses: int = 0
    indirect_mispredicts: int = 0

    @property
    def cycles(self) -> int:
        """An estimate: one cycle an instruction, 10 a first-level miss or mispredict, 100 a last-level miss."""
        return self.instructions + 10 * (self.mispredicts + self.l1_misses) + 100 * self.ll_misses

    def __add__(self, other: "Counts") -> "Counts":
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return Counts(*(one + another for one, another in pairs))

    def __sub__(self, other: "Counts") -> "Counts":
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return Counts(*(one - another for one, another in pairs))


@dataclasses.dataclass(frozen=True)
class Calls:
    """The calls of one function by another: how many, and what they cost together, with all that they call in turn.

    Where functions call each other recursively, inclusive counts overlap.
    """

    number: int
    inclusive: Counts


@dataclasses.dataclass(frozen=True)
class Profile:
    """A profile of one run.

    Attributes:
      total: of the run, with the libraries and the start of the program.
      functions: own counts by function.
      calls: by caller and callee.
      instructions: own counts by object file and address of the instruction there, as the file was linked; empty
        unless the run was profiled by instruction.
      jumps: how often each jump, branch and call was taken, by object file and the addresses there of the instruction
        and of its target; without those into other object files. Empty unless the run was profiled by instruction.
    """

    total: Counts
    functions: Mapping[Function, Counts]
    calls: Mapping[tuple[Function, Function], Calls]
    instructions: Mapping[tuple[str, int], Counts] = dataclasses.field(default_factory=dict)
    jumps: Mapping[tuple[str, int, int], int] = dataclasses.field(default_factory=dict)

    def of_object(self, path: str) -> tuple[dict[int, Counts], dict[tuple[int, int], int]]:
        """The instructions and jumps of an object file, by address."""
        instructions = {address: counts for (file, address), counts in self.instructions.items() if file == path}
        return instructions, {
            (source, target): number for (file, source, target), number in self.jumps.items() if file == path
        }

    def __add__(self, other: "Profile") -> "Profile":
        calls = dict(self.calls)
        for edge, each in other.calls.items():
            known = calls.get(edge, Calls(0, Counts()))
            calls[edge] = Calls(known.number + each.number, known.inclusive + each.inclusive)
        functions = _added(self.functions, other.functions)
        instructions = _added(self.instructions, other.instructions)
        jumps = collections.Counter(self.jumps)
        jumps.update(other.jumps)
        return Profile(self.total + other.total, functions, calls, instructions, dict(jumps))


def _added(one: Mapping[_Key, Counts], other: Mapping[_Key, Counts]) -> dict[_Key, Counts]:
    sums = dict(one)
    for key, counts in other.items():
        sums[key] = sums.get(key, Counts()) + counts
    return sums


NOTHING = Profile(Counts(), {}, {})


def valgrind() -> Path:
    """The installed valgrind.

    Raises:
      ToolchainError: there is none; the message names the package.
    """
    path = shutil.which("valgrind")
    if path is None:
        raise ToolchainError("valgrind: not found; install the package valgrind")
    return Path(path)


@dataclasses.dataclass(frozen=True)
class ProfiledRun:
    """A run under callgrind: how it ended and what it printed, and its profile; None if the program failed."""

    result: ProcessResult
    profile: Profile | None


def run_profiled(
    command: Sequence[str],
    *,
    scratch: Path,
    simulate: bool = True,
    by_instruction: bool = False,
    timeout_s: float = processes.DEFAULT_TIMEOUT_S,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> ProfiledRun:
    """Runs a command under callgrind. Processes that the program starts are not counted.

    Args:
      command: argument list.
      scratch: folder for the profile.
      simulate: caches and branches; without, only instructions are counted, in less than half of the time.
      by_instruction: also count for each address.
      timeout_s: wall-clock limit in seconds; callgrind takes some 50 times as long as the program alone.
      cwd: working directory.
      environment: all environment variables; None for this process's.

    Raises:
      ProtocolError: the profile cannot be read.
      ToolchainError: valgrind is not installed.
    """
    path = scratch / "callgrind.out"
    path.unlink(missing_ok=True)
    # A path of its own for each process, or a child that is forked would overwrite the profile of its parent.
    options = (*_OPTIONS, *(_SIMULATION if simulate else ()), *(_BY_INSTRUCTION if by_instruction else ()))
    tool = [str(valgrind()), *options, f"--callgrind-out-file={path}.%p"]
    result = processes.run([*tool, *command], timeout_s=timeout_s, cwd=cwd, environment=environment)
    found = sorted(scratch.glob("callgrind.out.*"), key=lambda file: file.stat().st_mtime_ns)
    try:
        if not result.ok:
            return ProfiledRun(result, None)
        if not found:
            raise ProtocolError(f"{command[0]}: valgrind wrote no profile: {result.describe()}")
        # The program itself ends last, or the command would not have ended.
        return ProfiledRun(result, parse(read_regular(found[-1], MAX_PROFILE_BYTES), command[0]))
    except OSError as error:
        raise ProtocolError(f"{command[0]}: its profile cannot be read: {error.strerror}") from None
    finally:
        for file in found:
            os.unlink(file)


def parse(content: bytes, origin: str = "callgrind") -> Profile:
    """Reads a profile with uncompressed names and positions.

    Raises:
      ProtocolError: it is not complete, or not in this format; `origin` begins the message.
    """
    try:
        return _Parser(content.decode("utf-8", "surrogateescape")).profile()
    except _FormatError as error:
        raise ProtocolError(f"{origin}: not a profile of callgrind: {error}") from None


class _FormatError(Exception):
    """What is wrong with a profile."""


class _Parser:
    """Reads one profile."""

    def __init__(self, text: str):
        self._lines = text.split("\n")
        self._events: tuple[str, ...] = ()
        self._num_positions = 1
        self._own: dict[Function, list[int]] = {}
        self._instructions: dict[tuple[str, int], list[int]] = {}
        self._calls: dict[tuple[Function, Function], list[int]] = {}
        self._jumps: collections.Counter[tuple[str, int, int]] = collections.Counter()

    def profile(self) -> Profile:
        totals = self._body(enumerate(self._lines, 1))
        sums = [sum(column) for column in zip(*self._own.values(), strict=True)] or [0] * len(self._events)
        if sums != totals:
            raise _FormatError(f"expected counts that add up to {totals[0]} {self._events[0]}, found {sums[0]}")
        functions = {function: self._counts(counts) for function, counts in self._own.items()}
        calls = {edge: Calls(number, self._counts(counts)) for edge, (number, *counts) in self._calls.items()}
        instructions = {place: self._counts(counts) for place, counts in self._instructions.items()}
        return Profile(self._counts(totals), functions, calls, instructions, dict(self._jumps))

    def _body(self, lines: Iterator[tuple[int, str]]) -> list[int]:
        """Reads all lines up to the totals, which it returns."""
        first = next(lines, (1, ""))[1]
        if first != "# callgrind format":
            raise _FormatError(f"line 1: expected `# callgrind format`, found {shown(first)}")
        place = callee_object = callee = ""
        function: Function | None = None
        for number, line in lines:
            if line.startswith("totals:"):
                if any(rest for _, rest in lines):
                    raise _FormatError(f"line {number}: expected `totals:` at the end")
                return self._numbers(number, line.removeprefix("totals:").split())
            key, sign, value = line.partition("=")
            if line[:1].isdigit():
                words, owner = line.split(), self._known(number, function)
                counts = self._numbers(number, words[self._num_positions :])
                self._add(self._own, owner, counts)
                if self._num_positions > 1:
                    self._add(self._instructions, (place, self._address(number, words[0])), counts)
            elif sign and key == "ob":
                place, function = value, None
            elif sign and key == "fn":
                function = Function(place, _RECURSION.sub("", value))
                self._own.setdefault(function, [0] * len(self._events))
                callee_object = place
            elif sign and key == "cob":
                callee_object = value
            elif sign and key == "cfn":
                callee = _RECURSION.sub("", value)
            elif sign and key == "calls":
                caller = self._known(number, function)
                words = value.split()
                cost_number, cost = next(lines, (number, ""))
                if not callee or not words or not cost[:1].isdigit():
                    raise _FormatError(
                        f"line {number}: expected a callee before, a number in, and a cost after {shown(line)}"
                    )
                times = self._numbers(number, words[:1])[0]
                costs = self._numbers(cost_number, cost.split()[self._num_positions :])
                self._add(self._calls, (caller, Function(callee_object, callee)), [times, *costs])
                if callee_object == place:
                    self._jump(place, times, (cost_number, cost), (number, " ".join(words[1:])))
                callee, callee_object = "", place
            elif sign and key in ("jump", "jcnd"):
                times_taken, _, target = value.partition(" ")
                times = self._numbers(number, [times_taken.partition("/")[0]])[0]
                self._jump(place, times, next(lines, (number, "")), (number, target))
            elif sign and key in ("fl", "fi", "fe", "cfi", "cfl", "jfi", "jfn"):
                continue  # Source files, and the functions that jumps go to.
            elif line and not self._header(number, line):
                raise _FormatError(f"line {number}: found {shown(line)}")
        raise _FormatError("expected `totals:` at the end, found none; it is truncated")

    def _header(self, number: int, line: str) -> bool:
        match = _HEADER.fullmatch(line)
        if match and line.startswith("events:"):
            if self._events:
                raise _FormatError(f"line {number}: expected `events:` once")
            self._events = tuple(match[1].split())
            unknown = next((event for event in self._events if not _EVENT.fullmatch(event)), None)
            if "Ir" not in self._events or unknown or len(set(self._events)) < len(self._events):
                raise _FormatError(f"line {number}: expected names of events, one of them Ir; found {shown(line)}")
        if match and line.startswith("positions:"):
            if match[1] not in _POSITIONS:
                raise _FormatError(
                    f"line {number}: expected positions by {' or '.join(_POSITIONS)}, found {shown(line)}"
                )
            self._num_positions = len(match[1].split())
        return match is not None

    def _jump(self, place: str, times: int, source: tuple[int, str], target: tuple[int, str]) -> None:
        """Adds a jump; of its ends, the numbers and texts of lines whose first word is the position."""
        if self._num_positions > 1:
            start, end = (self._address(number, text.partition(" ")[0]) for number, text in (source, target))
            self._jumps[place, start, end] += times

    @staticmethod
    def _address(number: int, word: str) -> int:
        if not _ADDRESS.fullmatch(word):
            raise _FormatError(f"line {number}: expected an address, found {shown(word)}")
        return int(word, 16)

    def _known(self, number: int, function: Function | None) -> Function:
        if function is None or not self._events:
            raise _FormatError(f"line {number}: expected `events:` and `fn=` before any counts")
        return function

    def _numbers(self, line_number: int, words: Sequence[str]) -> list[int]:
        """As many counts as there are events; those that are left out are 0."""
        if not self._events or len(words) > len(self._events):
            raise _FormatError(f"line {line_number}: expected at most {len(self._events)} counts, found {len(words)}")
        if not all(_NUMBER.fullmatch(word) for word in words):
            raise _FormatError(f"line {line_number}: expected counts, found {shown(' '.join(words))}")
        return [*map(int, words), *[0] * (len(self._events) - len(words))]

    @staticmethod
    def _add(sums: dict[_Key, list[int]], key: _Key, counts: list[int]) -> None:
        known = sums.get(key)
        sums[key] = counts if known is None else [one + other for one, other in zip(known, counts, strict=True)]

    def _counts(self, values: Sequence[int]) -> Counts:
        by_event = collections.Counter(dict(zip(self._events, values, strict=True)))
        return Counts(
            instructions=by_event["Ir"],
            reads=by_event["Dr"],
            writes=by_event["Dw"],
            l1_misses=by_event["I1mr"] + by_event["D1mr"] + by_event["D1mw"],
            ll_misses=by_event["ILmr"] + by_event["DLmr"] + by_event["DLmw"],
            mispredicts=by_event["Bcm"] + by_event["Bim"],
            instruction_misses=by_event["I1mr"],
            indirect_mispredicts=by_event["Bim"],
        )
