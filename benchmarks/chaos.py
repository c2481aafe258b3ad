"""Trains while faults are injected, and compares the run with an undisturbed one of the same settings.

Compilers crash (SIGSEGV), are killed (SIGKILL) and hang (SIGSTOP, until the time limit); workers and fork servers are
killed and stopped; a worker may take no more memory for a while; the disk, a small tmpfs, fills for a while (as root
only); the training itself is killed, and started again. Faults are chosen at random, at intervals that do not depend on
what the training does. Nothing is replaced by a double: the signals go to the real processes.

Prints how often each fault was injected and what the logs say of it; then iterations, usable modules and resources of
both runs. The exit status is 1 unless the disturbed run ends by itself with as many iterations and the same usable
modules, leaves no process and no temporary file, and no session of it ended in a traceback. (A worker's interpreter
that gets no memory when it starts prints one, too.)
"""

import collections
import contextlib
import dataclasses
import json
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
from absl import flags

from benchmarks.faults import Chaos
from compiler_opt.decisions.inlining import FEATURES
from compiler_opt.errors import CompilerOptError
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.policies.vocabulary import save_vocabulary
from compiler_opt.report.table import Table
from compiler_opt.tools import entry_point, shared_flags

_DATA_PATH = flags.DEFINE_string("data_path", None, "The corpus.", required=True)
_MODULE_FILTER = flags.DEFINE_string("module_filter", "", "Only modules whose names match this regular expression.")
_CLANG_PATH = flags.DEFINE_string("clang_path", "clang-22", "The compiler.")
_ITERATIONS = flags.DEFINE_integer("iterations", 100, "Iterations of each run.", 1)
_MODULES = flags.DEFINE_integer("num_modules", 16, "Modules in an iteration, with 4 rollouts each.", 1)
_COMPILER_FAULTS = flags.DEFINE_float("compiler_faults", 0.01, "Share of compilations for each of their three faults.")
_PERIOD_S = flags.DEFINE_float("period_s", 15.0, "Seconds between faults of workers, servers, memory and disk.", 0.1)
_HOST_KILLS = flags.DEFINE_integer("host_kills", 10, "How often the training itself is killed.", 0)
_HOST_KILL_S = flags.DEFINE_float("host_kill_s", 60.0, "Seconds from its start until the training is killed.", 1)
_TIMEOUT_S = flags.DEFINE_float("compile_timeout_s", 10.0, "Time limit of a compilation, and so of a hanging one.", 1)
_MINUTES = flags.DEFINE_float("minutes", 120.0, "Limit of each run.", 0.1)
_DISK_MB = flags.DEFINE_integer("disk_mb", 1024, "Size of the tmpfs.", 400)
_NUM_WORKERS = shared_flags.num_workers()
_SEED = shared_flags.seed("the choice of faults, and of the training", 1)

_ROOT = Path(__file__).parents[1]
_TICK_S = 0.01
_SAMPLE_S = 1.0


@dataclasses.dataclass
class Resources:
    """The most that was in use at a time: of the host, descriptors and resident bytes; of all, processes and files."""

    descriptors: int = 0
    host_bytes: int = 0
    processes: int = 0
    scratch_bytes: int = 0

    def add(self, other: "Resources") -> None:
        for field in dataclasses.fields(self):
            setattr(self, field.name, max(getattr(self, field.name), getattr(other, field.name)))


@dataclasses.dataclass
class Outcome:
    """How a run ended, over all its sessions."""

    minutes: float = 0.0
    sessions: int = 0
    iterations: int = 0
    compiles: int = 0
    failed_rollouts: int = 0
    usable_modules: frozenset[str] = frozenset()
    problems: list[str] = dataclasses.field(default_factory=list)
    first: Resources = dataclasses.field(default_factory=Resources)
    last: Resources = dataclasses.field(default_factory=Resources)
    logged: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)


