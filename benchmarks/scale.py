"""How busy training keeps many workers: the real training loop, with workers that sleep instead of compiling.

First, some modules of a corpus are compiled by real workers, a few times each, and their rollouts kept (in
`--recording`). Then a training runs for each number of workers, with the real pool, advantages, learner, checkpoints
and history; only the workers are simulated (`benchmarks.simulated_workers`): they take as many seconds as the
compilations took CPU seconds, and answer their rollouts.

Busy is the share of the workers' time in which they compile, from the end of the first iteration to the end of the
last. The rest is idle for one of these causes:

    tail       nothing is left to start, and the iteration waits for its last compilations
    learner    nothing is left to start, and the learner learns
    between    nothing is left to start, and the loop does something else: batches, checkpoint, history
    overhead   there are jobs, and the coordinator has not handed them out, or not read the last answer

`learner` and `host` are CPU seconds per iteration: while `learn` runs, and all of the coordinator's process. On a
machine that does other work, too, they tell more than the shares.

`--real` trains with real workers instead, and simulates the same training with what these took: the two compiles/s
should agree.
"""

import contextlib
import dataclasses
import itertools
import os
import pickle
import platform
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags

from benchmarks.simulated_workers import Conditions, Event, Recorded, SimulatedWorkers
from compiler_opt import pretrained
from compiler_opt import problem as problems
from compiler_opt.collect.groups import Group
from compiler_opt.collect.rollout import Rollout
from compiler_opt.collect.schedule import Task
from compiler_opt.collect.worker import Worker, WorkerSettings, start_worker
from compiler_opt.collect.workers import Job, WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.errors import ConfigError
from compiler_opt.llvm.inliner_plugin import with_plugin_features
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.toolchain import probe
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.progress_bar import progress_bar
from compiler_opt.report.table import Table
from compiler_opt.rl import algorithms
from compiler_opt.rl.algorithm import Algorithm, AlgorithmConfigs
from compiler_opt.rl.training_run import TrainingRun
from compiler_opt.tensorflow_loading import load_tensorflow
from compiler_opt.tools import entry_point, gin_settings, shared_flags

_DATA_PATH = flags.DEFINE_string("data_path", "demo/corpus/train", "The corpus.")
_POLICY_PATH = flags.DEFINE_string("warmstart_policy_dir", "demo/warm_start/policy", "The policy to start from.")
_CLANG_PATH = shared_flags.clang_path()
_RECORDING = flags.DEFINE_string("recording", "scale-recording", "Folder of the rollouts that were measured.")
_SAMPLE = flags.DEFINE_integer("sample", 200, "Modules to measure.", 1)
_REPETITIONS = flags.DEFINE_integer("repetitions", 2, "Rollouts of each to measure.", 1)
_WORKERS = flags.DEFINE_list("workers", ["2", "8", "32", "96", "256", "1024"], "Numbers of workers.")
_SECONDS = flags.DEFINE_float("seconds", 20.0, "Seconds of training for each, after the first iteration.", 1)
_REAL = flags.DEFINE_bool("real", False, "Train with real workers, and compare the simulation with them.")
_DEATHS = flags.DEFINE_float("death_rate", 0.0, "Share of the jobs in which the worker dies.", 0, 1)
_STRAGGLERS = flags.DEFINE_float("straggler_rate", 0.0, "Share of the jobs that take 20 times as long.", 0, 1)
_DISK_MS = flags.DEFINE_float("disk_ms", 0.0, "Mean milliseconds that a slow disk adds to each job.", 0)
_SLOWER = flags.DEFINE_float(
    "slower",
    1.0,
    "Simulated workers take so many times as long, for a machine with other work.",
    0,
)
_GIN = gin_settings.GinFlags()

_CAUSES = ("tail", "learner", "between", "overhead")
_MAX_ITERATIONS, _MIN_ITERATIONS = 100_000, 3
_ROLLOUTS = "rollouts.pickle"


