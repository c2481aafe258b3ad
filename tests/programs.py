"""Runs programs of this package as a user would, in forks of a process that has loaded TensorFlow."""

import atexit
import contextlib
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]


class Program:
    """A running program; `start` makes it."""

    def __init__(self, command: list[str], server: socket.socket, stdout_fd: int, stderr_fd: int):
        self.pid = int(server.recv(64))
        self._command, self._server = command, server
        self._stdout_fd, self._stderr_fd = stdout_fd, stderr_fd
        self._status: int | None = None

    def wait(self, timeout_s: float) -> bool:
        """Waits at most that long; returns whether the program has ended."""
        if self._status is None and select.select([self._server], [], [], timeout_s)[0]:
            self._status = int(self._server.recv(64))
        return self._status is not None

    def stdout(self) -> str:
        """What it has written so far."""
        return _content(self._stdout_fd)

    def stderr(self) -> str:
        """What it has written so far."""
        return _content(self._stderr_fd)

    def result(self, timeout_s: float = 300) -> "subprocess.CompletedProcess[str]":
        """Waits for its end.

        Raises:
          subprocess.TimeoutExpired: it took longer than `timeout_s`.
        """
        if not self.wait(timeout_s):
            raise subprocess.TimeoutExpired(self._command, timeout_s)
        assert self._status is not None
        return subprocess.CompletedProcess(self._command, self._status, self.stdout(), self.stderr())


def _content(descriptor: int) -> str:
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode(errors="replace")


@contextlib.contextmanager
def start(
    program: str, *arguments: str, cwd: Path = ROOT, environment: Mapping[str, str] | None = None
) -> Iterator[Program]:
    """Starts a program, one at a time; at the end of the block it is killed with all its children.

    Args:
      program: a script, by its path from the root of the repository, or a module, by its name.
      *arguments: its flags.
      cwd: its working directory.
      environment: variables to set beside those of this process.
    """
    if program.endswith(".py"):
        program = str(ROOT / program)
    request = {
        "program": program,
        "arguments": arguments,
        "directory": str(cwd),
        "environment": {**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
    }
    server = _server()
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        socket.send_fds(server, [json.dumps(request).encode()], [stdout.fileno(), stderr.fileno()])
        running = Program([program, *arguments], server, stdout.fileno(), stderr.fileno())
        try:
            yield running
        finally:
            if not running.wait(0):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(running.pid, signal.SIGKILL)
                running.wait(60)


def run(
    program: str,
    *arguments: str,
    cwd: Path = ROOT,
    environment: Mapping[str, str] | None = None,
    timeout_s: float = 300,
    tree: Path = ROOT,
) -> "subprocess.CompletedProcess[str]":
    """Runs a program to its end.

    Args:
      program: see `start`, as for `*arguments`, `cwd` and `environment`.
      timeout_s: in seconds; then it is killed, with all its children.
      tree: the repository whose program it is; with another one than ours, Python is started anew.

    Raises:
      subprocess.TimeoutExpired: it took longer.
    """
    if tree != ROOT:
        return subprocess.run(
            [sys.executable, program, *arguments],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": "."},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    with start(program, *arguments, cwd=cwd, environment=environment) as running:
        return running.result(timeout_s)


@functools.cache
def _server() -> socket.socket:
    """The connection to this process's server, see `program_server`."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.program_server", str(theirs.fileno())],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            pass_fds=[theirs.fileno()],
        )
    atexit.register(process.wait)
    atexit.register(ours.close)
    return ours