class Training:
    """A training as a user starts it, with all temporary files in one folder."""

    def __init__(self, folder: Path, vocabulary: Path):
        self.root_dir, self.temporary, self.log = folder / "run", folder / "tmp", folder / "log"
        self.temporary.mkdir(parents=True)
        settings = {
            "num_iterations": _ITERATIONS.value,
            "num_modules": _MODULES.value,
            "rollouts_per_module": 4,
            "compile_timeout_s": _TIMEOUT_S.value,
            "seed": _SEED.value,
        }
        self._command = [
            sys.executable,
            "compiler_opt/rl/train_locally.py",
            f"--output_dir={self.root_dir}",
            f"--data_path={_DATA_PATH.value}",
            f"--clang_path={_CLANG_PATH.value}",
            f"--vocab_path={vocabulary}",
            f"--num_workers={entry_point.num_workers(_NUM_WORKERS.value)}",
            *([f"--module_filter={_MODULE_FILTER.value}"] if _MODULE_FILTER.value else []),
            "--gin_files=gin_configs/inlining/ppo_nn_agent.gin",
            *(f"--gin_bindings=train_eval.{name}={value!r}" for name, value in settings.items()),
        ]

    @contextlib.contextmanager
    def started(self) -> Iterator[psutil.Process]:
        """Starts or resumes it; it does not outlive the block."""
        environment = {**os.environ, "TMPDIR": str(self.temporary), "PYTHONPATH": str(_ROOT)}
        with (
            self.log.open("ab") as log,
            subprocess.Popen(
                self._command, cwd=_ROOT, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            ) as popen,
        ):
            try:
                yield psutil.Process(popen.pid)
            finally:
                popen.kill()

    def history(self) -> list[dict[str, float]]:
        with contextlib.suppress(FileNotFoundError):
            return [json.loads(line) for line in (self.root_dir / "history.jsonl").read_text().splitlines()]
        return []

    def usable_modules(self) -> frozenset[str]:
        with contextlib.suppress(FileNotFoundError, ValueError, KeyError):
            return frozenset(json.loads((self.root_dir / "baseline.json").read_text())["baseline"]["scores"])
        return frozenset()


def sample(host: psutil.Process, temporary: Path) -> Resources:
    """What is in use now."""
    found = Resources()
    with contextlib.suppress(psutil.Error):
        found.descriptors = host.num_fds()
        found.host_bytes = host.memory_info().rss
        found.processes = 1 + len(host.children(recursive=True))
    # Unlike `Path.rglob`, goes on where a folder has just been removed.
    for folder, _, names in os.walk(temporary):
        for name in names:
            with contextlib.suppress(OSError):
                found.scratch_bytes += (Path(folder) / name).lstat().st_size
    return found


def run(training: Training, chaos: Chaos | None, rng: np.random.Generator) -> Outcome:
    """Runs a training to its end, in as many sessions as it takes."""
    outcome, begun_s = Outcome(), time.monotonic()
    deadline_s = begun_s + 60 * _MINUTES.value
    kills = _HOST_KILLS.value if chaos else 0
    status: int | None = None
    samples: list[Resources] = []
    while status != 0 and time.monotonic() < deadline_s and outcome.sessions <= 2 * _HOST_KILLS.value + 20:
        outcome.sessions += 1
        end_s = time.monotonic() + _HOST_KILL_S.value * rng.uniform(0.5, 1.5) if kills else deadline_s
        with training.started() as host:
            family: set[psutil.Process] = set()
            sampled_s = 0.0
            while (status := _status(host)) is None and time.monotonic() < end_s:
                if chaos is not None:
                    chaos.tick(host)
                if time.monotonic() > sampled_s + _SAMPLE_S:
                    sampled_s = time.monotonic()
                    samples.append(sample(host, training.temporary))
                    with contextlib.suppress(psutil.Error):
                        family.update(host.children(recursive=True))
                time.sleep(_TICK_S)
            if status is None and chaos is not None and kills:
                host.kill()
                kills -= 1
                chaos.injected["training killed"] += 1
        _, alive = psutil.wait_procs(family, timeout=30)
        outcome.problems += [f"left behind: process {process.pid}" for process in alive]
        if status not in (None, 0) and status != entry_point.EXIT_USER_ERROR:
            outcome.problems.append(f"a session ended with status {status}")
    if chaos is not None:
        chaos.finish()
    if status != 0:
        outcome.problems.append("not finished")
    outcome.minutes = (time.monotonic() - begun_s) / 60
    _summarise(outcome, training, samples)
    return outcome


def _status(host: psutil.Process) -> int | None:
    """The exit status, or None while it runs."""
    with contextlib.suppress(psutil.TimeoutExpired):
        return int(host.wait(0) or 0)
    return None


_LOGGED = {
    "compiled once more, alone": r"it is compiled once more, alone",
    "modules set aside": r"the module is set aside",
    "the disk was full": r"the disk is full|out of memory or disk",
    "sessions that ended in one line": r"^error: ",
    "tracebacks": r"^Traceback ",
}


