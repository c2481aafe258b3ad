"""The worker pool: all jobs are done, whatever happens to the workers."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from compiler_opt.collect.rollout import Rollout
from compiler_opt.collect.workers import Job, WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.errors import PolicyError
from compiler_opt.llvm.toolchain import Toolchain, probe
from compiler_opt.policies.policy import ConstantPolicy, FeaturePolicy, RandomPolicy
from tests.small_corpus import make_small_corpus


@pytest.fixture(scope="module")
def newest() -> Toolchain:
    return probe("clang-22")


@pytest.fixture(scope="module")
def corpus(newest: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_small_corpus(tmp_path_factory.mktemp("corpus"), str(newest.clang))


def test_every_job_is_done_once(corpus: Corpus, newest: Toolchain) -> None:
    jobs = [Job(module, RandomPolicy(), seed) for module in corpus.modules for seed in range(5)]
    with WorkerPool(newest, "inlining", 2) as pool:
        done = [(job.module.name, job.seed) for job, result in pool.rollouts(jobs) if result.failure is None]
    assert sorted(done) == sorted((job.module.name, job.seed) for job in jobs)


def test_two_workers_decide_what_one_does(corpus: Corpus, newest: Toolchain) -> None:
    jobs = [Job(module, RandomPolicy(), 7) for module in corpus.modules]
    found = []
    for num_workers in (1, 2):
        with WorkerPool(newest, "inlining", num_workers) as pool:
            found.append({job.module.name: result.measurement for job, result in pool.rollouts(jobs)})
    assert found[0] == found[1]


def test_an_unusable_policy_stops_the_run(corpus: Corpus, newest: Toolchain) -> None:
    jobs = [Job(module, FeaturePolicy("unheard_of")) for module in corpus.modules]
    with WorkerPool(newest, "inlining", 2) as pool, pytest.raises(PolicyError, match="unheard_of"):
        list(pool.rollouts(jobs))


def test_a_killed_worker_is_replaced(corpus: Corpus, newest: Toolchain) -> None:
    jobs = [Job(corpus.modules[0], ConstantPolicy(0), seed) for seed in range(12)]
    with WorkerPool(newest, "inlining", 2) as pool:
        results: list[Rollout] = []
        for _, result in pool.rollouts(jobs):
            if not results:
                workers = [child for child in psutil.Process().children() if "spawn_main" in " ".join(child.cmdline())]
                workers[0].send_signal(signal.SIGKILL)
            results.append(result)
    assert len(results) == 12
    assert [result.failure for result in results if result.failure] == []


_HOST = """
import sys
from pathlib import Path
from compiler_opt.collect.rollout import Rollout
from compiler_opt.collect.workers import Job, WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.llvm.toolchain import probe
from compiler_opt.policies.policy import RandomPolicy

if __name__ == "__main__":
    corpus = Corpus.load(Path(sys.argv[1]))
    jobs = [Job(corpus.modules[0], RandomPolicy(), seed) for seed in range(100_000)]
    with WorkerPool(probe("clang-22"), "inlining", 2) as pool:
        for count, _ in enumerate(pool.rollouts(jobs)):
            if count == 3:
                print("running", flush=True)
"""


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGINT])
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
        assert host.stdout.readline() == b"running\n"
        family = psutil.Process(host.pid).children(recursive=True)
        host.send_signal(signal_number)
        host.wait(20)
    _, alive = psutil.wait_procs(family, timeout=20)
    assert alive == []
    if signal_number == signal.SIGINT:
        assert list(temporary.iterdir()) == []
        return
    # After SIGKILL, whoever comes next tidies up.
    time.sleep(1.1)
    tidy = "from compiler_opt.llvm.scratch import scratch_directory\nwith scratch_directory(): pass"
    subprocess.run(
        [sys.executable, "-c", tidy], check=True, env={**os.environ, "PYTHONPATH": root, "TMPDIR": str(temporary)}
    )
    assert list(temporary.iterdir()) == []
