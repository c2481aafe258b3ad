"""Rollouts in parallel: one worker process per thread of the machine, each driving one compiler.

Workers end with the process that started them. A failing worker affects only its current job, which is repeated at once
if the worker died. A job that is lost otherwise, because memory or disk ran out or because its worker was stopped or
hung, or whose worker died twice, is repeated while nothing else runs. If its worker dies again, the module is to blame
and is set aside.
"""

import contextlib
import functools
import math
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Generic

from compiler_opt.collect import backends
from compiler_opt.collect.compilation_files import CompilationFiles
from compiler_opt.collect.machine import MIN_MEMORY_BYTES, available_cpus, available_memory_bytes, has_room
from compiler_opt.collect.policy_folder import PolicyFolder
from compiler_opt.collect.rollout import Rollout
from compiler_opt.collect.rollout_settings import RolloutSettings
from compiler_opt.collect.schedule import Job as Job
from compiler_opt.collect.schedule import Schedule, SetAside, Task, lost_rollout
from compiler_opt.collect.worker import Worker, WorkerSettings, start_worker
from compiler_opt.errors import ResourceError
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.spawn import describe_exit
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.objectives.objective import Measurement
from compiler_opt.problem import CompileTask, Problem
from compiler_opt.spaces.learned_policy import LearnedPolicy

_TICK_S = 0.5
_ROOM_S = 0.1
_MAX_FAILED_STARTS = 5
_MAX_COMPILATIONS = 4
"""Compilations in one rollout, each with a timeout: default traces on old compilers take two, each by opt and clang."""
_SLACK_S = 1200.0
"""Extra time for a job, in which a plugin may be built or a module fetched."""
_PATIENCE_S = 60.0
_MAX_WAKES = 1 << 12


