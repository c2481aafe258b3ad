"""Servers that start compilers by forking a loaded one (`native/fork_server.c`, built once, kept in the user's cache).

Starting a compiler takes some 25 ms for mapping and relocating libraries and registering options, as long as compiling
a small module. A worker pays that once per program: a server stops before `main` and forks for each compilation. The
objects are the same, byte for byte.
"""

import contextlib
import hashlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from compiler_opt.errors import CompilerOptError, ToolchainError
from compiler_opt.files import default_cache_dir
from compiler_opt.llvm import processes
from compiler_opt.llvm.build_cache import BuildCache
from compiler_opt.llvm.sandbox import Sandbox
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.spawn import ProcessSpec, Spawned, die_with_parent, entrance
from compiler_opt.llvm.system_calls import has_seccomp

SOURCE = Path(__file__).parents[1] / "native" / "fork_server.c"

_TIMEOUT_S = 120.0
_REPLY_TIMEOUT_S = 10.0
_MAX_REPLACEMENTS = 10
_REQUEST = struct.Struct("=QQIII4x")
_REPLY = struct.Struct("=ii")
_NO_LIMIT = (1 << 64) - 1  # RLIM_INFINITY
_LOADERS_VARIABLES = ("LD_", "GLIBC_", "MALLOC_")
"""Prefixes of variables that the loader and C library read before `main`, when a server starts."""


class _Server:
    """One program, waiting before `main`.

    Attributes:
      sandbox: what it and its forks are restricted by.
    """

    def __init__(self, library: Path, program: str, sandbox: Sandbox | None, reply_timeout_s: float):
        """Starts the server; raises OSError, subprocess.SubprocessError or ToolchainError if that fails."""
        self._socket, theirs = socket.socketpair()
        with contextlib.ExitStack() as failing, theirs, entrance(sandbox, forks=True) as enter:

            def prepare() -> None:
                # Not only when it serves: until then, it might be stopped and outlive its worker.
                die_with_parent()
                enter()

            failing.enter_context(self._socket)
            variables = {"LD_PRELOAD": str(library), "MLGO_FORK_SERVER": str(theirs.fileno())}
            variables |= {"MLGO_FORK_SERVER_SANDBOX": "1"} if sandbox is not None and has_seccomp() else {}
            # A program that ignores the library prints its version and ends.
            self._popen = subprocess.Popen(
                [program, "--version"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **variables},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                # A fork is in the sandbox of its server. The workers that start servers have one thread.
                preexec_fn=prepare,
            )
            failing.pop_all()
        self._socket.settimeout(reply_timeout_s)
        # Linux's number of the CPU clock of a process.
        self._clock = (~self._popen.pid << 3) | 2
        self._program = program
        self.sandbox = sandbox

    def start(self, spec: ProcessSpec) -> Spawned | None:
        """See `ForkServers.start`; None also if the child cannot set up its state; raises OSError without an answer."""
        environment = os.environ if spec.environment is None else spec.environment
        variables = [f"{name}={value}" for name, value in environment.items()]
        texts = (str(spec.cwd or Path.cwd()), *spec.command, *variables)
        strings = os.fsencode("".join(f"{text}\0" for text in texts))
        if strings.count(b"\0") != len(texts):
            return None
        file_bytes = _NO_LIMIT if spec.file_bytes is None else spec.file_bytes
        request = _REQUEST.pack(spec.memory_bytes, file_bytes, len(spec.command), len(variables), len(strings))
        begun_s = time.clock_gettime(self._clock)
        sent = socket.send_fds(self._socket, [request, strings], [spec.stdout, spec.stderr])
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
        return Spawned(pid, time.clock_gettime(self._clock) - begun_s)

    def is_program(self) -> bool:
        """Whether the program itself waits, rather than its interpreter; for a server that has answered."""
        return Path(f"/proc/{self._popen.pid}/exe").samefile(self._program)

    def close(self) -> None:
        """Ends the server, even if it is stopped; its children continue, except one whose reply was not read."""
        self._popen.kill()
        self._popen.wait()
        # A child that is being forked cannot report itself any more, and ends.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RD)
        with contextlib.suppress(OSError, struct.error):
            pid, _ = _REPLY.unpack(self._socket.recv(_REPLY.size))
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self._socket.close()


