"""A process that is to be started, and the usual way of doing so: by forking this one."""

import ctypes
import dataclasses
import os
import resource
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from compiler_opt.errors import ResourceError, ToolchainError

DEFAULT_MEMORY_BYTES = 8 << 30
DEFAULT_FILE_BYTES = 8 << 30
"""Of each file that a process writes."""

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclasses.dataclass(frozen=True)
class Spawned:
    """A child of ours.

    Attributes:
      pid: of it.
      cpu_s: CPU seconds that starting it has cost some other process.
      popen: who started it, if it was Python.
    """

    pid: int
    cpu_s: float = 0.0
    popen: "subprocess.Popen[bytes] | None" = None


@dataclasses.dataclass(frozen=True)
class ProcessSpec:
    """A process to be started.

    Attributes:
      command: argument list; the first is the executable.
      stdout: a descriptor.
      stderr: another.
      memory_bytes: limit on its address space; None for none.
      file_bytes: limit on each file that it writes; None for none.
      cwd: its working directory; None for ours.
      environment: all of its environment variables; None for ours.
      death_signal: what it gets when we die.
    """

    command: Sequence[str]
    stdout: int
    stderr: int
    memory_bytes: int | None = DEFAULT_MEMORY_BYTES
    file_bytes: int | None = DEFAULT_FILE_BYTES
    cwd: Path | None = None
    environment: Mapping[str, str] | None = None
    death_signal: int = signal.SIGKILL


def die_with_parent(death_signal: int = signal.SIGKILL) -> None:
    """Asks the kernel to kill this process when the thread that started it dies (Linux; elsewhere nothing)."""
    if hasattr(_LIBC, "prctl"):
        _LIBC.prctl(_PR_SET_PDEATHSIG, death_signal)


def spawn_directly(spec: ProcessSpec) -> Spawned:
    """Starts a process of a session of its own, whose standard input is empty; see `processes.start` for the errors."""
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
    """What the child does between fork and exec; kept to system calls only."""
    limits = {resource.RLIMIT_CORE: 0}
    for limit, num_bytes in ((resource.RLIMIT_AS, spec.memory_bytes), (resource.RLIMIT_FSIZE, spec.file_bytes)):
        if num_bytes is not None:
            # Ours may be lower, and nobody may raise it.
            hard = resource.getrlimit(limit)[1]
            limits[limit] = num_bytes if hard == resource.RLIM_INFINITY else min(num_bytes, hard)

    def prepare() -> None:
        die_with_parent(spec.death_signal)
        # The parent may have died between fork and prctl: then no signal will ever come.
        if os.getppid() != parent_pid:
            os.kill(os.getpid(), signal.SIGKILL)
        for limit, value in limits.items():
            resource.setrlimit(limit, (value, value))

    return prepare
