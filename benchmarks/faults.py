"""Faults of a running training: signals to its processes, and a shortage of memory or disk for a while."""

import collections
import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psutil

_DISK_FULL_S = 5.0
_MEMORY_SHORT_S = 5.0


def workers_of(host: psutil.Process) -> list[psutil.Process]:
    """The host's worker processes."""
    return [child for child in host.children() if "spawn_main" in " ".join(_cmdline(child))]


def _cmdline(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return process.cmdline()
    return []


def is_fork_server(process: psutil.Process) -> bool:
    """Whether it waits for requests; a compiler that was forked from it has closed the socket."""
    try:
        entries = list(Path(f"/proc/{process.pid}/fd").iterdir())
        return "MLGO_FORK_SERVER" in process.environ() and any("socket:" in str(entry.readlink()) for entry in entries)
    except (OSError, psutil.Error):
        return False


class Chaos:
    """Injects faults into a running training.

    Attributes:
      injected: how often, by fault.
    """

    def __init__(
        self, temporary: Path, rng: np.random.Generator, *, period_s: float, compiler_faults: float, has_disk: bool
    ):
        """Injects nothing yet.

        Args:
          temporary: the training's folder for temporary files.
          rng: chooses faults and victims.
          period_s: between faults of workers, servers, memory and disk.
          compiler_faults: share of compilations for each of their three faults.
          has_disk: whether `temporary` is on a small disk, which may be filled.
        """
        self.injected: collections.Counter[str] = collections.Counter()
        self._rng = rng
        self._temporary = temporary
        self._period_s = period_s
        self._compiler_faults = compiler_faults
        self._seen: set[tuple[int, float]] = set()
        self._next_s = time.monotonic() + self._period_s
        self._undo: list[tuple[float, Callable[[], None]]] = []
        self._faults: dict[str, Callable[[psutil.Process], bool]] = {
            "busy worker killed": lambda host: self._signal_worker(host, signal.SIGKILL, busy=True),
            "idle worker killed": lambda host: self._signal_worker(host, signal.SIGKILL, busy=False),
            "busy worker stopped": lambda host: self._signal_worker(host, signal.SIGSTOP, busy=True),
            "idle worker stopped": lambda host: self._signal_worker(host, signal.SIGSTOP, busy=False),
            "fork server killed": lambda host: self._signal_server(host, signal.SIGKILL),
            "fork server stopped": lambda host: self._signal_server(host, signal.SIGSTOP),
            "no more memory for a worker": self._limit_memory,
        }
        if has_disk:
            self._faults["disk full"] = self._fill_disk
        self._queue: list[str] = []

    def tick(self, host: psutil.Process) -> None:
        """Injects what is due."""
        now_s = time.monotonic()
        while self._undo and self._undo[0][0] <= now_s:
            self._undo.pop(0)[1]()
        with contextlib.suppress(psutil.Error):
            self._disturb_compilers(host)
            if now_s >= self._next_s:
                # Every fault in turn, in random order; one that finds no victim waits.
                self._queue = self._queue or list(self._rng.permutation(sorted(self._faults)))
                if self._faults[self._queue[0]](host):
                    self.injected[self._queue.pop(0)] += 1
                    self._next_s = now_s + self._period_s

    def finish(self) -> None:
        """Ends the faults that last."""
        for _, undo in self._undo:
            undo()
        self._undo.clear()

    def _compilers(self, host: psutil.Process) -> Iterator[psutil.Process]:
        for worker in workers_of(host):
            for child in worker.children():
                if "clang" in " ".join(_cmdline(child)[:1]) and not is_fork_server(child):
                    yield child

    def _disturb_compilers(self, host: psutil.Process) -> None:
        """Chooses among the compilations that have not been seen before."""
        share = self._compiler_faults
        faults = (("compiler crashed", signal.SIGSEGV), ("compiler killed", signal.SIGKILL))
        for compiler in self._compilers(host):
            key = (compiler.pid, compiler.create_time())
            if key in self._seen:
                continue
            self._seen.add(key)
            draw = self._rng.random()
            for index, (name, number) in enumerate((*faults, ("compiler hangs", signal.SIGSTOP))):
                if index * share <= draw < (index + 1) * share:
                    compiler.send_signal(number)
                    self.injected[name] += 1

    def _signal_worker(self, host: psutil.Process, number: int, *, busy: bool) -> bool:
        compiling = {compiler.ppid() for compiler in self._compilers(host)}
        victims = [worker for worker in workers_of(host) if (worker.pid in compiling) == busy]
        return self._signal(victims, number)

    def _signal_server(self, host: psutil.Process, number: int) -> bool:
        servers = [child for worker in workers_of(host) for child in worker.children() if is_fork_server(child)]
        return self._signal(servers, number)

    def _signal(self, victims: list[psutil.Process], number: int) -> bool:
        if victims:
            victims[self._rng.integers(len(victims))].send_signal(number)
        return bool(victims)

    def _limit_memory(self, host: psutil.Process) -> bool:
        workers = workers_of(host)
        if not workers:
            return False
        worker = workers[self._rng.integers(len(workers))]
        before = worker.rlimit(psutil.RLIMIT_AS)
        worker.rlimit(psutil.RLIMIT_AS, (worker.memory_info().vms, before[1]))

        def undo() -> None:
            with contextlib.suppress(psutil.Error, OSError):
                worker.rlimit(psutil.RLIMIT_AS, before)

        self._undo.append((time.monotonic() + _MEMORY_SHORT_S, undo))
        return True

    def _fill_disk(self, host: psutil.Process) -> bool:
        path = self._temporary.parent / "ballast"
        with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
            while file.write(b"\0" * (1 << 20)):
                pass
        self._undo.append((time.monotonic() + _DISK_FULL_S, lambda: path.unlink(missing_ok=True)))
        self._undo.sort(key=lambda each: each[0])
        return True
