"""Compilers that wait, loaded, to be forked: `native/fork_server.c`, built in a moment and kept in the user's cache.

Starting a compiler costs as much as many a module does: some 25 ms of mapping and relocating its libraries and setting
up its options, in each of thousands of compilations. A worker pays that once for each program; then every start is a
fork of one that has come so far. What it compiles is the same, byte for byte.
"""

import contextlib
import hashlib
import os
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from compiler_opt.errors import CompilerOptError, ToolchainError
from compiler_opt.files import default_cache_dir, write_atomically
from compiler_opt.llvm import processes
from compiler_opt.llvm.processes import Started
from compiler_opt.llvm.scratch import scratch_directory

SOURCE = Path(__file__).parents[1] / "native" / "fork_server.c"

_TIMEOUT_S = 120.0
_REPLY_TIMEOUT_S = 60.0
_REQUEST = struct.Struct("=QIII4x")
_REPLY = struct.Struct("=ii")
_LOADERS_VARIABLES = ("LD_", "GLIBC_", "MALLOC_")
"""What begins so is heeded before main, and thus only when a server starts."""


class _Server:
    """One program that waits."""

    def __init__(self, library: Path, program: str):
        """Starts it.

        Raises:
          OSError, subprocess.SubprocessError: it cannot be started.
        """
        self._socket, theirs = socket.socketpair()
        with theirs:
            variables = {"LD_PRELOAD": str(library), "MLGO_FORK_SERVER": str(theirs.fileno())}
            # A program that takes no notice of the library tells its version, and ends.
            self._popen = subprocess.Popen(
                [program, "--version"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **variables},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._socket.settimeout(_REPLY_TIMEOUT_S)
        # Linux's name for the CPU clock of a process.
        self._clock = (~self._popen.pid << 3) | 2
        self._program = program

    def start(
        self,
        command: Sequence[str],
        stdout: int,
        stderr: int,
        memory_bytes: int,
        folder: str,
        environment: Mapping[str, str],
    ) -> Started | None:
        """See `ForkServers.start`; None also when the program could not be put into the state asked for.

        Raises:
          OSError: the server does not answer.
        """
        variables = [f"{name}={value}" for name, value in environment.items()]
        strings = b"".join(os.fsencode(text) + b"\0" for text in (folder, *command, *variables))
        if strings.count(b"\0") != 1 + len(command) + len(variables):
            return None
        request = _REQUEST.pack(memory_bytes, len(command), len(variables), len(strings))
        begun_s = time.clock_gettime(self._clock)
        sent = socket.send_fds(self._socket, [request, strings], [stdout, stderr])
        self._socket.sendall((request + strings)[sent:])
        reply = b""
        while len(reply) < _REPLY.size:
            part = self._socket.recv(_REPLY.size - len(reply))
            if not part:
                raise OSError(f"{self._program}: it does not wait for requests")
            reply += part
        pid, error = _REPLY.unpack(reply)
        if error:
            if pid:
                os.waitpid(pid, 0)
            return None
        return Started(pid, time.clock_gettime(self._clock) - begun_s)

    def is_program(self) -> bool:
        """Whether that is what waits, and not an interpreter of it; for a server that has answered."""
        return Path(f"/proc/{self._popen.pid}/exe").samefile(self._program)

    def close(self) -> None:
        self._socket.close()
        self._popen.kill()
        self._popen.wait()


class ForkServers:
    """Starts programs by servers of their own, which end with it."""

    def __init__(self, library: Path):
        self._library = library
        self._servers: dict[str, _Server | None] = {}

    def start(
        self,
        command: Sequence[str],
        *,
        stdout: int,
        stderr: int,
        memory_bytes: int,
        cwd: Path | None,
        environment: Mapping[str, str] | None,
    ) -> Started | None:
        """Starts a process of a session of its own, which is killed when we die; its standard input is empty.

        Args:
          command: argument list.
          stdout: a descriptor.
          stderr: another.
          memory_bytes: limit on its address space.
          cwd: its working directory; by default ours.
          environment: all of its environment variables; by default ours.

        Returns:
          a child of ours; None when it has to be started in the usual way, which also tells what is wrong with it.
        """
        program = shutil.which(command[0])
        environment = os.environ if environment is None else environment
        if program is None or not Path(program).is_absolute():
            return None
        # What else is to be loaded first may come with its own main.
        if "LD_PRELOAD" in environment or _of_loader(environment) != _of_loader(os.environ):
            return None
        try:
            if program not in self._servers:
                self._servers[program] = self._try_out(program)
            server = self._servers[program]
            if server is None:
                return None
            return server.start(command, stdout, stderr, memory_bytes, str(cwd or Path.cwd()), environment)
        except (OSError, subprocess.SubprocessError):
            self._give_up(program)
            return None

    def _try_out(self, program: str) -> _Server | None:
        server = _Server(self._library, program)
        self._servers[program] = server
        with Path(os.devnull).open("wb") as nowhere:
            arguments = (nowhere.fileno(), nowhere.fileno(), processes.DEFAULT_MEMORY_BYTES, "/", os.environ)
            forked = server.start([program, "--version"], *arguments)
        if forked is not None:
            os.waitpid(forked.pid, 0)
            if server.is_program():
                return server
        server.close()
        return None

    def _give_up(self, program: str) -> None:
        server = self._servers.get(program)
        self._servers[program] = None
        if server is not None:
            server.close()

    def close(self) -> None:
        """Ends the servers; what they have started goes on."""
        for server in self._servers.values():
            if server is not None:
                server.close()
        self._servers.clear()


def _of_loader(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_LOADERS_VARIABLES)}


def find_library(clang: Path, cache_dir: Path | None = None) -> Path | None:
    """The library, from the cache or built now; None when it cannot be had, which only costs time.

    Args:
      clang: compiles it; it needs the C library's headers.
      cache_dir: by default the user's.
    """
    folder = (cache_dir or default_cache_dir()) / "plugins"
    path = folder / f"fork-server-{hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:20]}.so"
    with contextlib.suppress(CompilerOptError, OSError):
        if not path.is_file():
            write_atomically(path, _build(clang), executable=True)
        # What LD_PRELOAD names is separated by these.
        if not set(str(path)) & set(" :"):
            return path
    return None


def _build(clang: Path) -> bytes:
    with scratch_directory() as scratch:
        library = scratch / "fork-server.so"
        command = [str(clang), "-O2", "-s", "-fPIC", "-shared", str(SOURCE), "-o", str(library)]
        result = processes.run(command, timeout_s=_TIMEOUT_S)
        if result.ok:
            return library.read_bytes()
    raise ToolchainError(f"{clang}: cannot build {SOURCE.name}: {result.describe()}")