@entry_point.command
def entry() -> None:
    for path in (_DATA_PATH.value, _POLICY_PATH.value):
        if not path.startswith("pretrained:") and not Path(path).exists():
            raise ConfigError(f"{path}: not there; give --data_path and --warmstart_policy_dir")
    setup = _Setup.from_flags()
    folder = Path(_RECORDING.value)
    if not (folder / _ROLLOUTS).exists():
        _record(setup, folder)
    with (folder / _ROLLOUTS).open("rb") as file:
        recorded: dict[str, list[Recorded]] = pickle.load(file)  # noqa: S301 - what `_record` wrote
    seconds = [each.seconds for of_module in recorded.values() for each in of_module]
    print(
        f"{len(recorded)} modules, {len(seconds)} rollouts: {np.mean(seconds):.3f} s in the mean, median "
        f"{np.median(seconds):.3f} s, 99% under {np.quantile(seconds, 0.99):.2f} s, at most {max(seconds):.2f} s"
    )
    recorded = {
        name: [dataclasses.replace(each, seconds=each.seconds * _SLOWER.value) for each in of_module]
        for name, of_module in recorded.items()
    }
    setup = setup.restricted(recorded)
    with WorkerPool(setup.run.toolchain, setup.run.problem) as pool:
        # Trainings find it in the folder, and do not measure it again.
        _ = dataclasses.replace(setup.run, root_dir=folder, pool=pool).baseline()
    conditions = Conditions(death_rate=_DEATHS.value, straggler_rate=_STRAGGLERS.value, disk_s=_DISK_MS.value / 1000)
    if _REAL.value:
        _compare(setup, folder)
        return
    rows = []
    for count in map(int, _WORKERS.value):
        with SimulatedWorkers(recorded, conditions) as simulated:
            found = _train(setup, folder, count, simulated.start, simulated.events)
        rows.append(found.cells())
        print("  ".join(rows[-1]), flush=True)
    head = ("workers", "busy", *_CAUSES, "results/s", "start (s)", "iterations", "learner", "host")
    print("\n".join(Table(head, rows, num_text_columns=0).lines()))
    print(f"{conditions}")
    print(f"{platform.machine()}, {os.cpu_count()} threads, load {os.getloadavg()[0]:.1f}, {setup.about()}")


@dataclasses.dataclass(frozen=True)
class _Setup:
    """What is trained."""

    run: TrainingRun
    configs: AlgorithmConfigs

    @classmethod
    def from_flags(cls) -> "_Setup":
        settings = _GIN.read(gin_settings.of_training())
        weights = NetworkWeights.load(pretrained.folder(_POLICY_PATH.value))
        quantiles = dict(zip(weights.features, weights.quantiles, strict=True))
        problem = problems.load(settings["command"].compile_task or "inlining")
        toolchain = probe(_CLANG_PATH.value)
        if problem.name == "inlining":
            toolchain = with_plugin_features(toolchain, quantiles)
        config = gin_settings.override(
            settings["train_eval"],
            warmstart_policy_dir=_POLICY_PATH.value,
            max_minutes=0.0,
            num_iterations=_MAX_ITERATIONS,
        )
        corpus = Corpus.load(_DATA_PATH.value)
        corpus.check_compiler(toolchain.version, toolchain.clang)
        rng = np.random.default_rng(1)
        chosen = sorted(rng.permutation(len(corpus.modules))[: _SAMPLE.value])
        corpus = dataclasses.replace(corpus, modules=tuple(corpus.modules[index] for index in chosen))
        nothing: Any = None
        run = TrainingRun(Path(), corpus, toolchain, problem, nothing, quantiles, config, settings["network"])
        return cls(run, AlgorithmConfigs(settings.values()))

    def restricted(self, recorded: Mapping[str, Sequence[Recorded]]) -> "_Setup":
        """With only the modules that were recorded."""
        corpus = self.run.corpus
        modules = tuple(module for module in corpus.modules if module.name in recorded)
        run = dataclasses.replace(self.run, corpus=dataclasses.replace(corpus, modules=modules))
        return dataclasses.replace(self, run=run)

    def about(self) -> str:
        config = self.run.config
        return f"{config.algorithm}, {config.num_modules} modules x {config.rollouts_per_module}"


