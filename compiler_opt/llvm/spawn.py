"""One process: its specification, the usual way to start it (forking this one), and its result."""

import ctypes
import dataclasses
import os
import resource
import shlex
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TypedDict

from compiler_opt.errors import ResourceError, ToolchainError
from compiler_opt.llvm.sandbox import Sandbox

DEFAULT_MEMORY_BYTES = 8 << 30
DEFAULT_FILE_BYTES = 8 << 30

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclasses.dataclass(frozen=True)
class Spawned:
    """A started child process.

    Attributes:
      pid: its process ID.
      cpu_s: CPU seconds that another process spent on starting it.
      popen: Python's object for it, if Python started it.
    """

    pid: int
    cpu_s: float = 0.0
    popen: "subprocess.Popen[bytes] | None" = None


@dataclasses.dataclass(frozen=True)
class ProcessSpec:
    """A process to be started.

    Attributes:
      command: argument list; the first element is the executable.
      stdout: descriptor of its standard output.
      stderr: descriptor of its standard error.
      memory_bytes: limit of its address space; None for no limit.
      file_bytes: limit of each file that it writes; None for no limit.
      cwd: its working directory; None for this process's.
      environment: all of its environment variables; None for this process's.
      death_signal: the signal that it gets when this process dies.
      sandbox: what it may do; None for all that this process may.
    """

    command: Sequence[str]
    stdout: int
    stderr: int
    memory_bytes: int | None = DEFAULT_MEMORY_BYTES
    file_bytes: int | None = DEFAULT_FILE_BYTES
    cwd: Path | None = None
    environment: Mapping[str, str] | None = None
    death_signal: int = signal.SIGKILL
    sandbox: Sandbox | None = None


class ProcessOptions(TypedDict, total=False):
    """The optional fields of a `ProcessSpec`."""

    memory_bytes: int | None
    file_bytes: int | None
    cwd: Path | None
    environment: Mapping[str, str] | None
    death_signal: int
    sandbox: Sandbox | None


def die_with_parent(death_signal: int = signal.SIGKILL) -> None:
    """Asks the kernel to signal this process when the thread that started it dies (Linux only)."""
    if hasattr(_LIBC, "prctl"):
        _LIBC.prctl(_PR_SET_PDEATHSIG, death_signal)


def spawn_directly(spec: ProcessSpec) -> Spawned:
    """Starts a process in a new session with empty standard input; for errors see `processes.start`."""
    program = spec.command[0]
    try:
        with entrance(spec.sandbox) as enter:
            popen = subprocess.Popen(
                spec.command,
                stdin=subprocess.DEVNULL,
                stdout=spec.stdout,
                stderr=spec.stderr,
                cwd=spec.cwd,
                env=spec.environment,
                start_new_session=True,
                # The workers that start compilers have one thread, for which this is safe.
                preexec_fn=_prepare_child(spec, enter, os.getpid()),
            )
    except FileNotFoundError as error:
        raise ToolchainError(f"{program}: no such program; give the path of an installed one") from error
    except PermissionError as error:
        raise ToolchainError(f"{program}: cannot be executed; check its permissions") from error
    except subprocess.SubprocessError as error:
        raise ToolchainError(f"{program}: cannot be started with its limits and in its sandbox: {error}") from error
    except OSError as error:
        kind = ResourceError if error.errno in ResourceError.ERRNOS else ToolchainError
        raise kind(f"{program}: cannot be started: {error.strerror}") from error
    return Spawned(popen.pid, popen=popen)


def entrance(sandbox: Sandbox | None, *, forks: bool = False) -> AbstractContextManager[Callable[[], None]]:
    """See `Sandbox.entrance`; without a sandbox, the function does nothing."""
    return nullcontext(lambda: None) if sandbox is None else sandbox.entrance(forks=forks)


def _prepare_child(spec: ProcessSpec, enter: Callable[[], None], parent_pid: int) -> Callable[[], None]:
    """What the child does between fork and exec: system calls only."""
    limits = {resource.RLIMIT_CORE: 0}
    for limit, num_bytes in ((resource.RLIMIT_AS, spec.memory_bytes), (resource.RLIMIT_FSIZE, spec.file_bytes)):
        if num_bytes is not None:
            # This process's hard limit may be lower and cannot be raised.
            hard = resource.getrlimit(limit)[1]
            limits[limit] = num_bytes if hard == resource.RLIM_INFINITY else min(num_bytes, hard)

    def prepare() -> None:
        die_with_parent(spec.death_signal)
        # If the parent died between fork and prctl, no signal will ever come.
        if os.getppid() != parent_pid:
            os.kill(os.getpid(), signal.SIGKILL)
        enter()
        for limit, value in limits.items():
            resource.setrlimit(limit, (value, value))

    return prepare


_OUT_OF_SPACE = ("No space left on device", "Disk quota exceeded")


@dataclasses.dataclass(frozen=True)
class ProcessResult:
    """The result of one process.

    Attributes:
      command: argument list.
      returncode: exit status, or the negative number of the signal that ended it.
      stdout: all of its standard output, if captured.
      stderr_tail: the end of its standard error.
      cpu_s: user and system CPU seconds.
      timed_out: it was killed at its time limit.
      overflowed: it exceeded its output limit (and was killed, unless it had already ended).
    """

    command: tuple[str, ...]
    returncode: int
    stdout: bytes
    stderr_tail: str
    cpu_s: float
    timed_out: bool
    overflowed: bool = False

    @property
    def ok(self) -> bool:
        return self.returncode == 0 and not self.timed_out and not self.overflowed

    @property
    def lacked_resources(self) -> bool:
        """Whether it failed for lack of memory or disk: it was killed by SIGKILL, or reports that no space is left."""
        if self.ok or self.timed_out or self.overflowed:
            return False
        return self.returncode == -signal.SIGKILL or any(text in self.stderr_tail for text in _OUT_OF_SPACE)

    def describe(self) -> str:
        """One line: how it ended, its error message, and the command."""
        if self.timed_out:
            how = "ran out of time"
        elif self.overflowed:
            how = "exceeded its output limit"
        elif self.returncode < 0:
            how = f"died of {describe_exit(self.returncode)}"
            if self.returncode == -signal.SIGXFSZ:
                how += " (it exceeded its file size limit)"
        else:
            how = describe_exit(self.returncode)
        message = _error_line(self.stderr_tail)
        command = shlex.join(self.command)
        if len(command) > 300:
            command = f"{command[:100]} ... {command[-190:]}"
        return f"{how}{': ' + message if message else ''} (command: {command})"


def describe_exit(returncode: int) -> str:
    """The exit status or, if negative, the name of the signal."""
    if returncode >= 0:
        return f"exit status {returncode}"
    try:
        return signal.Signals(-returncode).name
    except ValueError:
        return f"signal {-returncode}"


def _error_line(stderr: str) -> str:
    """The first line that contains `error`, else the first that is not blank."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or [""])[0][:300]
