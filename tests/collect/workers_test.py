"""The worker pool does all jobs, whatever happens to the workers."""

import dataclasses
import logging
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from compiler_opt import problem as problems
from compiler_opt.collect.baseline import cached_baseline, count_decisions
from compiler_opt.collect.rollout import Rollout, RolloutSettings
from compiler_opt.collect.workers import Job, WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.decisions.inlining import PROBLEM as INLINING_PROBLEM
from compiler_opt.errors import CorpusError, PolicyError
from compiler_opt.llvm import sandbox
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.policy import ConstantPolicy, FeaturePolicy, RandomPolicy
from tests.probed import probed
from tests.small_corpus import make_small_corpus


@pytest.fixture(scope="module")
def newest() -> Toolchain:
    return probed("clang-22")


@pytest.fixture
def unrestricted(monkeypatch: pytest.MonkeyPatch) -> None:
    """For compilers that kill workers, or write down beside themselves that they were started."""
    monkeypatch.setenv(sandbox.VARIABLE, "0")


@pytest.fixture(scope="module")
def corpus(newest: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_small_corpus(tmp_path_factory.mktemp("corpus"), str(newest.clang))


def test_every_job_is_done_once(corpus: Corpus, newest: Toolchain) -> None:
    jobs = [Job(module, RandomPolicy(), seed) for module in corpus.modules for seed in range(5)]
    with WorkerPool(newest, INLINING_PROBLEM, 2) as pool:
        done = [(job.module.name, job.seed) for job, result in pool.rollouts(jobs) if result.failure is None]
    assert sorted(done) == sorted((job.module.name, job.seed) for job in jobs)


@pytest.mark.ci
def test_two_workers_decide_what_one_does(corpus: Corpus, newest: Toolchain) -> None:
    jobs = [Job(module, RandomPolicy(), 7) for module in corpus.modules]
    found = []
    for num_workers in (1, 2):
        with WorkerPool(newest, INLINING_PROBLEM, num_workers) as pool:
            found.append({job.module.name: result.measurement for job, result in pool.rollouts(jobs)})
    assert found[0] == found[1]


def test_an_unusable_policy_stops_the_run(corpus: Corpus, newest: Toolchain) -> None:
    jobs = [Job(module, FeaturePolicy("unheard_of")) for module in corpus.modules]
    with WorkerPool(newest, INLINING_PROBLEM, 2) as pool, pytest.raises(PolicyError, match="unheard_of"):
        list(pool.rollouts(jobs))


def _workers() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if "spawn_main" in " ".join(child.cmdline())]


@pytest.mark.ci
def test_a_killed_worker_is_replaced(corpus: Corpus, newest: Toolchain) -> None:
    jobs = [Job(corpus.modules[0], ConstantPolicy(0), seed) for seed in range(12)]
    with WorkerPool(newest, INLINING_PROBLEM, 2) as pool:
        results: list[Rollout] = []
        for _, result in pool.rollouts(jobs):
            if not results:
                _workers()[0].send_signal(signal.SIGKILL)
            results.append(result)
        assert len(results) == 12
        assert [result.failure for result in results if result.failure] == []
        # Idle workers, too; stopped ones take no jobs.
        for signal_number in (signal.SIGKILL, signal.SIGSTOP):
            before = _workers()
            assert before
            for worker in before:
                worker.send_signal(signal_number)
            assert [result.failure for _, result in pool.rollouts(jobs[:3])] == [None] * 3
            assert not any(worker.is_running() for worker in before)
        assert [worker.num_threads() for worker in _workers()] == [1] * len(_workers())
    assert _workers() == []


@pytest.mark.usefixtures("unrestricted")
def test_compilers_are_as_nice_as_their_workers(newest: Toolchain, corpus: Corpus, tmp_path: Path) -> None:
    clang = _in_place_of(newest.clang, tmp_path, f"nice > {tmp_path}/niceness")
    with WorkerPool(dataclasses.replace(newest, clang=clang), INLINING_PROBLEM, 1, niceness=3) as pool:
        assert [result.failure for _, result in pool.rollouts([Job(corpus.modules[0], None)])] == [None]
    assert int((tmp_path / "niceness").read_text()) == min(os.nice(0) + 3, 19)


@pytest.mark.ci
def test_an_idle_worker_is_small_and_has_one_thread(newest: Toolchain, corpus: Corpus) -> None:
    with WorkerPool(newest, INLINING_PROBLEM, 2) as pool:
        list(pool.rollouts(Job(module, RandomPolicy()) for module in corpus.modules))
        for worker in _workers():
            # What it has written to, and its compiler, which waits. Pages of files count for nobody: whether another
            # process shares them depends on which other compilers run.
            family = (worker, *worker.children(recursive=True))
            assert sum(_written_bytes(process.pid) for process in family) <= 36 << 20
            assert worker.num_threads() == 1


