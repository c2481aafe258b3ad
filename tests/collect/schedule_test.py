"""The order of jobs, and what becomes of those that are lost."""

from pathlib import Path

from compiler_opt.collect.schedule import Job, Schedule, SetAside, lost_rollout
from compiler_opt.corpus.module import Module

_JOBS = [Job(Module(name, "p", Path("/nowhere")), None) for name in "abc"]


def test_jobs_are_drawn_as_they_are_needed_and_none_means_later() -> None:
    schedule: Schedule[float] = Schedule(iter([_JOBS[0], None, _JOBS[1], _JOBS[2]]), {})
    for count, expected in ((3, "a"), (2, "ab"), (2, "ab"), (3, "abc")):
        schedule.refill(count)
        assert "".join(task.job.module.name for task in schedule.waiting) == expected
        assert not schedule.is_empty
    schedule.waiting.clear()
    assert not schedule.is_empty  # It has not been asked again.
    schedule.refill(3)
    assert schedule.is_empty


def test_a_job_whose_worker_dies_is_repeated_next_then_alone_then_set_aside() -> None:
    set_aside: SetAside = {}
    schedule: Schedule[float] = Schedule(_JOBS, set_aside)
    schedule.refill(3)
    task = schedule.waiting.popleft()
    lost = lost_rollout(task.job, "a: the worker died")
    schedule.lose(task, lost, died=True)
    assert schedule.waiting.popleft() is task and not schedule.suspects
    schedule.lose(task, lost, died=True)
    assert schedule.suspects.popleft() is task and len(schedule.waiting) == 2
    assert not schedule.finished and not set_aside
    schedule.lose(task, lost, died=True)
    assert schedule.finished.pop() == (task.job, lost)
    assert list(set_aside) == [(Path("/nowhere"), "a")]


def test_a_job_that_hangs_or_lacks_memory_is_repeated_alone() -> None:
    set_aside: SetAside = {}
    schedule: Schedule[float] = Schedule(_JOBS, set_aside)
    schedule.refill(3)
    task = schedule.waiting.popleft()
    lost = lost_rollout(task.job, "a: out of memory", is_transient=True)
    schedule.lose(task, lost)
    assert schedule.suspects.popleft() is task
    schedule.lose(task, lost)
    assert schedule.finished.pop() == (task.job, lost) and not set_aside


def test_a_job_whose_machine_leaves_is_repeated_next_and_only_blamed_after_many() -> None:
    set_aside: SetAside = {}
    schedule: Schedule[float] = Schedule(_JOBS, set_aside)
    schedule.refill(3)
    task = schedule.waiting.popleft()
    lost = lost_rollout(task.job, "a: its machine has left")
    for _ in range(9):
        schedule.lose_machine(task, lost)
        assert schedule.waiting.popleft() is task and not schedule.suspects
    schedule.lose_machine(task, lost)
    assert schedule.suspects.popleft() is task
    schedule.lose_machine(task, lost)
    assert schedule.finished.pop() == (task.job, lost) and list(set_aside) == [(Path("/nowhere"), "a")]
