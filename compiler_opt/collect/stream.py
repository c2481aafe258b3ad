"""Collectors of iterations: one at a time, or several at once.

with RolloutStream(pool, costs) as collector:
    collector.submit(collection)
    collector.submit(the next collection)
    batch = collector.next()    # of the first; meanwhile, and while the caller learns, the second is collected
"""

import contextlib
import sys
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any, Generic, Protocol

from compiler_opt.collect.groups import CompileCosts, GroupCollection, RolloutBatch, collect
from compiler_opt.collect.workers import Job, WorkerPool
from compiler_opt.objectives.objective import Context, Measurement

_SWITCH_INTERVAL_S = 0.0002
"""After how long a thread that computes in Python lets another one run; by default 0.005."""


class Collector(Protocol[Measurement, Context]):
    """Iterations that are collected in the order in which they are submitted."""

    def __enter__(self) -> "Collector[Measurement, Context]":
        """Begins to collect."""

    def __exit__(self, *exception: object) -> None:
        """Gives up what has not been returned."""

    def __len__(self) -> int:
        """Iterations that were submitted and not returned yet."""

    def submit(self, collection: GroupCollection[Measurement, Context], description: str = "") -> None:
        """Adds an iteration; `description` is the label of its progress bar, if there is one."""

    def next(self) -> RolloutBatch[Measurement, Context]:
        """Waits for the oldest iteration; raises what `WorkerPool.rollouts` raises."""

    def paused(self) -> contextlib.AbstractContextManager[None]:
        """In this context, the caller may use the pool."""


class InTurn(Generic[Measurement, Context]):
    """Collects an iteration when it is asked for: nothing happens meanwhile, and the same seed gives the same."""

    def __init__(self, pool: WorkerPool[Measurement], costs: CompileCosts):
        """`costs`: of modules, to begin with the longest; learns from all rollouts."""
        self._pool = pool
        self._costs = costs
        self._submitted: deque[tuple[GroupCollection[Measurement, Context], str]] = deque()

    def __enter__(self) -> "InTurn[Measurement, Context]":
        return self

    def __exit__(self, *exception: object) -> None:
        self._submitted.clear()

    def __len__(self) -> int:
        return len(self._submitted)

    def submit(self, collection: GroupCollection[Measurement, Context], description: str = "") -> None:
        self._submitted.append((collection, description))

    def next(self) -> RolloutBatch[Measurement, Context]:
        collection, description = self._submitted.popleft()
        collect(collection, self._pool, self._costs, description)
        return collection.batch()

    def paused(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


class RolloutStream(Generic[Measurement, Context]):
    """Collects ahead, so that no worker waits for the learner or for the last compilation of an iteration.

    One thread drives the pool; workers get jobs of the oldest iteration that has any. For use by one other thread,
    which must not use the pool except in `paused`. Meanwhile, threads of the process take turns more often: the one
    that drives the pool waits for its turn after each system call, some five times for each result.
    """

    def __init__(self, pool: WorkerPool[Measurement], costs: CompileCosts, max_cut: int = 0):
        """Starts no thread yet.

        Args:
          pool: does the rollouts.
          costs: of modules, to begin with the longest; learns from all rollouts.
          max_cut: most modules of an iteration that `next` does not wait for, once workers are idle.
        """
        self._pool = pool
        self._costs = costs
        self._max_cut = max_cut
        self._changed = threading.Condition()
        self._collections: deque[GroupCollection[Measurement, Context]] = deque()
        self._jobs: deque[Job] = deque()
        self._owners: dict[int, tuple[Job, GroupCollection[Measurement, Context]]] = {}
        self._awaited: GroupCollection[Measurement, Context] | None = None
        self._is_paused = self._is_closed = self._is_collecting = False
        self._error: BaseException | None = None
        # Workers die with the thread that starts them, so there is one for all.
        self._thread = threading.Thread(target=self._run, name="collecting", daemon=True)

    def __enter__(self) -> "RolloutStream[Measurement, Context]":
        self._switch_interval_s = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._pool.wake()
        self._thread.join()
        sys.setswitchinterval(self._switch_interval_s)

    def __len__(self) -> int:
        return len(self._collections)

    def submit(self, collection: GroupCollection[Measurement, Context], description: str = "") -> None:
        del description
        with self._changed:
            self._pool.policies.prune()
            self._collections.append(collection)
            self._take_jobs(collection)
            self._changed.notify_all()
        self._pool.wake()

    def next(self) -> RolloutBatch[Measurement, Context]:
        with self._changed:
            self._awaited = self._collections[0]
            self._pool.wake()
            while not self._awaited.is_complete and self._error is None:
                self._changed.wait()
            self._awaited = None
            if self._error is not None:
                raise self._error
            return self._collections.popleft().batch()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """In this context, the caller may use the pool: what has been started is finished before, the rest after."""
        with self._changed:
            self._is_paused = True
            self._pool.wake()
            while self._is_collecting:
                self._changed.wait()
        try:
            yield
        finally:
            with self._changed:
                self._is_paused = False
                self._changed.notify_all()

    def _take_jobs(self, collection: GroupCollection[Measurement, Context]) -> None:
        jobs = collection.next_jobs(self._costs)
        self._owners |= {id(job): (job, collection) for job in jobs}
        self._jobs.extend(jobs)

    def _run(self) -> None:
        """The thread: drives the pool, except while paused or without jobs."""
        try:
            while self._wait_for_jobs():
                for job, rollout in self._pool.rollouts(self._draw()):
                    with self._changed:
                        self._add(job, rollout)
                with self._changed:
                    self._is_collecting = False
                    self._changed.notify_all()
        except _ClosedError:
            pass
        except BaseException as error:
            with self._changed:
                self._error = error
                self._is_collecting = False
                self._changed.notify_all()

    def _wait_for_jobs(self) -> bool:
        """False if the stream is closed."""
        with self._changed:
            while not self._is_closed and (self._is_paused or not self._jobs):
                self._changed.wait()
            self._is_collecting = not self._is_closed
            return self._is_collecting

    def _draw(self) -> Iterator[Job | None]:
        """Jobs as the pool asks for them; None while there is none. Ends when paused."""
        while True:
            with self._changed:
                if self._is_closed:
                    raise _ClosedError
                if self._is_paused:
                    return
                if not self._jobs:
                    self._cut()
                job = self._jobs.popleft() if self._jobs else None
            yield job

    def _add(self, job: Job, rollout: Any) -> None:
        _, collection = self._owners.pop(id(job))
        collection.add(job, rollout)
        self._costs.add(rollout)
        # Those that depend on earlier rollouts.
        self._take_jobs(collection)
        if collection.is_complete:
            self._changed.notify_all()

    def _cut(self) -> None:
        """Gives up the last modules of the iteration that is awaited, if workers are idle."""
        awaited = self._awaited
        if awaited is None or not self._max_cut or not self._pool.has_idle_worker or awaited.is_complete:
            return
        if awaited.cut(self._max_cut):
            self._take_jobs(awaited)
            self._changed.notify_all()


class _ClosedError(Exception):
    """The stream was closed; ends `WorkerPool.rollouts`, which drops what is left."""
