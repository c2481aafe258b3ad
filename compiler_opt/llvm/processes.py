"""Runs compilers and their tools; none outlives this process.

Every child runs in its own session, with limits on memory, file sizes and output. Its whole process group is killed at
the time limit or on an interrupt. It also asks the kernel to kill it when the thread that started it dies
(`prctl(PR_SET_PDEATHSIG)`), so that not even SIGKILL of the host leaves one behind: without its interactive host, a
compiler would spin forever.
"""

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import IO, TYPE_CHECKING

from compiler_opt.llvm.sandbox import Sandbox
from compiler_opt.llvm.spawn import DEFAULT_MEMORY_BYTES as DEFAULT_MEMORY_BYTES
from compiler_opt.llvm.spawn import ProcessOptions, ProcessSpec, Spawned, spawn_directly
from compiler_opt.llvm.spawn import ProcessResult as ProcessResult
from compiler_opt.llvm.spawn import die_with_parent as die_with_parent

if TYPE_CHECKING:
    from typing_extensions import Unpack

DEFAULT_TIMEOUT_S = 300.0
MAX_STDOUT_BYTES = 1 << 26
MAX_STDERR_BYTES = 1 << 24
BUILD_TIMEOUT_S = 6 * 3600.0
"""For a whole build, or for running its tests."""

_STDERR_TAIL_BYTES = 2000
_TICK_S = 0.2

Spawner = Callable[[ProcessSpec], Spawned | None]
"""An alternative to `spawn_directly`, such as `fork_server.ForkServers.start`; returns None if it cannot do it."""

_SPAWNER: ContextVar[Spawner | None] = ContextVar("spawner", default=None)


def use_spawner(spawner: Spawner | None) -> None:
    """From now on, this thread tries `spawner` first to start a process; None: always `spawn_directly`."""
    _SPAWNER.set(spawner)