class WorkerPool(Generic[Measurement]):
    """Does rollouts in worker processes.

    with WorkerPool(toolchain, problem, num_workers=8) as pool:
        for job, result in pool.rollouts(jobs):
            ...

    Attributes:
      task: what is decided and measured.
      scratch: a folder that the workers can read; removed with the pool.
      policies: the folder of learned policies, in `scratch`.
    """

    def __init__(
        self,
        toolchain: Toolchain,
        problem: Problem[Measurement, Any] | CompileTask[Measurement],
        num_workers: int | None = None,
        *,
        niceness: int = 0,
        compilation_files: CompilationFiles | None = None,
        slack_s: float = _SLACK_S,
        patience_s: float = _PATIENCE_S,
        available_bytes: Callable[[], int] = available_memory_bytes,
        start_worker: Callable[[WorkerSettings, Path], Worker] = start_worker,
    ):
        """Starts no process yet.

        Args:
          toolchain: the compiler.
          problem: what is decided and measured.
          num_workers: compilations at a time; None for one per CPU.
          niceness: added to this process's for workers and compilers, 0 to 19: how far they yield to other processes.
          compilation_files: where to keep the files of compilations; None removes them.
          slack_s: wall-clock seconds that a job may take beyond the timeouts of its compilations.
          patience_s: how long to wait for memory and disk before repeating a job that lacked them.
          available_bytes: returns how much memory is left. If too little, the worker that uses most is ended, and fewer
            work at a time.
          start_worker: starts a worker in a folder that it makes; raises OSError if it cannot.
        """
        self.num_workers = num_workers or available_cpus()
        self.task = problem.task
        self._toolchain = toolchain
        self._slack_s = slack_s
        self._patience_s = patience_s
        self._available_bytes = available_bytes
        self._niceness = niceness
        self._compilation_files = compilation_files
        self._start_worker = start_worker
        self._stack = contextlib.ExitStack()
        self._workers: list[Worker] = []
        self._num_calls = 0
        self._num_started = 0
        self._failed_starts = 0
        self._watched_s = 0.0
        self._had_room_s = -math.inf
        self._set_aside: SetAside = {}

    def __enter__(self) -> "WorkerPool[Measurement]":
        self.scratch = self._stack.enter_context(scratch_directory())
        self.policies = PolicyFolder(self.scratch / "policies")
        self._settings = WorkerSettings(
            self._toolchain, self.task, self.num_workers, self.policies, self._niceness, self._compilation_files
        )
        self._selector = self._stack.enter_context(selectors.DefaultSelector())
        self._wake_reader, self._wake_writer = (self._stack.enter_context(end) for end in socket.socketpair())
        self._wake_writer.setblocking(False)
        self._selector.register(self._wake_reader, selectors.EVENT_READ)
        return self

    def __exit__(self, *exception: object) -> None:
        self._end(*self._workers)
        self._stack.close()

    def rollouts(self, jobs: Iterable[Job | None]) -> Iterator[tuple[Job, Rollout[Measurement]]]:
        """Does all jobs; yields each with its result as it is done, in no particular order.

        A call drops what earlier calls have left undone.

        Args:
          jobs: drawn as workers need them. None instead of a job means that there is none now; the next is asked for
            after the next result, half a second, or a call of `wake`.

        Raises:
          CompilerOptError: a policy or the compiler itself is unusable, or no worker starts; the remaining jobs are
            dropped.
        """
        self._end(*self._busy())
        self.policies.prune()
        self._num_calls += 1
        call = self._num_calls
        schedule = Schedule[Measurement](jobs, self._set_aside)
        try:
            while True:
                schedule.refill(2 * self.num_workers)
                self._assign(schedule)
                while schedule.finished:
                    yield schedule.finished.popleft()
                if call != self._num_calls:
                    raise RuntimeError("WorkerPool.rollouts was called again before the earlier rollouts were done")
                if schedule.is_empty and not self._busy():
                    return
                self._collect(schedule)
                self._watch(schedule)
        finally:
            if call == self._num_calls:
                self._end(*self._busy())

    def wake(self) -> None:
        """Makes a running `rollouts` ask for a job; for other threads than the one that runs it."""
        with contextlib.suppress(BlockingIOError):
            self._wake_writer.send(b"w")

    @property
    def has_idle_worker(self) -> bool:
        """Whether a worker that has started, or that could be started, has no task."""
        if len(self._workers) < self.num_workers:
            return True
        return any(worker.is_ready and not worker.tasks for worker in self._workers)

    def _busy(self) -> list[Worker]:
        return [worker for worker in self._workers if worker.tasks]

    def _assign(self, schedule: Schedule[Measurement]) -> None:
        """Hands waiting tasks to workers."""
        busy = self._busy()
        if schedule.waiting:
            tasks = schedule.waiting
            self._start_workers(len(busy) + len(tasks))
            workers = sorted(self._workers, key=lambda worker: len(worker.tasks))
        elif schedule.suspects and not busy:
            tasks = schedule.suspects
            self._start_workers(1)
            workers = sorted(self._workers, key=lambda worker: not worker.is_ready)[:1]
        else:
            return
        there_is_room = self._has_room()
        for worker in workers:
            # With a second task a worker need not wait for us; the last tasks are for idle workers.
            if not tasks or len(worker.tasks) > (len(tasks) > self.num_workers):
                return
            is_patient = time.monotonic() < tasks[0].lost_s + self._patience_s and tasks[0].num_lost
            if not there_is_room and (is_patient or self._busy()):
                return
            if worker.is_ready:
                self._offer(worker, tasks, schedule)

    def _has_room(self) -> bool:
        """Whether there is memory and disk for compilations; looks at most every `_ROOM_S`, as long as there is."""
        now_s = time.monotonic()
        if now_s >= self._had_room_s + _ROOM_S and has_room(self.scratch, self._available_bytes()):
            self._had_room_s = now_s
        return now_s < self._had_room_s + _ROOM_S

    def _offer(self, worker: Worker, tasks: deque[Task], schedule: Schedule[Measurement]) -> None:
        task = tasks[0]
        try:
            policy = self.policies.dumps(task.job.policy, functools.partial(self._write_policy, task.job.settings))
        except OSError as error:
            if error.errno not in ResourceError.ERRNOS:
                raise
            failure = f"{task.job.module.name}: out of memory or disk: its policy cannot be written: {error}"
            schedule.lose(tasks.popleft(), lost_rollout(task.job, failure, is_transient=True))
            return
        try:
            if worker.offer(task, policy):
                tasks.popleft()
        except OSError:
            self._lose(worker, schedule)

    def _write_policy(self, settings: RolloutSettings, policy: LearnedPolicy) -> None:
        for backend in backends.installed():
            backend.write_policy(policy, self.task.decision, self._toolchain, self.policies, settings)

    def _start_workers(self, wanted: int) -> None:
        """Starts workers until there are as many as wanted and allowed.

        Raises:
          ResourceError: not even one can be started.
        """
        while len(self._workers) < min(wanted, self.num_workers):
            try:
                worker = self._start_worker(self._settings, self.scratch / f"worker-{self._num_started}")
            except OSError as error:
                if not self._workers:
                    raise ResourceError(f"no worker process can be started: {error}") from error
                return
            self._num_started += 1
            self._workers.append(worker)
            self._selector.register(worker.connection, selectors.EVENT_READ, worker)

    def _collect(self, schedule: Schedule[Measurement]) -> None:
        """Waits for workers, and takes their results."""
        for key, _ in self._selector.select(0 if schedule.finished else _TICK_S):
            worker: Worker | None = key.data
            if worker is None:
                self._wake_reader.recv(_MAX_WAKES)
                continue
            try:
                received = worker.receive()
            except (EOFError, OSError):
                self._lose(worker, schedule)
                continue
            if received is None:
                self._failed_starts = 0
            elif received[1].is_transient:
                schedule.lose(*received)
            else:
                schedule.finish(*received)

    def _watch(self, schedule: Schedule[Measurement]) -> None:
        """Ends workers that hang or are stopped, and the largest one if memory runs short."""
        now_s = time.monotonic()
        if now_s < self._watched_s + _TICK_S:
            return
        self._watched_s = now_s
        for worker in tuple(self._workers):
            if worker.check_stopped():
                self._lose(worker, schedule, "was stopped", is_transient=True)
            elif now_s > worker.begun_s + self._limit_s(worker):
                self._lose(worker, schedule, f"did not answer for {now_s - worker.begun_s:.0f} s")
        busy = self._busy()
        if len(busy) > 1 and self._available_bytes() < MIN_MEMORY_BYTES // 2:
            greediest = max(busy, key=lambda worker: worker.memory_bytes())
            self._lose(greediest, schedule, "was ended: it took the most memory when that ran short", is_transient=True)

    def _limit_s(self, worker: Worker) -> float:
        """How long the worker may take until its next message."""
        if not worker.is_ready:
            return worker.start_timeout_s
        if not worker.tasks:
            return math.inf
        return _MAX_COMPILATIONS * worker.tasks[0].job.settings.timeout_s + self._slack_s

    def _lose(
        self, worker: Worker, schedule: Schedule[Measurement], how: str = "", *, is_transient: bool = False
    ) -> None:
        """Ends a worker, which may have died already.

        Raises:
          ResourceError: too many workers have died while starting.
        """
        code, died = self._end(worker), not how
        has_left = died and code is None
        how = how or ("was lost: its machine has left" if code is None else f"died ({describe_exit(code)})")
        if not worker.is_ready:
            self._failed_starts += 1
            if self._failed_starts >= _MAX_FAILED_STARTS:
                raise ResourceError(
                    f"worker processes do not start: the last one {how}; is there memory and disk left?"
                )
        lost: tuple[Task, Rollout[Measurement]] | None = None
        if worker.tasks:
            task = worker.tasks.popleft()
            failure = f"{task.job.module.name}: the worker process that compiled it {how}"
            lost = task, lost_rollout(task.job, failure, is_transient=is_transient)
        # Tasks that it had not begun.
        while worker.tasks:
            schedule.waiting.appendleft(worker.tasks.pop())
        if lost is not None and has_left:
            schedule.lose_machine(*lost)
        elif lost is not None:
            schedule.lose(*lost, died=died)

    def _end(self, *workers: Worker) -> int | None:
        """Ends workers; returns the exit code of the last, see `Worker.close`."""
        for worker in workers:
            self._workers.remove(worker)
            self._selector.unregister(worker.connection)
            worker.kill()
        return [worker.close() for worker in workers][-1] if workers else 0