def _summarise(outcome: Outcome, training: Training, samples: list[Resources]) -> None:
    history, log = training.history(), training.log.read_text(errors="replace")
    outcome.iterations = len({entry["iteration"] for entry in history})
    outcome.compiles = int(max((entry["compiles"] for entry in history), default=0))
    outcome.failed_rollouts = int(sum(entry["failures"] for entry in history))
    outcome.usable_modules = training.usable_modules()
    for name, pattern in _LOGGED.items():
        outcome.logged[name] = len(re.findall(pattern, log, re.MULTILINE))
    left = [str(path.relative_to(training.temporary)) for path in training.temporary.rglob("*")]
    outcome.problems += [f"left behind: {len(left)} temporary files, such as {left[0]}"] if left else []
    for part, into in ((samples[: len(samples) // 2], outcome.first), (samples[len(samples) // 2 :], outcome.last)):
        for each in part:
            into.add(each)


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """Mounts a tmpfs on a new folder if permitted; yields whether it is one."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={_DISK_MB.value}m", "chaos", str(folder)]
    is_mounted = os.geteuid() == 0 and subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode == 0
    try:
        yield is_mounted
    finally:
        if is_mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


@entry_point.command
def entry() -> int:
    # A core of each crashed compiler would fill the disk in earnest.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    rng = np.random.default_rng(_SEED.value)
    with scratch_directory() as scratch:
        vocabulary = scratch / "vocabulary"
        save_vocabulary(vocabulary, {name: np.unique(np.round(np.geomspace(1, 1000, 30))) for name in FEATURES})
        plain = run(Training(scratch / "undisturbed", vocabulary), None, rng)
        if plain.problems:
            raise CompilerOptError(f"the undisturbed run failed: {'; '.join(plain.problems)}")
        with small_disk(scratch / "disk") as has_disk:
            training = Training(scratch / "disk" / "disturbed", vocabulary)
            chaos = Chaos(
                training.temporary,
                rng,
                period_s=_PERIOD_S.value,
                compiler_faults=_COMPILER_FAULTS.value,
                has_disk=has_disk,
            )
            disturbed = run(training, chaos, rng)
            print(training.log.read_text(errors="replace")[-3000:] if disturbed.problems else "", end="")
    return report(plain, disturbed, chaos)


def report(plain: Outcome, disturbed: Outcome, chaos: Chaos) -> int:
    """Prints the tables; returns the exit status."""
    injected = [(name, str(count)) for name, count in sorted(chaos.injected.items())]
    logged = [(name, str(disturbed.logged[name])) for name in _LOGGED]
    entry_point.echo("\n".join(Table(("injected", "times"), injected).lines()) + "\n")
    entry_point.echo("\n".join(Table(("the log says", "times"), logged).lines()) + "\n")
    runs = (plain, disturbed)
    rows = [
        ("iterations", *(str(outcome.iterations) for outcome in runs)),
        ("usable modules", *(str(len(outcome.usable_modules)) for outcome in runs)),
        ("compilations", *(str(outcome.compiles) for outcome in runs)),
        ("failed rollouts", *(str(outcome.failed_rollouts) for outcome in runs)),
        ("sessions", *(str(outcome.sessions) for outcome in runs)),
        ("minutes", *(f"{outcome.minutes:.1f}" for outcome in runs)),
    ]
    for name, unit in (("descriptors", 1), ("processes", 1), ("host_bytes", 1 << 20), ("scratch_bytes", 1 << 20)):
        halves = [[getattr(half, name) / unit for half in (outcome.first, outcome.last)] for outcome in runs]
        label = name.replace("_bytes", ", MiB")
        rows.append((f"{label}: most in the first, second half", *(f"{a:.0f}, {b:.0f}" for a, b in halves)))
    entry_point.echo("\n".join(Table(("", "undisturbed", "disturbed"), rows).lines()))
    if disturbed.iterations != plain.iterations:
        disturbed.problems.append(f"{disturbed.iterations} iterations instead of {plain.iterations}")
    if lost := sorted(plain.usable_modules - disturbed.usable_modules):
        disturbed.problems.append(f"{len(lost)} modules were lost, such as {lost[0]}")
    for problem in disturbed.problems:
        entry_point.echo(f"problem: {problem}")
    return int(bool(disturbed.problems))


if __name__ == "__main__":
    entry()
