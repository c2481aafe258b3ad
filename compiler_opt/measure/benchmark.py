"""A benchmark: command lines whose cost is measured, and whose output says whether a program still does the same.

    benchmark = Benchmark.of(["./bench 100", "./bench --other"])
    reference = benchmark.reference(folder)                     # runs it; refuses what is not deterministic
    profile = benchmark.measure(other_folder, reference)        # under callgrind; refuses other output
    profile.total.instructions, profile.functions
    wall_times(benchmark, [folder, other_folder], reference, rounds=20)

Commands run one after the other, without a shell, in the folder that holds the program. They get no input, and what is
compared is their standard output; files that they write are not.
"""

import dataclasses
import hashlib
import itertools
import shlex
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from compiler_opt.errors import BenchmarkError, ConfigError
from compiler_opt.files import shown
from compiler_opt.llvm import processes
from compiler_opt.llvm.processes import ProcessResult
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.measure import callgrind, sampling
from compiler_opt.measure.callgrind import Profile
from compiler_opt.measure.sampling import Samples

_SLOWDOWN = 200
"""By callgrind, at most; some 50 are usual."""
_SAMPLING_SLOWDOWN = 4
_MAX_REPETITIONS = 100
"""Of a command under one perf, whose samples fit into memory."""
_MAX_OUTPUT_BYTES = 1 << 24
_MIN_TIMEOUT_S = 60.0


