"""Which job comes next, and what becomes of those that were lost."""

import dataclasses
import itertools
import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Generic

from compiler_opt.collect.rollout import Rollout, RolloutSettings, policy_name
from compiler_opt.corpus.module import Module
from compiler_opt.policies.policy import Policy
from compiler_opt.problems.problem import Measurement

_LOG = logging.getLogger(__name__)
_MAX_LOST = 2


@dataclasses.dataclass(frozen=True)
class Job:
    """One rollout to be done; see `rollout` for the fields."""

    module: Module
    policy: Policy | None
    seed: int = 0
    settings: RolloutSettings = RolloutSettings()
    keep_object: Path | None = None


@dataclasses.dataclass
class Task:
    """A job on its way.

    Attributes:
      job: what is to be done.
      num_lost: how often it was begun and nothing came of it, for want of resources or of a worker.
      lost_s: `time.monotonic()` when that was last.
    """

    job: Job
    num_lost: int = 0
    lost_s: float = 0.0


class SetAside:
    """Modules that are not compiled any more, since that ends the worker."""

    def __init__(self) -> None:
        self._reasons: dict[tuple[Path, str], str] = {}

    def add(self, module: Module, reason: str) -> None:
        """Sets a module aside."""
        self._reasons[module.root, module.name] = reason

    def reason(self, module: Module) -> str | None:
        """Why it was set aside; None when it was not."""
        return self._reasons.get((module.root, module.name))


class Schedule(Generic[Measurement]):
    """The jobs of one call.

    A job that was lost is a suspect: it is done once more, alone, so that nobody else suffers and nobody else can be
    the cause. Lost again, it has failed; and if that was not for want of something, its module is set aside.

    Attributes:
      waiting: to be done next.
      suspects: to be done after all others, one at a time.
    """

    def __init__(self, jobs: Iterable[Job], set_aside: SetAside):
        self.waiting: deque[Task] = deque()
        self.suspects: deque[Task] = deque()
        self._remaining = iter(jobs)
        self._set_aside = set_aside
        self._finished: deque[tuple[Job, Rollout[Measurement]]] = deque()

    def refill(self, count: int) -> None:
        """Has so many jobs waiting, or all that are left."""
        for job in itertools.islice(self._remaining, max(0, count - len(self.waiting))):
            self.waiting.append(Task(job))
        # Those of modules that were set aside meanwhile have failed already.
        for tasks in (self.waiting, self.suspects):
            for _ in range(len(tasks)):
                task = tasks.popleft()
                reason = self._set_aside.reason(task.job.module)
                if reason is None:
                    tasks.append(task)
                else:
                    self.finish(task, lost_rollout(task.job, reason))

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to begin, after `refill`."""
        return not self.waiting and not self.suspects

    @property
    def has_finished(self) -> bool:
        """Whether there are results to take."""
        return bool(self._finished)

    def finish(self, task: Task, rollout: Rollout[Measurement]) -> None:
        """Takes a result."""
        self._finished.append((task.job, rollout))

    def take_finished(self) -> Iterator[tuple[Job, Rollout[Measurement]]]:
        """Results, each once."""
        while self._finished:
            yield self._finished.popleft()

    def lose(self, task: Task, rollout: Rollout[Measurement]) -> None:
        """Takes a task of which nothing came, and what to say of it if that is the end of it."""
        task.num_lost += 1
        task.lost_s = time.monotonic()
        if task.num_lost < _MAX_LOST:
            _LOG.warning("%s; it is compiled once more, alone", rollout.failure)
            self.suspects.append(task)
            return
        if not rollout.is_transient:
            _LOG.error("%s, again; the module is set aside", rollout.failure)
            assert rollout.failure is not None
            self._set_aside.add(task.job.module, f"{rollout.failure}, alone and not for the first time: set aside")
        self.finish(task, rollout)


def lost_rollout(job: Job, failure: str, *, is_transient: bool = False) -> Rollout[Any]:
    """What is said of a job that nobody could do."""
    return Rollout(
        module=job.module.name,
        project=job.module.project,
        policy=policy_name(job.policy),
        seed=job.seed,
        trajectory=None,
        measurement=None,
        cpu_s=0.0,
        host_cpu_s=0.0,
        failure=failure,
        is_transient=is_transient,
    )
