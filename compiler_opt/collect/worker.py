"""A worker process, which does one rollout after the other, and its handle in the pool.

A worker imports no TensorFlow and starts in a fraction of a second. Each has a socket of its own for tasks and results,
so its death is noticed at once and affects no other worker.
"""

import contextlib
import dataclasses
import multiprocessing
import os
import pickle
import shutil
import signal
import socket
import struct
import time
import traceback
from collections import deque
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

from compiler_opt.collect.compilation_files import CompilationFiles
from compiler_opt.collect.policy_folder import PickledPolicy, PolicyFolder
from compiler_opt.collect.python_process import start_process
from compiler_opt.collect.rollout import Rollout, rollout
from compiler_opt.collect.schedule import Task, lost_rollout
from compiler_opt.errors import CompilerOptError, ResourceError
from compiler_opt.llvm import processes
from compiler_opt.llvm.fork_server import ForkServers, find_library
from compiler_opt.llvm.scratch import remove_folder
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.problem import CompileTask

_IO_TIMEOUT_S = 30
_START_TIMEOUT_S = 300.0
_SMALL_BYTES = 1 << 16
"""A message of this size fits into the socket's buffer, so sending it does not block."""
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclasses.dataclass(frozen=True)
class WorkerSettings:
    """Settings that all workers of a pool share.

    Attributes:
      toolchain: the compiler.
      task: what is decided and measured.
      num_workers: how many share the disk.
      policies: where learned policies are.
      niceness: added to that of the host, for workers and their compilers; 0 to 19.
      compilation_files: where to keep the files of compilations; None removes them.
    """

    toolchain: Toolchain
    task: CompileTask[Any]
    num_workers: int
    policies: PolicyFolder
    niceness: int = 0
    compilation_files: CompilationFiles | None = None


class Worker(Protocol):
    """The pool's handle of a worker.

    Attributes:
      connection: readable when there is something to receive.
      tasks: its tasks in order; it works on the first.
      is_ready: whether it has started.
      begun_s: `time.monotonic()` when it was started, or began its first task.
      start_timeout_s: wall-clock seconds that it may take to start.
    """

    tasks: deque[Task]
    is_ready: bool
    begun_s: float

    @property
    def connection(self) -> Connection | socket.socket: ...

    @property
    def start_timeout_s(self) -> float: ...

    def offer(self, task: Task, policy: PickledPolicy) -> bool:
        """Sends a task with its pickled policy; False if the worker is busy and would have to be waited for.

        Raises:
          OSError: the worker is dead, or does not listen.
        """

    def receive(self) -> tuple[Task, Rollout[Any]] | None:
        """Receives a result, or None when the worker has started, or there is none.

        Raises:
          CompilerOptError: a policy or the compiler itself is unusable, or no worker can start.
          EOFError, OSError: the worker is dead.
          RuntimeError: a bug; the message is the traceback.
        """

    def check_stopped(self) -> bool:
        """Whether the process is stopped (SIGSTOP) now and was at the last check; the pool asks twice a second."""

    def memory_bytes(self) -> int:
        """What it and its compilers take of this machine's memory, resident."""

    def kill(self) -> None:
        """Ends it, and its compilers with it; `close` must follow."""

    def close(self) -> int | None:
        """Waits for the end, and frees what the worker had.

        Returns:
          The exit code of its process, or minus the signal; None if its machine has left, and no job is to blame.
        """


class WorkerProcess(Protocol):
    """What a local worker's handle needs of its process: a part of `multiprocessing.Process`.

    Over its connection it sends None when it has started, or an exception if no worker can; then it receives
    `(job, PickledPolicy)` and answers each with a `Rollout` or an exception.
    """

    @property
    def pid(self) -> int | None: ...

    @property
    def exitcode(self) -> int | None: ...

    def kill(self) -> None: ...

    def join(self) -> None: ...

    def close(self) -> None: ...