@dataclasses.dataclass(frozen=True)
class Reference:
    """What a program does that later builds of it must do, too.

    Attributes:
      outputs: standard output of each command.
      wall_s: seconds that all commands took together, once.
    """

    outputs: tuple[bytes, ...]
    wall_s: float

    @property
    def identity(self) -> str:
        """Of what the program does; another one if its input has changed."""
        return hashlib.sha256(repr(self.outputs).encode()).hexdigest()


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """Command lines to run.

    Attributes:
      commands: argument lists.
      timeout_s: wall-clock limit of each command, in seconds, without callgrind.
    """

    commands: tuple[tuple[str, ...], ...]
    timeout_s: float = 60.0

    @classmethod
    def of(cls, command_lines: Sequence[str], timeout_s: float = 60.0) -> "Benchmark":
        """The benchmark of commands as a user writes them; raises ConfigError if one cannot be split into words."""
        commands = []
        for line in command_lines:
            try:
                words = tuple(shlex.split(line))
            except ValueError as error:
                raise ConfigError(f"benchmark {line}: cannot be split into words ({error})") from None
            if not words:
                raise ConfigError("benchmark: expected a command, found an empty one")
            commands.append(words)
        if not commands:
            raise ConfigError("benchmark: expected a command, found none")
        return cls(tuple(commands), timeout_s)

    def reference(self, folder: Path) -> Reference:
        """Runs the benchmark twice, in a folder with a program that is right.

        Raises:
          BenchmarkError: a command fails, runs for too long, or prints something else the second time.
          ToolchainError: there is no such program.
        """
        started_s = time.monotonic()
        outputs = tuple(self._output(command, folder) for command in self.commands)
        wall_s = time.monotonic() - started_s
        for command, first in zip(self.commands, outputs, strict=True):
            second = self._output(command, folder)
            if first != second:
                raise BenchmarkError(
                    f"{shlex.join(command)}: is not deterministic: {_difference(first, second)}, when it ran again; "
                    "fix its seed, and let it print no times"
                )
        return Reference(outputs, wall_s)

    def measure(
        self, folder: Path, reference: Reference, *, simulate: bool = True, by_instruction: bool = False
    ) -> Profile:
        """Runs the benchmark under callgrind, in a folder with another build of the program.

        Without `simulate`, only instructions are counted; with `by_instruction`, also for each address.

        Raises:
          BenchmarkError: a command fails, runs for too long, or prints something else than before.
          ToolchainError: valgrind is not installed.
        """
        profile = callgrind.NOTHING
        # A build that hangs should not run for 200 times the limit if the reference is fast.
        timeout_s = max(_MIN_TIMEOUT_S, _SLOWDOWN * reference.wall_s)
        with scratch_directory() as scratch:
            for command, expected in zip(self.commands, reference.outputs, strict=True):
                _check_program(command, folder)
                run = callgrind.run_profiled(
                    command,
                    scratch=scratch,
                    simulate=simulate,
                    by_instruction=by_instruction,
                    timeout_s=timeout_s,
                    cwd=folder,
                )
                _check_end(command, folder, run.result, timeout_s)
                _check_output(command, folder, expected, run.result.stdout)
                assert run.profile is not None
                profile += run.profile
        return profile

    def samples(self, folder: Path, reference: Reference, program: Path, *, rounds: int = 1) -> Samples:
        """Runs each command under perf, `rounds` times, and counts where in the program samples fall.

        Raises:
          BenchmarkError: as `measure`.
          ProtocolError: there are no samples of the program, or they cannot be read.
          ToolchainError: perf is not installed, or this machine lets nothing be sampled.
        """
        found = sampling.NO_SAMPLES
        for command, expected in zip(self.commands, reference.outputs, strict=True):
            _check_program(command, folder)
            most = max(1, min(_MAX_REPETITIONS, _MAX_OUTPUT_BYTES // max(1, len(expected))))
            for start in range(0, rounds, most):
                repetitions = min(most, rounds - start)
                timeout_s = _SAMPLING_SLOWDOWN * self.timeout_s * repetitions
                run = sampling.run_sampled(command, program, repetitions=repetitions, timeout_s=timeout_s, cwd=folder)
                _check_end(command, folder, run.result, timeout_s)
                _check_output(command, folder, expected * repetitions, run.result.stdout)
                assert run.samples is not None
                found += run.samples
        return found

    def wall_s(self, folder: Path, reference: Reference) -> float:
        """Runs all commands as they are; returns the seconds that they took together. For errors see `measure`."""
        started_s = time.monotonic()
        outputs = [self._output(command, folder) for command in self.commands]
        wall_s = time.monotonic() - started_s
        for command, expected, output in zip(self.commands, reference.outputs, outputs, strict=True):
            _check_output(command, folder, expected, output)
        return wall_s

    def _output(self, command: tuple[str, ...], folder: Path) -> bytes:
        _check_program(command, folder)
        result = processes.run(command, timeout_s=self.timeout_s, cwd=folder)
        _check_end(command, folder, result, self.timeout_s)
        return result.stdout


def _check_program(command: Sequence[str], folder: Path) -> None:
    """Relative programs are relative to the folder; the others are found on PATH, or absolute."""
    program = shutil.which(str(folder / command[0]) if "/" in command[0] else command[0])
    if program is None:
        # Builds by a compilation database have programs in a folder of their own.
        found = next(folder.glob(f"*/{Path(command[0]).name}"), None)
        elsewhere = f"; is it {found.relative_to(folder)}?" if found is not None else ""
        raise BenchmarkError(
            f"{shlex.join(command)}: expected a program, found none, in {folder}; the command runs there{elsewhere}"
        )


def _check_end(command: Sequence[str], folder: Path, result: ProcessResult, timeout_s: float) -> None:
    if result.timed_out:
        raise BenchmarkError(
            f"{shlex.join(command)}: still runs after {timeout_s:g} s, in {folder}; give a shorter one, or more time"
        )
    if not result.ok:
        raise BenchmarkError(f"{shlex.join(command)}: expected exit status 0, found: {result.describe()}, in {folder}")


def _check_output(command: Sequence[str], folder: Path, expected: bytes, found: bytes) -> None:
    if expected != found:
        raise BenchmarkError(f"{shlex.join(command)}: {_difference(expected, found)}, in {folder}")


def _difference(expected: bytes, found: bytes) -> str:
    """Where two outputs differ first, in words."""
    pairs = itertools.zip_longest(expected.split(b"\n"), found.split(b"\n"))
    number, (before, after) = next((n, pair) for n, pair in enumerate(pairs, 1) if pair[0] != pair[1])
    shown_lines = ("the end" if line is None else shown(line.decode(errors="replace")) for line in (before, after))
    return "expected to print {}, found {}, in line {}".format(*shown_lines, number)