class _TimedPool(WorkerPool[Any]):
    """Notes when there was nothing to start, and keeps what real workers took.

    Attributes:
      dry: when the jobs of a call ran out, until the next job of that or another call.
      calls: from first to last result.
    """

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self.dry: list[tuple[float, float]] = []
        self.calls: list[tuple[float, float]] = []
        self._dry_since: float | None = None

    def rollouts(self, jobs: Iterable[Job | None]) -> Iterator[tuple[Job, Rollout[Any]]]:
        start_s = time.monotonic()
        try:
            yield from super().rollouts(self._watched(jobs))
        finally:
            self.calls.append((start_s, time.monotonic()))

    def _watched(self, jobs: Iterable[Job | None]) -> Iterator[Job | None]:
        for job in jobs:
            if job is None:
                self._dry_since = self._dry_since or time.monotonic()
            elif self._dry_since is not None:
                self.dry.append((self._dry_since, time.monotonic()))
                self._dry_since = None
            yield job
        self._dry_since = self._dry_since or time.monotonic()


class _Stopwatch:
    """Starts real workers, and notes how long each job takes them.

    Attributes:
      recorded: what it took, by module.
    """

    def __init__(self) -> None:
        self._events: list[Event] = []
        self.recorded: defaultdict[str, list[Recorded]] = defaultdict(list)
        self._numbers = itertools.count()

    def found(self) -> list[Event]:
        """All jobs so far, as `SimulatedWorkers.events`."""
        return self._events

    def start(self, settings: WorkerSettings, scratch: Path) -> Worker:
        """For `WorkerPool(start_worker=...)`."""
        worker, number = start_worker(settings, scratch), next(self._numbers)
        receive = worker.receive

        def timed() -> tuple[Task, Rollout[Any]] | None:
            begun_s = worker.begun_s
            received = receive()
            if received is not None:
                now_s, rollout = time.monotonic(), received[1]
                self._events.append(Event(number, begun_s, now_s, now_s))
                self.recorded[rollout.module].append(Recorded(now_s - begun_s, pickle.dumps(rollout)))
            return received

        worker.receive = timed  # type: ignore[method-assign]
        return worker


@dataclasses.dataclass(frozen=True)
class _Found:
    """What a training showed; shares of the workers' time."""

    num_workers: int
    busy: float
    idle: Mapping[str, float]
    results_per_s: float
    start_s: float
    iterations: int
    learner_cpu_s: float
    host_cpu_s: float

    def cells(self) -> list[str]:
        shares = [f"{value:.1%}" for value in (self.busy, *(self.idle[cause] for cause in _CAUSES))]
        return [
            str(self.num_workers),
            *shares,
            f"{self.results_per_s:.0f}",
            f"{self.start_s:.1f}",
            str(self.iterations),
            f"{self.learner_cpu_s:.1f}",
            f"{self.host_cpu_s:.1f}",
        ]


class _EnoughError(Exception):
    """The training was watched for long enough."""


@dataclasses.dataclass(frozen=True)
class _Learned:
    """One call of `learn`, in seconds of `time.monotonic()`, and the host's CPU seconds until its two moments."""

    begun_s: float
    ended_s: float
    begun_cpu_s: float
    ended_cpu_s: float


def _watched(algorithm: Algorithm, seconds: float, learned: list[_Learned]) -> Algorithm:
    """The algorithm; notes when it learned, and raises _EnoughError after so many seconds beyond the first time."""
    learn = algorithm.learn

    def watched(groups: Sequence[Group], rng: np.random.Generator, progress: float) -> dict[str, float]:
        begun_s, begun_cpu_s = time.monotonic(), time.process_time()
        if len(learned) > _MIN_ITERATIONS and begun_s > learned[0].ended_s + seconds:
            raise _EnoughError
        metrics = learn(groups, rng, progress)
        learned.append(_Learned(begun_s, time.monotonic(), begun_cpu_s, time.process_time()))
        return metrics

    algorithm.learn = watched  # type: ignore[method-assign]
    return algorithm