class Child:
    """A running process, created by `start`."""

    def __init__(
        self,
        command: Sequence[str],
        started: Spawned,
        stdout: IO[bytes] | None,
        stderr: IO[bytes],
        max_stderr_bytes: int | None,
    ):
        self.command = tuple(command)
        self.pid = started.pid
        self.pidfd = os.pidfd_open(started.pid)
        self.stdout = stdout
        self._started = started
        self._stderr = stderr
        self._max_stderr_bytes = max_stderr_bytes
        self._result: ProcessResult | None = None

    def terminate(self) -> None:
        """Sends SIGTERM to the process alone, so that a build tool can stop its compilers and clean up."""
        if self._result is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """Kills the whole process group; does nothing if it is gone."""
        if self._result is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def await_event(self, poll: select.poll, deadline_s: float) -> list[tuple[int, int]]:
        """Waits for events; returns none when `time.monotonic()` passes the deadline.

        Kills the process if it exceeds its output limit in the meantime.
        """
        while (remaining_s := deadline_s - time.monotonic()) > 0:
            events = poll.poll(min(remaining_s, _TICK_S) * 1000)
            if events:
                return events
            if self._overflows():
                self.kill()
        return []

    @contextlib.contextmanager
    def watched(self, deadline_s: float) -> Iterator[threading.Event]:
        """Kills the process when `time.monotonic()` passes the deadline, or if it exceeds its output limit.

        The thread that does so waits beside this one, which may block on the process's output meanwhile. Yields an
        event that is set if the deadline has passed.
        """
        ended, timed_out = threading.Event(), threading.Event()

        def watch() -> None:
            while (remaining_s := deadline_s - time.monotonic()) > 0:
                if ended.wait(min(remaining_s, _TICK_S)):
                    return
                if self._overflows():
                    self.kill()
            timed_out.set()
            self.kill()

        thread = threading.Thread(target=watch, name=f"deadline of process {self.pid}", daemon=True)
        thread.start()
        try:
            yield timed_out
        finally:
            ended.set()
            thread.join()

    def _overflows(self) -> bool:
        limit = self._max_stderr_bytes
        return limit is not None and os.fstat(self._stderr.fileno()).st_size > limit

    def wait(self, *, stdout: bytes = b"", timed_out: bool = False, overflowed: bool = False) -> ProcessResult:
        """Reaps the process, which must have ended or be about to end, and returns its result."""
        if self._result is None:
            _, status, usage = os.wait4(self.pid, 0)
            returncode = os.waitstatus_to_exitcode(status)
            if self._started.popen is not None:
                # Popen must not wait for a PID that has been reaped.
                self._started.popen.returncode = returncode
            cpu_s = usage.ru_utime + usage.ru_stime + self._started.cpu_s
            size = self._stderr.seek(0, os.SEEK_END)
            self._stderr.seek(max(0, size - _STDERR_TAIL_BYTES))
            tail = self._stderr.read().decode("utf-8", "replace")
            overflowed = overflowed or self._overflows()
            self._result = ProcessResult(self.command, returncode, stdout, tail, cpu_s, timed_out, overflowed)
        return self._result

    def close(self) -> None:
        if self._result is None:
            self.kill()
            self.wait()
        # Also end what the process has started in its group.
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
    max_stderr_bytes: int | None = MAX_STDERR_BYTES,
    **options: "Unpack[ProcessOptions]",
) -> Iterator[Child]:
    """Starts a process that cannot outlive the `with` block.

    Its standard error goes to the file `stderr`, open for reading and writing; if that exceeds `max_stderr_bytes`, the
    process is killed. Its standard output goes to the file `stdout` or, with `capture_stdout`, by a pipe to
    `Child.stdout`; with neither, it is discarded. For the options see `ProcessSpec`.

    Raises:
      ResourceError: the system cannot create another process.
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
            if (sandbox := options.get("sandbox")) is not None:
                options["environment"] = sandbox.environment(options.get("environment"))
            spec = ProcessSpec(command, stdout.fileno(), stderr.fileno(), **options)
            spawner = _SPAWNER.get()
            started = (spawner(spec) if spawner is not None else None) or spawn_directly(spec)
        except BaseException:
            if reader is not None:
                reader.close()
            raise
    child = Child(command, started, reader, stderr, max_stderr_bytes)
    try:
        yield child
    finally:
        child.close()


def run(
    command: Sequence[str],
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    max_stdout_bytes: int = MAX_STDOUT_BYTES,
    **options: "Unpack[ProcessOptions]",
) -> ProcessResult:
    """Runs a process to its end and captures its standard output; a failure is in the result, never an exception.

    It is killed at its time limit (wall-clock seconds), or if its standard output exceeds the limit. For the options
    and errors see `start`.
    """
    deadline_s = time.monotonic() + timeout_s
    with (
        os.fdopen(os.memfd_create("stderr", os.MFD_CLOEXEC), "w+b") as stderr,
        start(command, stderr=stderr, capture_stdout=True, **options) as child,
    ):
        assert child.stdout is not None
        chunks: list[bytes] = []
        num_bytes = 0
        timed_out = overflowed = False
        poll = select.poll()
        poll.register(child.stdout, select.POLLIN)
        while not overflowed:
            if not child.await_event(poll, deadline_s):
                timed_out = True
                break
            chunk = os.read(child.stdout.fileno(), 1 << 20)
            if not chunk:
                timed_out = not wait_for_exit(child, deadline_s)
                break
            num_bytes += len(chunk)
            overflowed = num_bytes > max_stdout_bytes
            chunks.append(chunk)
        if timed_out or overflowed:
            child.kill()
        return child.wait(stdout=b"".join(chunks), timed_out=timed_out, overflowed=overflowed)


def wait_for_exit(child: Child, deadline_s: float) -> bool:
    """Waits until the process ends (True) or `time.monotonic()` passes the deadline (False)."""
    poll = select.poll()
    poll.register(child.pidfd, select.POLLIN)
    return bool(child.await_event(poll, deadline_s) or poll.poll(0))


def run_logged(
    command: Sequence[str],
    log: Path,
    *,
    timeout_s: float = BUILD_TIMEOUT_S,
    grace_s: float = 5.0,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    sandbox: Sandbox | None = None,
    on_output: Callable[[bytes], object] = lambda output: None,
) -> ProcessResult:
    """Runs a long command that starts processes of its own, such as a build, and writes its output to a log.

    At the time limit or on an interrupt, the command gets SIGTERM (a build tool then stops its compilers and removes
    partial outputs), and `grace_s` later its whole session is killed. Memory and file sizes are not limited.

    Args:
      command: argument list.
      log: file for stdout and stderr, overwritten; its end is the result's `stderr_tail`.
      timeout_s: wall-clock limit in seconds.
      grace_s: seconds between SIGTERM and SIGKILL.
      cwd: working directory; None for this process's.
      environment: all environment variables; None for this process's.
      sandbox: what it may do; None for all that this process may.
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
            max_stderr_bytes=None,
            memory_bytes=None,
            file_bytes=None,
            cwd=cwd,
            environment=environment,
            sandbox=sandbox,
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
                wait_for_exit(child, time.monotonic() + grace_s)
            # Build tools move their compilers to other process groups, but not to other sessions.
            _kill_session(child.pid)
        return child.wait(timed_out=not ended)


def _kill_session(session: int) -> None:
    """Kills every process of a session; there is no system call for it."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):
            # The process name, in parentheses, may contain anything.
            pid, fields = int(stat.parent.name), stat.read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[3]) == session:
                os.kill(pid, signal.SIGKILL)
