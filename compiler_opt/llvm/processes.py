"""Starting compilers and their tools so that none outlives us.

Every child runs in its own session, has a limit on its memory, is killed with its whole process group when its time is
up or when we are interrupted, and asks the kernel to be killed when the thread that started it dies
(`prctl(PR_SET_PDEATHSIG)`), so that not even SIGKILL of the host leaves one behind. A compiler whose interactive host
is gone would otherwise spin for ever.
"""

import contextlib
import ctypes
import dataclasses
import os
import resource
import select
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from compiler_opt.errors import ToolchainError

DEFAULT_TIMEOUT_S = 300.0
DEFAULT_MEMORY_BYTES = 8 << 30
BUILD_TIMEOUT_S = 6 * 3600.0
"""For a whole build, or the tests of one."""

_STDERR_TAIL_BYTES = 2000
_GRACE_S = 5.0
_TICK_S = 0.2
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclasses.dataclass(frozen=True)
class ProcessResult:
    """How one process ended.

    Attributes:
      command: its argument list.
      returncode: exit status, or minus the signal that ended it.
      stdout: everything it printed, when that was asked for.
      stderr_tail: the last part of what it printed on stderr.
      cpu_s: user and system CPU seconds of the process.
      timed_out: we killed it because its time was up.
    """

    command: tuple[str, ...]
    returncode: int
    stdout: bytes
    stderr_tail: str
    cpu_s: float
    timed_out: bool

    @property
    def ok(self) -> bool:
        return self.returncode == 0 and not self.timed_out

    def describe(self) -> str:
        """One line: how it ended, what it said, which command."""
        if self.timed_out:
            how = "ran out of time"
        elif self.returncode < 0:
            how = f"died of {_signal_name(-self.returncode)}"
        else:
            how = f"exit status {self.returncode}"
        said = _telling_line(self.stderr_tail)
        command = shlex.join(self.command)
        if len(command) > 300:
            command = f"{command[:100]} ... {command[-190:]}"
        return f"{how}{': ' + said if said else ''} (command: {command})"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _telling_line(stderr: str) -> str:
    """The first line that says `error`, else the first that is not blank."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or [""])[0][:300]


def die_with_parent(death_signal: int = signal.SIGKILL) -> None:
    """Asks the kernel to kill this process when the thread that started it dies (Linux; elsewhere nothing)."""
    if hasattr(_LIBC, "prctl"):
        _LIBC.prctl(_PR_SET_PDEATHSIG, death_signal)


def _prepare_child(memory_bytes: int | None, parent_pid: int, death_signal: int) -> Callable[[], None]:
    """What the child does between fork and exec; kept to system calls only."""

    def prepare() -> None:
        die_with_parent(death_signal)
        # The parent may have died between fork and prctl: then no signal will ever come.
        if os.getppid() != parent_pid:
            os.kill(os.getpid(), signal.SIGKILL)
        if memory_bytes is not None:
            resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    return prepare


@dataclasses.dataclass(frozen=True)
class Started:
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
class Launch:
    """A process to be started.

    Attributes:
      command: argument list; the first is the executable.
      stdout: a descriptor.
      stderr: another.
      memory_bytes: limit on its address space; None for none.
      cwd: its working directory; None for ours.
      environment: all of its environment variables; None for ours.
      death_signal: what it gets when we die.
    """

    command: Sequence[str]
    stdout: int
    stderr: int
    memory_bytes: int | None = DEFAULT_MEMORY_BYTES
    cwd: Path | None = None
    environment: Mapping[str, str] | None = None
    death_signal: int = signal.SIGKILL


Starter = Callable[[Launch], Started | None]
"""Another way to start processes, as `_start` below does; None where it cannot. See `fork_server.ForkServers.start`."""

_starter: Starter | None = None


def use_starter(starter: Starter | None) -> None:
    """From now on this process starts others by that, where it can; None goes back to forking this one."""
    global _starter
    _starter = starter


class Child:
    """A running process; made by `start`, which sees to its end."""

    def __init__(self, command: Sequence[str], started: Started, stdout: IO[bytes] | None, stderr: IO[bytes]):
        self.command = tuple(command)
        self.pid = started.pid
        self.pidfd = os.pidfd_open(started.pid)
        self.stdout = stdout
        self._started = started
        self._stderr = stderr
        self._result: ProcessResult | None = None

    def terminate(self) -> None:
        """Asks the process itself to end, so that a build tool can stop its compilers and tidy up."""
        if self._result is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """Kills the whole process group; harmless when it is gone."""
        if self._result is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def wait(self, *, stdout: bytes = b"", timed_out: bool = False) -> ProcessResult:
        """Reaps the process (which must have ended or be about to) and tells how it ended."""
        if self._result is None:
            _, status, usage = os.wait4(self.pid, 0)
            returncode = os.waitstatus_to_exitcode(status)
            if self._started.popen is not None:
                # It must not wait for a pid that is reaped already.
                self._started.popen.returncode = returncode
            cpu_s = usage.ru_utime + usage.ru_stime + self._started.cpu_s
            size = self._stderr.seek(0, os.SEEK_END)
            self._stderr.seek(max(0, size - _STDERR_TAIL_BYTES))
            tail = self._stderr.read().decode("utf-8", "replace")
            self._result = ProcessResult(self.command, returncode, stdout, tail, cpu_s, timed_out)
        return self._result

    def close(self) -> None:
        if self._result is None:
            self.kill()
            self.wait()
        # Whatever the process itself may have started in its group goes with it.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        os.close(self.pidfd)
        if self.stdout is not None:
            self.stdout.close()


@contextlib.contextmanager
def start(
    command: Sequence[str],
    *,
    stderr: IO[bytes],
    stdout: IO[bytes] | None = None,
    capture_stdout: bool = False,
    memory_bytes: int | None = DEFAULT_MEMORY_BYTES,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    death_signal: int = signal.SIGKILL,
) -> Iterator[Child]:
    """Starts a process that cannot outlive the `with` block.

    Args:
      command: argument list; the first is the executable.
      stderr: a file, open for reading and writing, that takes the process's stderr.
      stdout: a file that takes its stdout.
      capture_stdout: give the process a pipe for stdout, read through `Child.stdout`; with neither it is thrown away.
      memory_bytes: limit on its address space; None for none.
      cwd: its working directory.
      environment: all of its environment variables; by default ours.
      death_signal: what it gets when we die.

    Raises:
      ToolchainError: the executable is missing or cannot be run.
    """
    with contextlib.ExitStack() as opened:
        reader: IO[bytes] | None = None
        if stdout is None and capture_stdout:
            ours, theirs = os.pipe()
            reader, stdout = os.fdopen(ours, "rb", buffering=0), opened.enter_context(os.fdopen(theirs, "wb"))
        elif stdout is None:
            stdout = opened.enter_context(Path(os.devnull).open("wb"))
        try:
            started = _start(
                Launch(command, stdout.fileno(), stderr.fileno(), memory_bytes, cwd, environment, death_signal)
            )
        except BaseException:
            if reader is not None:
                reader.close()
            raise
    child = Child(command, started, reader, stderr)
    try:
        yield child
    finally:
        child.close()


def _start(launch: Launch) -> Started:
    """Starts a process of a session of its own, whose standard input is empty; see `start` for the errors."""
    if _starter is not None:
        started = _starter(launch)
        if started is not None:
            return started
    program = launch.command[0]
    try:
        popen = subprocess.Popen(
            launch.command,
            stdin=subprocess.DEVNULL,
            stdout=launch.stdout,
            stderr=launch.stderr,
            cwd=launch.cwd,
            env=launch.environment,
            start_new_session=True,
            # The workers that start compilers have one thread, for which this is safe.
            preexec_fn=_prepare_child(launch.memory_bytes, os.getpid(), launch.death_signal),
        )
    except FileNotFoundError as error:
        raise ToolchainError(f"{program}: no such program; give the path of an installed one") from error
    except PermissionError as error:
        raise ToolchainError(f"{program}: cannot be executed; check its permissions") from error
    except OSError as error:
        raise ToolchainError(f"{program}: cannot be started: {error.strerror}") from error
    return Started(popen.pid, popen=popen)


def run(
    command: Sequence[str],
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    max_stdout_bytes: int = 1 << 30,
) -> ProcessResult:
    """Runs a process to its end; a failure is in the result, never an exception.

    Args:
      command: argument list.
      timeout_s: wall-clock seconds it may take.
      memory_bytes: limit on its address space.
      cwd: its working directory.
      environment: all of its environment variables; by default ours.
      max_stdout_bytes: it is killed when it prints more.

    Raises:
      ToolchainError: the executable is missing or cannot be run.
    """
    deadline_s = time.monotonic() + timeout_s
    with (
        os.fdopen(os.memfd_create("stderr", os.MFD_CLOEXEC), "w+b") as stderr,
        start(
            command,
            stderr=stderr,
            capture_stdout=True,
            memory_bytes=memory_bytes,
            cwd=cwd,
            environment=environment,
        ) as child,
    ):
        assert child.stdout is not None
        chunks: list[bytes] = []
        num_bytes = 0
        timed_out = False
        poll = select.poll()
        poll.register(child.stdout, select.POLLIN)
        while True:
            remaining_s = deadline_s - time.monotonic()
            if remaining_s <= 0 or not poll.poll(remaining_s * 1000):
                timed_out = True
                break
            chunk = os.read(child.stdout.fileno(), 1 << 20)
            num_bytes += len(chunk)
            if not chunk or num_bytes > max_stdout_bytes:
                break
            chunks.append(chunk)
        if not timed_out and num_bytes <= max_stdout_bytes:
            timed_out = not wait_for_exit(child, deadline_s)
        if timed_out or num_bytes > max_stdout_bytes:
            child.kill()
        return child.wait(stdout=b"".join(chunks), timed_out=timed_out)


def wait_for_exit(child: Child, deadline_s: float) -> bool:
    """Waits until the process has ended or `time.monotonic()` passes the deadline; True when it has ended."""
    poll = select.poll()
    poll.register(child.pidfd, select.POLLIN)
    return bool(poll.poll(max(0.0, deadline_s - time.monotonic()) * 1000))


def run_logged(
    command: Sequence[str],
    log: Path,
    *,
    timeout_s: float = BUILD_TIMEOUT_S,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    on_output: Callable[[bytes], object] = lambda output: None,
) -> ProcessResult:
    """Runs something long that starts processes of its own, such as a build; what it says goes into a file.

    When its time is up, or we are interrupted, it is asked to end (a build tool then stops its compilers and removes
    what they left half done), and after a few seconds killed with all of its session. Its memory is not limited.

    Args:
      command: argument list.
      log: takes stdout and stderr; written anew. The end of it is the result's `stderr_tail`.
      timeout_s: wall-clock seconds it may take.
      cwd: its working directory.
      environment: all of its environment variables; by default ours.
      on_output: called with each piece of output, a few times a second, for progress bars.

    Raises:
      ToolchainError: the executable is missing or cannot be run.
      OSError: the log cannot be written.
    """
    deadline_s = time.monotonic() + timeout_s
    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        log.open("w+b") as file,
        log.open("rb") as reader,
        start(
            command,
            stdout=file,
            stderr=file,
            memory_bytes=None,
            cwd=cwd,
            environment=environment,
            death_signal=signal.SIGTERM,
        ) as child,
    ):
        ended = False
        try:
            while not ended and time.monotonic() < deadline_s:
                ended = wait_for_exit(child, min(deadline_s, time.monotonic() + _TICK_S))
                if output := reader.read():
                    on_output(output)
        finally:
            if not ended:
                child.terminate()
                wait_for_exit(child, time.monotonic() + _GRACE_S)
            # Build tools put their compilers into process groups of their own, but not into sessions.
            _kill_session(child.pid)
        return child.wait(timed_out=not ended)


def _kill_session(session: int) -> None:
    """Kills every process of a session; there is no system call for it."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):
            # The name, in parentheses, may hold anything.
            pid, fields = int(stat.parent.name), stat.read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[3]) == session:
                os.kill(pid, signal.SIGKILL)
