"""Workers that sleep for as long as real ones compiled, and answer what those answered: hundreds on one machine.

One process plays all of them, so that they take little of a CPU. It speaks the protocol of `collect.worker`, over one
socket per worker: the pool cannot tell the difference. A simulated worker begins its next job once its last answer is
sent in full, as a real one does, so a coordinator that reads slowly keeps it waiting.
"""

import contextlib
import dataclasses
import heapq
import itertools
import multiprocessing
import pickle
import selectors
import signal
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from compiler_opt.collect.worker import LocalWorker, WorkerSettings
from compiler_opt.llvm.processes import die_with_parent

_LENGTH = struct.Struct("!i")
"""What `multiprocessing.connection` sends before each message of less than 2 GiB."""
_CHUNK_BYTES = 1 << 16


@dataclasses.dataclass(frozen=True)
class Recorded:
    """A rollout that was measured: how many seconds it took, and the pickled answer."""

    seconds: float
    answer: bytes


@dataclasses.dataclass(frozen=True)
class Conditions:
    """What can go wrong.

    Attributes:
      start_s: seconds that a worker takes to start.
      death_rate: share of the jobs in which the worker dies.
      straggler_rate: share of the jobs that take `straggler_factor` times as long.
      straggler_factor: see there.
      disk_s: mean of the seconds that a slow disk adds to each job, exponentially distributed.
      seed: of all of these.
    """

    start_s: float = 0.5
    death_rate: float = 0.0
    straggler_rate: float = 0.0
    straggler_factor: float = 20.0
    disk_s: float = 0.0
    seed: int = 1


@dataclasses.dataclass(frozen=True)
class Event:
    """A job of a worker, in seconds of `time.monotonic()`, which all processes share.

    Attributes:
      worker: its number.
      begun_s: when it began the job.
      done_s: when it had compiled.
      sent_s: when the answer was sent.
    """

    worker: int
    begun_s: float
    done_s: float
    sent_s: float


class SimulatedWorkers:
    """Simulated workers; `start` is for `WorkerPool(start_worker=...)`.

    with SimulatedWorkers(recorded, Conditions()) as simulated, WorkerPool(..., start_worker=simulated.start) as pool:
        ...
    """

    def __init__(self, recorded: Mapping[str, Sequence[Recorded]], conditions: Conditions):
        """`recorded`: rollouts by module; a job gets one of its module's, by its seed."""
        context = multiprocessing.get_context("spawn")
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._events, events = context.Pipe(duplex=False)
        self._process = context.Process(target=_play, args=(theirs, events, dict(recorded), conditions), daemon=True)
        self._process.start()
        theirs.close()
        events.close()

    def __enter__(self) -> "SimulatedWorkers":
        return self

    def __exit__(self, *exception: object) -> None:
        self._control.close()
        self._events.close()
        self._process.kill()
        self._process.join()

    def start(self, settings: WorkerSettings, scratch: Path) -> LocalWorker:
        """A worker without a process of its own."""
        del settings
        scratch.mkdir()
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._control, [b"w"], [theirs.fileno()])
        return LocalWorker(Connection(ours.detach()), _Dead(), scratch)

    def events(self) -> list[Event]:
        """All jobs so far."""
        self._control.sendall(b"e")
        found: list[Event] = self._events.recv()
        return found


class _Dead:
    """The process of a simulated worker, for the pool: whenever that looks, it has been killed."""

    pid = None
    exitcode = -signal.SIGKILL

    def kill(self) -> None:
        """The worker ends when its connection is closed."""

    def join(self) -> None:
        """Likewise."""

    def close(self) -> None:
        """Likewise."""


class _Simulated:
    """A simulated worker: what it has received and what it must send."""

    def __init__(self, number: int, connection: socket.socket):
        self.number = number
        self.connection = connection
        self.received = bytearray()
        self.jobs: deque[bytes] = deque()
        self.unsent = memoryview(b"")
        self.begun_s: float | None = None
        self.done_s: float | None = None