def _train(
    setup: _Setup,
    folder: Path,
    num_workers: int,
    start_worker: Callable[[WorkerSettings, Path], Worker],
    events: Callable[[], Sequence[Event]],
) -> _Found:
    load_tensorflow()
    from compiler_opt.rl import training_loop

    learned: list[_Learned] = []
    run = setup.run
    with scratch_directory() as scratch:
        shutil.copyfile(folder / "baseline.json", scratch / "baseline.json")
        with _TimedPool(run.toolchain, run.problem, num_workers, start_worker=start_worker) as pool:
            assert isinstance(pool, _TimedPool)
            run = dataclasses.replace(run, root_dir=scratch, pool=pool)
            algorithm = algorithms.load(run.config.algorithm).build(run, setup.configs)
            called_s = time.monotonic()
            with contextlib.suppress(_EnoughError):
                training_loop.train(run, _watched(algorithm, _SECONDS.value, learned))
            found = events()
    first, last, count = learned[0], learned[-1], len(learned) - 1
    start_s, end_s = first.ended_s, last.ended_s
    learns = [(each.begun_s, each.ended_s) for each in learned]
    busy, idle = _shares(found, num_workers, start_s, end_s, pool, learns)
    return _Found(
        num_workers,
        busy,
        idle,
        results_per_s=sum(start_s < event.sent_s <= end_s for event in found) / (end_s - start_s),
        start_s=min(event.begun_s for event in found) - called_s,
        iterations=count,
        learner_cpu_s=sum(each.ended_cpu_s - each.begun_cpu_s for each in learned[1:]) / count,
        host_cpu_s=(last.ended_cpu_s - first.ended_cpu_s) / count,
    )


def _shares(
    events: Sequence[Event],
    num_workers: int,
    start_s: float,
    end_s: float,
    pool: _TimedPool,
    learns: Sequence[tuple[float, float]],
) -> tuple[float, dict[str, float]]:
    """The share of busy workers, and of idle ones by cause, between two moments."""
    # On a grid: what happens, and how many workers are busy.
    edges = np.linspace(start_s, end_s, 20_001)
    middles = (edges[1:] + edges[:-1]) / 2
    begun, done = (np.sort([getattr(event, name) for event in events]) for name in ("begun_s", "done_s"))
    busy = np.searchsorted(begun, middles) - np.searchsorted(done, middles)

    def within(intervals: Sequence[tuple[float, float]]) -> np.ndarray:
        starts, ends = (np.sort([interval[index] for interval in intervals]) for index in (0, 1))
        return np.searchsorted(starts, middles) > np.searchsorted(ends, middles)

    dry, learning, called = within(pool.dry), within(learns), within(pool.calls)
    masks = {
        "learner": dry & learning,
        "tail": dry & ~learning & called,
        "between": dry & ~learning & ~called,
        "overhead": ~dry,
    }
    idle = np.maximum(0, num_workers - busy) / num_workers
    return float(np.mean(busy) / num_workers), {cause: float(np.mean(idle * mask)) for cause, mask in masks.items()}


def _record(setup: _Setup, folder: Path) -> None:
    """Measures rollouts with real workers."""
    run = setup.run
    folder.mkdir(parents=True, exist_ok=True)
    policy = run.problem.decision.policy(NetworkWeights.load(pretrained.folder(_POLICY_PATH.value)), temperature=1.0)
    settings = run.rollout_settings(record_call_sites=True)
    modules = run.corpus.modules
    jobs = [Job(module, policy, seed, settings) for module in modules for seed in range(_REPETITIONS.value)]
    recorded: defaultdict[str, list[Recorded]] = defaultdict(list)
    with WorkerPool(run.toolchain, run.problem) as pool:
        for _, rollout in progress_bar(pool.rollouts(jobs), "recording", len(jobs), unit="compile"):
            if rollout.failure is None:
                seconds = rollout.cpu_s + rollout.host_cpu_s
                recorded[rollout.module].append(Recorded(seconds, pickle.dumps(rollout)))
    (folder / _ROLLOUTS).write_bytes(pickle.dumps(dict(recorded)))


def _compare(setup: _Setup, folder: Path) -> None:
    """Trains with real workers, and with simulated ones that take as long; prints the results of both."""
    for count in map(int, _WORKERS.value):
        stopwatch = _Stopwatch()
        real = _train(setup, folder, count, stopwatch.start, stopwatch.found)
        with SimulatedWorkers(stopwatch.recorded, Conditions()) as simulated:
            predicted = _train(setup, folder, count, simulated.start, simulated.events)
        print(f"{count} workers: real {' '.join(real.cells())}; simulated {' '.join(predicted.cells())}")
        print(f"  {predicted.results_per_s / real.results_per_s - 1:+.1%} results/s")


if __name__ == "__main__":
    entry()