class ForkServers:
    """Starts processes by servers, for use by one thread. The servers end with this process.

    Each program has one, and another one for its latest sandbox. A server that dies, or does not answer in time, is
    replaced when it is next needed.
    """

    def __init__(self, library: Path, *, reply_timeout_s: float = _REPLY_TIMEOUT_S):
        self._library = library
        self._reply_timeout_s = reply_timeout_s
        self._servers: dict[tuple[str, bool], _Server | None] = {}
        self._num_replacements = 0

    def start(self, spec: ProcessSpec) -> Spawned | None:
        """Starts a process in a new session with empty standard input, as a child of this process.

        Returns None if it must be started by `spawn_directly`, which also reports any error.
        """
        if spec.memory_bytes is None or spec.death_signal != signal.SIGKILL:
            return None
        program = shutil.which(spec.command[0])
        if program is None or not Path(program).is_absolute() or not _loader_variables_match(spec.environment):
            return None
        key = (program, spec.sandbox is not None)
        try:
            server = self._servers.get(key)
            if server is not None and server.sandbox != spec.sandbox:
                self._servers.pop(key)
                server.close()
            if key not in self._servers:
                self._servers[key] = _working_server(self._library, program, spec.sandbox, self._reply_timeout_s)
            server = self._servers[key]
            return None if server is None else server.start(spec)
        except (OSError, subprocess.SubprocessError, ToolchainError):
            server = self._servers.pop(key, None)
            if server is not None:
                server.close()
                self._num_replacements += 1
            if server is None or self._num_replacements > _MAX_REPLACEMENTS:
                self._servers[key] = None
            return None

    def close(self) -> None:
        """Ends the servers; the processes that they have started continue."""
        for server in self._servers.values():
            if server is not None:
                server.close()
        self._servers.clear()


def _working_server(library: Path, program: str, sandbox: Sandbox | None, reply_timeout_s: float) -> _Server | None:
    """Starts a server and tries it out; None if the program ignores the library or is a script.

    Raises OSError, subprocess.SubprocessError or ToolchainError if the server fails.
    """
    with contextlib.ExitStack() as failing:
        server = _Server(library, program, sandbox, reply_timeout_s)
        failing.callback(server.close)
        with Path(os.devnull).open("wb") as null:
            started = server.start(ProcessSpec([program, "--version"], null.fileno(), null.fileno()))
        if started is not None:
            os.waitpid(started.pid, 0)
            if server.is_program():
                failing.pop_all()
                return server
    return None


def _loader_variables_match(environment: Mapping[str, str] | None) -> bool:
    """Whether the loader would act the same under these variables as under this process's."""
    environment = os.environ if environment is None else environment
    names = {name for name in (*environment, *os.environ) if name.startswith(_LOADERS_VARIABLES)}
    # Another preloaded library may replace main.
    return "LD_PRELOAD" not in environment and all(environment.get(name) == os.environ.get(name) for name in names)


def build_library(clang: Path) -> bytes:
    """Compiles the library; raises ToolchainError if that fails, as it does without the C library's headers."""
    with scratch_directory() as scratch:
        library = scratch / "fork-server.so"
        command = [str(clang), "-O2", "-s", "-fPIC", "-shared", str(SOURCE), "-o", str(library)]
        result = processes.run(command, timeout_s=_TIMEOUT_S)
        if result.ok:
            return library.read_bytes()
    raise ToolchainError(f"{clang}: cannot build {SOURCE.name}: {result.describe()}")


def find_library(
    clang: Path, cache_dir: Path | None = None, build: Callable[[Path], bytes] = build_library
) -> Path | None:
    """The library, from the cache (by default the user's) or built now; None if that fails, which only costs time."""
    folder = (cache_dir or default_cache_dir()) / "plugins"
    # These separate the libraries in LD_PRELOAD.
    if set(str(folder)) & set(" :"):
        return None
    name = f"fork-server-{hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:20]}.so"
    with contextlib.suppress(CompilerOptError, OSError):
        return BuildCache(folder).get(name, lambda: build(clang))
    return None