class LocalWorker:
    """The handle of a process on this machine; see `Worker`."""

    start_timeout_s = _START_TIMEOUT_S

    def __init__(
        self,
        connection: Connection,
        process: WorkerProcess,
        scratch: Path,
    ):
        """Takes over a process that was just started, the connection to it, and its folder; see `start_worker`."""
        self.connection = connection
        self._process = process
        self._scratch = scratch
        self.tasks: deque[Task] = deque()
        self.is_ready = False
        self._was_stopped = False
        self.begun_s = time.monotonic()

    def offer(self, task: Task, policy: PickledPolicy) -> bool:
        """False if the worker is busy and the socket might not hold the message."""
        message = pickle.dumps((dataclasses.replace(task.job, policy=None), policy))
        if self.tasks and len(message) > _SMALL_BYTES:
            return False
        if not self.tasks:
            self.begun_s = time.monotonic()
        self.connection.send_bytes(message)
        self.tasks.append(task)
        return True

    def receive(self) -> tuple[Task, Rollout[Any]] | None:
        answer = self.connection.recv()
        self.begun_s = time.monotonic()
        is_first, self.is_ready = not self.is_ready, True
        task = None if is_first else self.tasks.popleft()
        if isinstance(answer, Exception):
            raise answer
        return None if task is None else (task, answer)

    def check_stopped(self) -> bool:
        was_stopped, self._was_stopped = self._was_stopped, _state(self._process.pid) == "T"
        return was_stopped and self._was_stopped

    def memory_bytes(self) -> int:
        import psutil  # Only the host needs it, and rarely.

        total = 0
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(self._process.pid)
            for member in (process, *process.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    total += member.memory_info().rss
        return total

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> int | None:
        self._process.join()
        code = self._process.exitcode
        self._process.close()
        self.connection.close()
        remove_folder(self._scratch)
        return code


def start_worker(settings: WorkerSettings, scratch: Path) -> LocalWorker:
    """Starts a process, and makes the folder `scratch` for it.

    Raises:
      ConfigError: the problem cannot be sent to another process.
      OSError: the machine lacks memory, disk or processes.
    """
    scratch.mkdir()
    connection, theirs = multiprocessing.Pipe()
    with theirs, _single_threaded():
        _limit_waiting(connection)
        process = start_process(_work, theirs, settings, scratch)
    return LocalWorker(connection, process, scratch)


@contextlib.contextmanager
def _single_threaded() -> Iterator[None]:
    """Processes started in this context use one thread for linear algebra, unless the user's environment sets it."""
    added = [name for name in _THREAD_VARIABLES if name not in os.environ]
    os.environ.update(dict.fromkeys(added, "1"))
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def _limit_waiting(connection: Connection) -> None:
    """Sets timeouts, after which a peer that is stopped in the middle of a message raises OSError."""
    timeout = struct.pack("ll", _IO_TIMEOUT_S, 0)
    with socket.socket(fileno=os.dup(connection.fileno())) as shared:
        shared.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)
        shared.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)


def _state(pid: int | None) -> str:
    """The state of a process, one letter as in proc(5)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "X"


def _work(connection: Connection, settings: WorkerSettings, scratch: Path) -> None:
    """Runs in the worker process: does jobs until the host closes the connection or dies."""
    os.nice(settings.niceness)
    # Time passes while a run is stopped (Ctrl-Z, a debugger), and compilations run out of it.
    continued: list[int] = []
    signal.signal(signal.SIGCONT, lambda number, _: continued.append(number))
    library = find_library(settings.toolchain.clang)
    processes.use_spawner(None if library is None else ForkServers(library).start)
    load_policy = settings.policies.reader()
    connection.send(None)
    while True:
        answer: Rollout[object] | Exception
        try:
            job, pickled = connection.recv()
        except EOFError:
            return
        continued.clear()
        try:
            answer = rollout(
                job.module,
                load_policy(pickled),
                settings.task,
                settings.toolchain,
                scratch=scratch,
                seed=job.seed,
                settings=job.settings,
                keep_object=job.keep_object,
                # Even if all workers write as much as they may, the disk does not fill up.
                scratch_bytes=shutil.disk_usage(scratch).free // settings.num_workers,
                policies=settings.policies,
                compilation_files=settings.compilation_files,
            )
        except ResourceError as error:
            answer = lost_rollout(job, f"{job.module.name}: {error}", is_transient=True)
        except CompilerOptError as error:
            answer = error
        except Exception:
            answer = RuntimeError(f"in a worker: {traceback.format_exc()}")
        if continued and isinstance(answer, Rollout) and answer.failure is not None:
            answer = dataclasses.replace(answer, is_transient=True)
        connection.send(answer)
