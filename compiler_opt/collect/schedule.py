"""The jobs of one call of the pool: which comes next, and how often a lost one is repeated."""

import dataclasses
import logging
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Generic, TypeAlias

from compiler_opt.collect.rollout import Rollout, RolloutSettings, policy_name
from compiler_opt.corpus.module import Module
from compiler_opt.objectives.objective import Measurement
from compiler_opt.policies.policy import Policy

SetAside: TypeAlias = dict[tuple[Path, str], str]
"""Modules (root, name) that are no longer compiled because they end the worker, with the reason."""

_LOG = logging.getLogger(__name__)
_MAX_LOST = 2
_MAX_MACHINES_LOST = 10


@dataclasses.dataclass(frozen=True)
class Job:
    """A rollout to do; see `rollout` for the fields."""

    module: Module
    policy: Policy | None
    seed: int = 0
    settings: RolloutSettings = RolloutSettings()
    keep_object: Path | str | None = None


@dataclasses.dataclass
class Task:
    """A job in progress.

    Attributes:
      job: what to do.
      num_lost: how often it was lost, because resources ran out or the worker ended; the first death does not count.
      num_machines_lost: how often the machine that did it has left.
      has_killed: whether its worker has died.
      lost_s: `time.monotonic()` when it was last lost.
    """

    job: Job
    num_lost: int = 0
    lost_s: float = 0.0
    has_killed: bool = False
    num_machines_lost: int = 0


class Schedule(Generic[Measurement]):
    """The jobs of one call.

    A job whose worker dies is repeated next. If that dies, too, or if the job is lost in another way, it is a suspect:
    it is repeated alone, so that it affects no other job and no other job affects it. If it is lost again it has
    failed, and unless resources ran out, its module is set aside. A job whose machine leaves is repeated next, too, and
    is not to blame, unless that happens again and again.

    Attributes:
      waiting: tasks to do next.
      suspects: tasks to do after all others, one at a time.
      finished: results that the caller has not taken yet.
    """

    def __init__(self, jobs: Iterable[Job | None], set_aside: SetAside):
        """`jobs`: drawn as they are needed; None means that there is none now, and ends a `refill`."""
        self.waiting: deque[Task] = deque()
        self.suspects: deque[Task] = deque()
        self._remaining = iter(jobs)
        self._is_exhausted = False
        self._set_aside = set_aside
        self.finished: deque[tuple[Job, Rollout[Measurement]]] = deque()

    def refill(self, count: int) -> None:
        """Fills `waiting` up to `count` tasks, or with all jobs that there are now."""
        while len(self.waiting) < count and not self._is_exhausted:
            try:
                job = next(self._remaining)
            except StopIteration:
                self._is_exhausted = True
                break
            if job is None:
                break
            self.waiting.append(Task(job))
        if not self._set_aside:
            return
        # Jobs of modules that were set aside meanwhile fail now.
        for tasks in (self.waiting, self.suspects):
            for _ in range(len(tasks)):
                task = tasks.popleft()
                reason = self._set_aside.get((task.job.module.root, task.job.module.name))
                if reason is None:
                    tasks.append(task)
                else:
                    self.finish(task, lost_rollout(task.job, reason))

    @property
    def is_empty(self) -> bool:
        """Whether no task is left to start and none will come, after `refill`."""
        return self._is_exhausted and not self.waiting and not self.suspects

    def finish(self, task: Task, rollout: Rollout[Measurement]) -> None:
        self.finished.append((task.job, rollout))

    def lose(self, task: Task, rollout: Rollout[Measurement], *, died: bool = False) -> None:
        """Records that a task was lost, as its worker `died` or otherwise; `rollout` is its result if not repeated."""
        if died and not task.has_killed:
            # Most likely by chance. The other workers need not wait until it is done alone.
            _LOG.warning("%s; it is compiled once more", rollout.failure)
            task.has_killed = True
            self.waiting.appendleft(task)
            return
        task.num_lost += 1
        task.lost_s = time.monotonic()
        if task.num_lost < _MAX_LOST:
            _LOG.warning("%s; it is compiled again, alone", rollout.failure)
            self.suspects.append(task)
            return
        if not rollout.is_transient:
            _LOG.error("%s, again; the module is set aside", rollout.failure)
            reason = f"{rollout.failure}, alone and not for the first time: set aside"
            self._set_aside[task.job.module.root, task.job.module.name] = reason
        self.finish(task, rollout)

    def lose_machine(self, task: Task, rollout: Rollout[Measurement]) -> None:
        """Records that a task was lost with the machine that did it; `rollout` is its result if not repeated."""
        task.num_machines_lost += 1
        if task.num_machines_lost < _MAX_MACHINES_LOST:
            self.waiting.appendleft(task)
        else:
            self.lose(task, rollout)


def lost_rollout(job: Job, failure: str, *, is_transient: bool = False) -> Rollout[Any]:
    """The result of a job that was lost."""
    module, policy = job.module, policy_name(job.policy)
    return Rollout(module.name, module.project, policy, job.seed, failure=failure, is_transient=is_transient)
