"""What Ray adds to a compilation: the smallest module of a corpus, compiled again and again by one worker.

    python -m benchmarks.ray_overhead --data_path=CORPUS --ray_address=auto

Prints milliseconds of a compilation, by a local worker and by one in the cluster: of the wall clock, and of CPUs, by
this process and by all of ours and Ray's on this machine. If the only node is this machine, the last has all of Ray's
work. A worker has its next job before it is done, so the wall clock has only what it waits for.
"""

import contextlib
import os
import platform
import time

import psutil
from absl import flags

from compiler_opt.collect.cluster.ray_workers import ray_pool
from compiler_opt.collect.workers import Job, WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.decisions.inlining import PROBLEM
from compiler_opt.llvm.toolchain import probe
from compiler_opt.report.table import Table
from compiler_opt.tools import entry_point, shared_flags

_DATA_PATH = flags.DEFINE_string("data_path", "demo/corpus/train", "The corpus.")
_CLANG_PATH = shared_flags.clang_path()
_ADDRESS = flags.DEFINE_string("ray_address", "auto", "The Ray cluster.")
_COUNT = flags.DEFINE_integer("count", 1000, "Compilations to measure.", 1)


@entry_point.command
def entry() -> None:
    toolchain = probe(_CLANG_PATH.value)
    module = min(Corpus.load(_DATA_PATH.value).modules, key=lambda module: module.bitcode_bytes())
    pools: list[tuple[str, contextlib.AbstractContextManager[WorkerPool]]] = [
        ("local", WorkerPool(toolchain, PROBLEM, 1)),
        ("Ray", ray_pool(_ADDRESS.value, toolchain, PROBLEM, 1)),
    ]
    rows = []
    for name, opened in pools:
        with opened as pool:
            rows.append(
                [name, *(f"{1000 * seconds / _COUNT.value:.2f}" for seconds in _measure(pool, Job(module, None)))]
            )
    print("\n".join(Table(("worker", "wall (ms)", "this process (CPU ms)", "machine (CPU ms)"), rows).lines()))
    print(f"{module.name}, {_COUNT.value} times; {platform.machine()}, load {os.getloadavg()[0]:.1f}")


def _measure(pool: WorkerPool, job: Job) -> tuple[float, float, float]:
    """Seconds of the wall clock, of this process's CPU, and of the CPU of its user's processes."""
    # The first ones start the worker and send the files.
    for _ in pool.rollouts([job] * 20):
        pass
    start = time.monotonic(), time.process_time(), _cpu_s()
    failures = [result.failure for _, result in pool.rollouts([job] * _COUNT.value) if result.failure]
    assert not failures, failures[0]
    end = time.monotonic(), time.process_time(), _cpu_s()
    return end[0] - start[0], end[1] - start[1], end[2] - start[2]


def _cpu_s() -> float:
    """CPU seconds of this process, of Ray's, and of their descendants, also of those that have ended."""
    total = 0.0
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any(_is_counted(member) for member in (process, *process.parents())):
                times = process.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
    return total


def _is_counted(process: psutil.Process) -> bool:
    words = " ".join(process.cmdline())
    return process.pid == os.getpid() or any(word in words for word in ("raylet", "ray::", "gcs_server"))


if __name__ == "__main__":
    entry()
