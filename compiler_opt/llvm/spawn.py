"""The specification of a process, and the usual way to start it: forking this one."""

import ctypes
import dataclasses
import os
import resource
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from compiler_opt.errors import ResourceError, ToolchainError

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
    """

    command: Sequence[str]
    stdout: int
    stderr: int
    memory_bytes: int | None = DEFAULT_MEMORY_BYTES
    file_bytes: int | None = DEFAULT_FILE_BYTES
    cwd: Path | None = None
    environment: Mapping[str, str] | None = None
    death_signal: int = signal.SIGKILL


class ProcessOptions(TypedDict, total=False):
    """The optional fields of a `ProcessSpec`."""

    memory_bytes: int | None
    file_bytes: int | None
    cwd: Path | None
    environment: Mapping[str, str] | None
    death_signal: int


def die_with_parent(death_signal: int = signal.SIGKILL) -> None:
    """Asks the kernel to signal this process when the thread that started it dies (Linux only)."""
    if hasattr(_LIBC, "prctl"):
        _LIBC.prctl(_PR_SET_PDEATHSIG, death_signal)


def spawn_directly(spec: ProcessSpec) -> Spawned:
    """Starts a process in a new session with empty standard input; for errors see `processes.start`."""
    program = spec.command[0]
    try:
        popen = subprocess.Popen(
            spec.command,
            stdin=subprocess.DEVNULL,
            stdout=spec.stdout,
            stderr=spec.stderr,
            cwd=spec.cwd,
            env=spec.environment,
            start_new_session=True,
            # The workers that start compilers have one thread, for which this is safe.
            preexec_fn=_prepare_child(spec, os.getpid()),
        )
    except FileNotFoundError as error:
        raise ToolchainError(f"{program}: no such program; give the path of an installed one") from error
    except PermissionError as error:
        raise ToolchainError(f"{program}: cannot be executed; check its permissions") from error
    except OSError as error:
        kind = ResourceError if error.errno in ResourceError.ERRNOS else ToolchainError
        raise kind(f"{program}: cannot be started: {error.strerror}") from error
    return Spawned(popen.pid, popen=popen)


def _prepare_child(spec: ProcessSpec, parent_pid: int) -> Callable[[], None]:
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
        for limit, value in limits.items():
            resource.setrlimit(limit, (value, value))

    return prepare
