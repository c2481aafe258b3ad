"""Programs of this package as a user runs them."""

import atexit
import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]


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
      program: a script, by its path from the root of the repository, or a module, by its name.
      *arguments: its flags.
      cwd: where it runs.
      environment: what it finds beside our own environment.
      timeout_s: in seconds; then it is killed, with all that it has started.
      tree: another tree than ours, whose program it is: that is started anew.

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
        server.settimeout(None)
        socket.send_fds(server, [json.dumps(request).encode()], [stdout.fileno(), stderr.fileno()])
        pid = int(server.recv(64))
        server.settimeout(timeout_s)
        try:
            status = int(server.recv(64))
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            server.settimeout(None)
            server.recv(64)
            raise subprocess.TimeoutExpired([program, *arguments], timeout_s) from None
        texts = []
        for stream in (stdout, stderr):
            stream.seek(0)
            texts.append(stream.read().decode(errors="replace"))
    return subprocess.CompletedProcess([program, *arguments], status, *texts)


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
