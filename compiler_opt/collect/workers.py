"""Many rollouts at a time: one worker process per thread of the machine, each driving one compiler.

A worker is numpy and the standard library: it starts in a fraction of a second. It lives no longer than the process
that started it, and shares nothing but a scratch directory that goes with it.
"""

import concurrent.futures
import contextlib
import dataclasses
import itertools
import multiprocessing
import os
import signal
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from compiler_opt.collect.rollout import Rollout, RolloutSettings, rollout
from compiler_opt.corpus.description import Module
from compiler_opt.errors import CompilerOptError
from compiler_opt.llvm import processes
from compiler_opt.llvm.fork_server import ForkServers, find_library
from compiler_opt.llvm.processes import die_with_parent
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.policy import Policy
from compiler_opt.problems import problem as problems


@dataclasses.dataclass(frozen=True)
class Job:
    """One rollout to be done; see `rollout` for the fields."""

    module: Module
    policy: Policy | None
    seed: int = 0
    settings: RolloutSettings = RolloutSettings()
    keep_object: Path | None = None


class _Worker:
    """The state of a worker process."""

    current: "_Worker"

    def __init__(self, toolchain: Toolchain, problem_name: str, scratch: Path):
        self.toolchain = toolchain
        self.problem = problems.load(problem_name)
        self.scratch = Path(tempfile.mkdtemp(dir=scratch))
        library = find_library(toolchain.clang)
        processes.use_starter(None if library is None else ForkServers(library).start)


def _start_worker(toolchain: Toolchain, problem_name: str, scratch: Path, host_pid: int) -> None:
    die_with_parent()
    if os.getppid() != host_pid:
        os._exit(1)
    # An interrupt goes to every process of the terminal; the host decides what becomes of it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _Worker.current = _Worker(toolchain, problem_name, scratch)


def _do(job: Job) -> Rollout:
    worker = _Worker.current
    return rollout(
        job.module,
        job.policy,
        worker.problem,
        worker.toolchain,
        scratch=worker.scratch,
        seed=job.seed,
        settings=job.settings,
        keep_object=job.keep_object,
    )


class WorkerPool:
    """Does rollouts in worker processes.

    with WorkerPool(toolchain, "inlining", num_workers=8) as pool:
        for job, result in pool.rollouts(jobs):
            ...
    """

    def __init__(self, toolchain: Toolchain, problem_name: str, num_workers: int | None = None):
        self.num_workers = num_workers or len(os.sched_getaffinity(0))
        self._toolchain = toolchain
        self._problem_name = problem_name
        self._stack = contextlib.ExitStack()
        self._executor: concurrent.futures.ProcessPoolExecutor | None = None

    @property
    def scratch(self) -> Path:
        """A folder that its workers can read, and that goes with it."""
        return self._scratch

    def __enter__(self) -> "WorkerPool":
        self._scratch = self._stack.enter_context(scratch_directory())
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop(kill=exception[0] is not None)
        self._stack.close()

    def _start(self) -> concurrent.futures.ProcessPoolExecutor:
        if self._executor is None:
            # spawn: the host may hold TensorFlow and its threads, which do not survive a fork.
            self._executor = concurrent.futures.ProcessPoolExecutor(
                self.num_workers,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_start_worker,
                initargs=(self._toolchain, self._problem_name, self._scratch, os.getpid()),
            )
        return self._executor

    def _stop(self, *, kill: bool) -> None:
        if self._executor is None:
            return
        if kill:
            for process in multiprocessing.active_children():
                process.kill()
        self._executor.shutdown(wait=True, cancel_futures=True)
        self._executor = None

    def rollouts(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Rollout]]:
        """Does all jobs; yields each with its result as it is done, in no particular order.

        A worker that dies (killed for lack of memory, say) fails the jobs that were under way, and is replaced.

        Raises:
          CompilerOptError: a policy or the compiler itself is unusable; the remaining jobs are dropped.
        """
        remaining = iter(jobs)
        pending: dict[concurrent.futures.Future[Rollout], Job] = {}
        retried: set[int] = set()
        try:
            while True:
                # A few jobs beyond what is being done keep the workers from waiting for us.
                for job in itertools.islice(remaining, max(0, 2 * self.num_workers + 2 - len(pending))):
                    pending[self._start().submit(_do, job)] = job
                if not pending:
                    return
                done, _ = concurrent.futures.wait(pending, return_when=concurrent.futures.FIRST_COMPLETED)
                try:
                    for future in done:
                        result = future.result()
                        yield pending.pop(future), result
                except BrokenProcessPool:
                    self._stop(kill=True)
                    jobs_again = list(pending.values())
                    pending.clear()
                    for job in jobs_again:
                        if id(job) in retried:
                            yield job, _worker_died(job)
                        else:
                            retried.add(id(job))
                            pending[self._start().submit(_do, job)] = job
        except CompilerOptError:
            self._stop(kill=True)
            raise
        finally:
            for future in pending:
                future.cancel()


def _worker_died(job: Job) -> Rollout:
    return Rollout(
        module=job.module.name,
        project=job.module.project,
        policy=job.policy.name if job.policy is not None else "compiler",
        seed=job.seed,
        trajectory=None,
        measurement=None,
        cpu_s=0.0,
        host_cpu_s=0.0,
        failure=f"{job.module.name}: the worker process died twice while compiling it (out of memory?)",
    )