class _Player:
    """Plays all workers, in one thread."""

    def __init__(self, recorded: Mapping[str, Sequence[Recorded]], conditions: Conditions):
        self._recorded = recorded
        self._conditions = conditions
        self._rng = np.random.default_rng(conditions.seed)
        self._selector = selectors.DefaultSelector()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._numbers = itertools.count()
        self.events: list[Event] = []

    def play(self, control: socket.socket, events: Connection) -> None:
        self._selector.register(control, selectors.EVENT_READ)
        while True:
            timeout_s = max(0.0, self._due[0][0] - time.monotonic()) if self._due else None
            for key, mask in self._selector.select(timeout_s):
                if key.data is not None:
                    self._serve(key.data, mask)
                    continue
                message, descriptors, _, _ = socket.recv_fds(control, 1, 1)
                if not message:
                    return
                if descriptors:
                    self._add(socket.socket(fileno=descriptors[0]))
                else:
                    events.send(self.events)
            now_s = time.monotonic()
            while self._due and self._due[0][0] <= now_s:
                heapq.heappop(self._due)[2]()

    def _add(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        worker = _Simulated(next(self._numbers), connection)
        self._selector.register(connection, selectors.EVENT_READ, worker)
        self._after(self._conditions.start_s, lambda: self._send(worker, pickle.dumps(None)))

    def _after(self, seconds: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._due, (time.monotonic() + seconds, next(self._order), do))

    def _serve(self, worker: _Simulated, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._flush(worker)
        if not mask & selectors.EVENT_READ or worker.connection.fileno() < 0:
            return
        with contextlib.suppress(BlockingIOError):
            try:
                content = worker.connection.recv(_CHUNK_BYTES)
            except ConnectionError:
                content = b""
            if not content:
                self._end(worker)
                return
            worker.received += content
        while len(worker.received) >= _LENGTH.size:
            [length] = _LENGTH.unpack_from(worker.received)
            end = _LENGTH.size + length
            if len(worker.received) < end:
                break
            worker.jobs.append(bytes(worker.received[_LENGTH.size : end]))
            del worker.received[:end]
        self._begin(worker)

    def _begin(self, worker: _Simulated) -> None:
        """Begins the next job of an idle worker."""
        if worker.begun_s is not None or worker.unsent or not worker.jobs:
            return
        worker.begun_s, conditions = time.monotonic(), self._conditions
        job, _ = pickle.loads(worker.jobs.popleft())  # noqa: S301 - from the pool
        choices = self._recorded[job.module.name]
        chosen = choices[job.seed % len(choices)]
        seconds = chosen.seconds
        if self._rng.random() < conditions.straggler_rate:
            seconds *= conditions.straggler_factor
        if conditions.disk_s:
            seconds += self._rng.exponential(conditions.disk_s)
        if self._rng.random() < conditions.death_rate:
            self._after(seconds * self._rng.random(), lambda: self._end(worker))
        else:
            # Unpickling the job took a while.
            self._after(worker.begun_s + seconds - time.monotonic(), lambda: self._finish(worker, chosen.answer))

    def _finish(self, worker: _Simulated, answer: bytes) -> None:
        worker.done_s = time.monotonic()
        self._send(worker, answer)

    def _send(self, worker: _Simulated, message: bytes) -> None:
        worker.unsent = memoryview(_LENGTH.pack(len(message)) + message)
        self._flush(worker)

    def _flush(self, worker: _Simulated) -> None:
        """Sends what the socket takes, and begins the next job when all is sent."""
        if worker.connection.fileno() < 0:
            return
        try:
            while worker.unsent:
                worker.unsent = worker.unsent[worker.connection.send(worker.unsent) :]
        except BlockingIOError:
            self._selector.modify(worker.connection, selectors.EVENT_READ | selectors.EVENT_WRITE, worker)
            return
        except ConnectionError:
            self._end(worker)
            return
        self._selector.modify(worker.connection, selectors.EVENT_READ, worker)
        if worker.begun_s is not None and worker.done_s is not None:
            self.events.append(Event(worker.number, worker.begun_s, worker.done_s, time.monotonic()))
        worker.begun_s = worker.done_s = None
        self._begin(worker)

    def _end(self, worker: _Simulated) -> None:
        if worker.connection.fileno() >= 0:
            self._selector.unregister(worker.connection)
            worker.connection.close()


def _play(
    control: socket.socket, events: Connection, recorded: Mapping[str, Sequence[Recorded]], conditions: Conditions
) -> None:
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(ConnectionError, BrokenPipeError):
        _Player(recorded, conditions).play(control, events)