def _written_bytes(pid: int) -> int:
    """Memory of a process that is neither shared nor can be read from a file again."""
    [line] = re.findall(r"^Private_Dirty: +(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    return int(line) << 10


@pytest.mark.ci
def test_a_new_call_drops_unfinished_jobs(corpus: Corpus, newest: Toolchain) -> None:
    jobs = [Job(corpus.modules[0], ConstantPolicy(0), seed) for seed in range(8)]
    with WorkerPool(newest, INLINING_PROBLEM, 1) as pool:
        left = pool.rollouts(jobs)
        next(left)
        later = pool.rollouts(jobs[3:5])
        found = [next(later)]
        del left
        assert sorted(job.seed for job, _ in (*found, *later)) == [3, 4]
        assert [job.seed for job, _ in pool.rollouts(jobs[7:])] == [7]


def _in_place_of(clang: Path, folder: Path, script: str) -> Path:
    """A compiler that first runs a script; MODULE has its arguments, the file STARTED a line per compilation."""
    path = folder / "clang"
    head = f'#!/bin/bash\nSTARTED={folder}/started MODULE="$*"\necho >> $STARTED\n'
    path.write_text(f'{head}{script}\nexec {clang} "$@"\n')
    path.chmod(0o755)
    return path


def _starts(folder: Path) -> int:
    return len((folder / "started").read_text().splitlines())


@pytest.mark.ci
@pytest.mark.usefixtures("unrestricted")
@pytest.mark.parametrize("how", ["-KILL $PPID", "-STOP $PPID; exec sleep 60"])
def test_a_module_that_ends_its_worker_is_found_and_set_aside(
    corpus: Corpus, newest: Toolchain, tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    clang = _in_place_of(newest.clang, tmp_path, f"case $MODULE in *area*) kill {how};; esac")
    modules = corpus.modules
    poison = next(module.name for module in modules if "area" in module.name)
    with WorkerPool(dataclasses.replace(newest, clang=clang), INLINING_PROBLEM, 2) as pool:
        results = [result for _, result in pool.rollouts(Job(module, None) for module in modules)]
        assert sorted(result.module for result in results) == sorted(module.name for module in modules)
        (failed,) = [result for result in results if result.failure]
        assert failed.module == poison and failed.failure is not None and poison in failed.failure
        assert poison in caplog.text and "alone" in caplog.text
        # Beside the others, if its worker died, and alone; it is only tried again if the machine was to blame.
        repetitions = 2 if "KILL" in how else 1
        assert _starts(tmp_path) == len(modules) + repetitions
        if "KILL" in how:
            assert "died (SIGKILL)" in failed.failure and not failed.is_transient
            again = [result for _, result in pool.rollouts(Job(module, None) for module in modules)]
            assert [result.module for result in again if result.failure] == [poison]
            assert _starts(tmp_path) == 2 * len(modules) + repetitions - 1
        else:
            assert "was stopped" in failed.failure and failed.is_transient


class _Endless(ConstantPolicy):
    """Unpickling it hangs."""

    def __reduce__(self) -> tuple[Any, ...]:
        return signal.pause, ()


@pytest.mark.ci
def test_a_worker_that_hangs_is_replaced(corpus: Corpus, newest: Toolchain) -> None:
    settings = RolloutSettings(timeout_s=0.1)
    jobs = [Job(corpus.modules[0], _Endless(0), 0, settings), Job(corpus.modules[0], ConstantPolicy(0), 1)]
    with WorkerPool(newest, INLINING_PROBLEM, 2, slack_s=0.1) as pool:
        failures = {job.seed: result.failure for job, result in pool.rollouts(jobs)}
    assert "did not answer" in (failures[0] or "")


@pytest.mark.ci
@pytest.mark.usefixtures("unrestricted")
def test_what_ran_out_of_time_while_the_run_was_stopped_is_repeated(
    corpus: Corpus, newest: Toolchain, tmp_path: Path
) -> None:
    once = f"[ -e {tmp_path}/once ] || {{ touch {tmp_path}/once; kill -STOP $PPID; kill -CONT $PPID; exec sleep 60; }}"
    clang = _in_place_of(newest.clang, tmp_path, once)
    with WorkerPool(dataclasses.replace(newest, clang=clang), INLINING_PROBLEM, 1) as pool:
        ((_, result),) = pool.rollouts([Job(corpus.modules[0], None, 0, RolloutSettings(timeout_s=2))])
    assert result.failure is None and _starts(tmp_path) == 2


@pytest.mark.usefixtures("unrestricted")
def test_transient_failures_are_repeated_and_never_kept(corpus: Corpus, newest: Toolchain, tmp_path: Path) -> None:
    module, problem, path = corpus.modules[:1], problems.load("inlining"), tmp_path / "baseline.json"
    once = f"[ -e {tmp_path}/once ] || {{ touch {tmp_path}/once; kill -KILL $$; }}"
    always = f"[ -e {tmp_path}/enough ] || {{ echo No space left on device >&2; exit 1; }}"
    clang = _in_place_of(newest.clang, tmp_path, once)
    with WorkerPool(dataclasses.replace(newest, clang=clang), INLINING_PROBLEM, 2, patience_s=0) as pool:
        ((_, result),) = pool.rollouts([Job(module[0], None)])
        assert result.failure is None and _starts(tmp_path) == 2
        _in_place_of(newest.clang, tmp_path, always)
        with pytest.raises(CorpusError, match="out of memory or disk"):
            cached_baseline(path, {}, module, pool, problem)
        # Neither set aside nor cached.
        assert not path.exists()
        ((_, result),) = pool.rollouts([Job(module[0], None)])
        assert result.failure is not None and result.is_transient
        (tmp_path / "enough").touch()
        assert list(cached_baseline(path, {}, module, pool, problem).scores) == [module[0].name]
        assert path.exists()


@pytest.mark.ci
@pytest.mark.usefixtures("unrestricted")
def test_a_baseline_forgets_no_module_for_one_failure(
    corpus: Corpus, newest: Toolchain, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "compiler_opt")
    once = f"case $MODULE in *area*) mkdir {tmp_path}/once 2> /dev/null && kill -SEGV $$;; esac"
    clang = _in_place_of(newest.clang, tmp_path, once)
    # Over the channel: a plugin for this compiler would have to be built.
    toolchain = dataclasses.replace(newest, clang=clang, plugin_headers=None)
    with WorkerPool(toolchain, INLINING_PROBLEM, 2) as pool:
        baseline = cached_baseline(tmp_path / "baseline.json", {}, corpus.modules, pool, INLINING_PROBLEM)
        # By the default, and without any inlining.
        count = len(corpus.modules)
        assert f"default's scores: {2 * count} compilations of all {count} modules" in caplog.text
        assert f"kept in {tmp_path / 'baseline.json'}" in caplog.text
        (tmp_path / "once").rmdir()
        counted = count_decisions(corpus.modules, pool, INLINING_PROBLEM)
    assert (tmp_path / "once").exists()
    assert counted.failures == {} and set(counted.counts) == set(corpus.by_name)
    assert baseline.failures == {} and set(baseline.scores) == set(corpus.by_name)


@pytest.mark.ci
@pytest.mark.usefixtures("unrestricted")
def test_when_memory_runs_short_fewer_work_at_a_time(corpus: Corpus, newest: Toolchain, tmp_path: Path) -> None:
    script = f"while [ $(wc -l < $STARTED) -lt 3 ] && [ ! -e {tmp_path}/short ]; do sleep 0.05; done"
    clang = _in_place_of(newest.clang, tmp_path, script)

    def available_bytes() -> int:
        if (tmp_path / "short").exists() or not (tmp_path / "started").exists() or _starts(tmp_path) < 2:
            return 1 << 40
        (tmp_path / "short").touch()
        return 0

    toolchain = dataclasses.replace(newest, clang=clang)
    with WorkerPool(toolchain, INLINING_PROBLEM, 2, available_bytes=available_bytes) as pool:
        results = [result for _, result in pool.rollouts(Job(module, None) for module in corpus.modules[:2])]
    assert [result.failure for result in results] == [None, None]
    # One of two jobs was ended, and repeated.
    assert _starts(tmp_path) == 3


_HOST = """
import sys
from pathlib import Path
from compiler_opt.collect.rollout import Rollout
from compiler_opt.collect.workers import Job, WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.llvm.toolchain import probe
from compiler_opt.policies.policy import RandomPolicy
from compiler_opt.decisions.inlining import PROBLEM as INLINING_PROBLEM

if __name__ == "__main__":
    corpus = Corpus.load(Path(sys.argv[1]))
    jobs = [Job(corpus.modules[0], RandomPolicy(), seed) for seed in range(100_000)]
    with WorkerPool(probe("clang-22"), INLINING_PROBLEM, 2) as pool:
        for count, _ in enumerate(pool.rollouts(jobs)):
            if count == 3:
                print("running", flush=True)
"""


@pytest.mark.ci
@pytest.mark.parametrize("signal_number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_nothing_outlives_the_host(signal_number: int, corpus: Corpus, tmp_path: Path) -> None:
    script, temporary = tmp_path / "host.py", tmp_path / "tmp"
    script.write_text(_HOST)
    temporary.mkdir()
    root = str(Path(__file__).parents[2])
    host = subprocess.Popen(
        [sys.executable, str(script), str(corpus.root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": root, "TMPDIR": str(temporary)},
    )
    assert host.stdout is not None
    with host:
        try:
            assert host.stdout.readline() == b"running\n"
            family = psutil.Process(host.pid).children(recursive=True)
            host.send_signal(signal_number)
            host.wait(20)
        finally:
            host.kill()
    _, alive = psutil.wait_procs(family, timeout=20)
    assert alive == []
    if signal_number == signal.SIGINT:
        assert list(temporary.iterdir()) == []
        return
    # After SIGKILL, the next process removes the files.
    tidy = "from compiler_opt.llvm.scratch import scratch_directory\nwith scratch_directory(): pass"
    subprocess.run(
        [sys.executable, "-c", tidy], check=True, env={**os.environ, "PYTHONPATH": root, "TMPDIR": str(temporary)}
    )
    assert list(temporary.iterdir()) == []
