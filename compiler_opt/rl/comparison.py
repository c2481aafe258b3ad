"""Runs several trainings or searches, each in a process of its own, to be compared (`evaluation.comparison`).

    check(runs)                                 # before anything is compiled
    for run in runs:
        result = execute(run, timeout_s)        # does nothing if the run is complete; otherwise it starts or resumes

Each run has its own folder, log and record, so none depends on the others or on the order in which they run:

    ALGORITHM/seed-SEED/         the folder of the training, with its history
    ALGORITHM/seed-SEED.log      what it printed
    ALGORITHM/seed-SEED.json     its settings, and what has become of it

Of a complete run, only its history and its record are read.
"""

import dataclasses
import hashlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from compiler_opt.checked_values import read_json
from compiler_opt.errors import ConfigError
from compiler_opt.evaluation.comparison import COMPLETE, FAILED, UNFINISHED, RunResult, State, read_run
from compiler_opt.files import one_line, printable, shown, size_and_sha256, write_json
from compiler_opt.llvm.processes import ProcessResult, run_logged

_ROOT = Path(__file__).parents[2]
_MAX_RECORD_BYTES = 1 << 22
_MAX_REASON = 300


@dataclasses.dataclass(frozen=True)
class PlannedRun:
    """A training or search to run.

    Attributes:
      algorithm: its name in the comparison.
      seed: its seed.
      folder: the comparison's folder.
      flags: of its program, all but those of folder and seed.
      settings: everything that its result depends on, by name; the same on any machine.
      program: the module that runs. It resumes what is in its folder, and leaves a history there.
    """

    algorithm: str
    seed: int
    folder: Path
    flags: Sequence[str]
    settings: Mapping[str, str]
    program: str = "compiler_opt.rl.train_locally"

    @property
    def root_dir(self) -> Path:
        return self.folder / self.algorithm / f"seed-{self.seed}"

    @property
    def log(self) -> Path:
        return self.root_dir.with_suffix(".log")

    @property
    def record(self) -> Path:
        return self.root_dir.with_suffix(".json")


@dataclasses.dataclass(frozen=True)
class _Record:
    """What the file of a run holds."""

    settings: dict[str, str]
    state: State = UNFINISHED
    reason: str = ""


def by_content(name: str) -> str:
    """A file or folder, for the settings of a run: what is in it, wherever it is. Other names stay as they are.

    Args:
      name: a path, `decisions:FILE`, or something else, such as the name of a baseline.

    Raises:
      ConfigError: a file cannot be read.
    """
    path = Path(name.removeprefix("decisions:"))
    digest = hashlib.sha256()
    try:
        if not name or not path.exists():
            return name
        for file in [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.is_file()):
            digest.update(f"{file.relative_to(path)} {size_and_sha256(file)}\n".encode("utf-8", "surrogateescape"))
    except OSError as error:
        raise ConfigError(f"{name}: cannot be read ({error.strerror}); check its files and their modes") from None
    return f"content {digest.hexdigest()[:16]}"


def check(runs: Sequence[PlannedRun]) -> None:
    """Raises ConfigError if a folder holds a run with other settings, or its record is damaged."""
    for run in runs:
        record = _read(run)
        if record is None:
            continue
        for name in {**record.settings, **run.settings}:
            was, is_now = (values.get(name, "not set") for values in (record.settings, run.settings))
            if was != is_now:
                raise ConfigError(
                    f"{run.root_dir}: holds a run whose {name} was {shown(was)}, and is {shown(is_now)} now; all runs "
                    "of a comparison need the same; use that, or another --output_dir"
                )


def result(run: PlannedRun) -> RunResult:
    """What has become of a run so far. Raises ConfigError if its record is damaged."""
    record = _read(run)
    if record is None:
        return read_run(run.algorithm, run.seed, run.root_dir)
    return read_run(run.algorithm, run.seed, run.root_dir, record.state, record.reason)


def execute(run: PlannedRun, timeout_s: float) -> RunResult:
    """Starts or resumes a run, unless it is complete; one that failed before is tried again.

    Args:
      run: the training or search.
      timeout_s: wall-clock limit of this session, in seconds; reaching it is a failure.

    Raises:
      ConfigError: its record is damaged.
      OutputError, OSError: a file cannot be written.
      KeyboardInterrupt: the process is ended, and resumes when it is executed again.
    """
    before = _read(run)
    if before is not None and before.state == COMPLETE:
        return result(run)
    settings = dict(run.settings)
    write_json(run.record, dataclasses.asdict(_Record(settings)))
    paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = run_logged(
        [
            sys.executable,
            "-m",
            run.program,
            f"--output_dir={run.root_dir}",
            f"--seed={run.seed}",
            *run.flags,
        ],
        run.log,
        timeout_s=timeout_s,
        environment={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    reason = _failure(done, timeout_s)
    record = _Record(settings, FAILED if reason else COMPLETE, reason)
    write_json(run.record, dataclasses.asdict(record))
    return result(run)


def _failure(done: ProcessResult, timeout_s: float) -> str:
    """Why a run failed, in one line; empty if it did not."""
    if done.timed_out:
        return f"not done after {timeout_s / 60:g} minutes; running the same command again resumes it"
    if not done.returncode:
        return ""
    lines = [line for line in done.stderr_tail.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("error: ")]
    last = (errors or lines or [""])[-1].removeprefix("error: ")
    how = f"exit status {done.returncode}"
    if done.returncode < 0:
        how = f"killed by {signal.Signals(-done.returncode).name}"
    return printable(one_line(f"{how}: {last}" if last else how))[:_MAX_REASON]


def _read(run: PlannedRun) -> _Record | None:
    remedy = f"remove it, and {run.root_dir}, to run it anew"
    try:
        return read_json(run.record, _Record, max_bytes=_MAX_RECORD_BYTES, error=ConfigError, remedy=remedy)
    except FileNotFoundError:
        return None
