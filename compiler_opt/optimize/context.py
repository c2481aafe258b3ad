"""What the steps of an optimisation share: settings, folder, and progress, which is kept on disk to resume."""

import contextlib
import dataclasses
import json
import resource
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from compiler_opt.checked_values import read_json
from compiler_opt.deploy.pass_options import NO_OPTIONS
from compiler_opt.errors import ConfigError
from compiler_opt.files import write_json
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.optimize.changes import Reference
from compiler_opt.optimize.program import OPTIMISATION, Compilers, Program, Variant
from compiler_opt.pass_options.sets import OptionSets
from compiler_opt.problems.problem import Problem
from compiler_opt.rl.config import POLICY_DIR
from compiler_opt.rl.pipeline import TRAINING, PipelineSettings
from compiler_opt.search.report import DECISIONS_FILE

STATE_NAME = "state.json"
SEARCH = "search"
"""The step, and folder, of the search for single decisions."""
DECISIONS = Path(SEARCH) / DECISIONS_FILE
"""The decision file, in the folder of an optimisation."""
REPETITION, BISECTION = "tests again", "bisection"
"""The steps that find out why tests fail."""

FALLBACK = "fallback"
"""The step, and folder, of what replaces decisions that make a target larger."""

_MAX_STATE_BYTES = 1 << 24
_DEPLOYED = ("deployment", "build-optimized", "tests of build-optimized", REPETITION, BISECTION, "report")
"""The steps that depend on the policy and the decisions that are deployed."""


@dataclasses.dataclass
class Step:
    """A step.

    Attributes:
      done: whether it is complete.
      wall_s: seconds it took, over all sessions.
      cpu_s: CPU seconds, including those of compilers.
      result: JSON values for later steps.
    """

    done: bool = False
    wall_s: float = 0.0
    cpu_s: float = 0.0
    result: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class _File:
    format: Literal[1]
    identity: dict[str, str]
    steps: dict[str, Step]


class State:
    """The steps of one optimisation, on disk."""

    def __init__(self, folder: Path, identity: Mapping[str, str], *, start_over: bool = False):
        """Reads the state of the optimisation in a folder, or starts one.

        `identity` has the properties that must be the same to continue, by names that the user understands; if one
        differs, `start_over` starts again instead of raising.

        Raises:
          ConfigError: the folder has other contents, or an optimisation with another identity.
        """
        self._path = folder / STATE_NAME
        self._identity = dict(identity)
        self.steps: dict[str, Step] = {}
        remedy = f"remove {folder}, or give another --output"
        try:
            stored = read_json(self._path, _File, max_bytes=_MAX_STATE_BYTES, error=ConfigError, remedy=remedy)
        except FileNotFoundError:
            if folder.is_dir() and any(folder.iterdir()):
                raise ConfigError(f"{folder}: is not empty, and holds no optimisation; give another --output") from None
            return
        before = stored.identity
        other = [name for name in {**identity, **before} if before.get(name) != identity.get(name)]
        if other and start_over:
            return
        if other:
            raise ConfigError(
                f"{folder}: holds an optimisation with another {', another '.join(other)}; give another --output, or "
                f"remove {folder} to start over"
            )
        self.steps = stored.steps

    def is_done(self, name: str) -> bool:
        return name in self.steps and self.steps[name].done

    def forget(self, *names: str) -> None:
        """Makes steps to be done again."""
        for name in names:
            self.steps.pop(name, None)
        self.save()

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[Step]:
        """Times a step, which is done if the block ends without an exception; its cost is added up in any case."""
        step = self.steps.setdefault(name, Step())
        step.done = False
        start_s, start_cpu_s = time.monotonic(), _cpu_s()
        try:
            yield step
            step.done = True
        finally:
            step.wall_s += time.monotonic() - start_s
            step.cpu_s += _cpu_s() - start_cpu_s
            self.save()

    def save(self) -> None:
        """Writes `state.json`; done at the end of each step.

        Raises:
          OutputError: it cannot be written.
        """
        steps = {name: dataclasses.asdict(step) for name, step in self.steps.items()}
        write_json(self._path, {"format": 1, "identity": self._identity, "steps": steps})


@dataclasses.dataclass(frozen=True)
class OptimizeSettings:
    """How to optimise a program.

    Attributes:
      output: folder for all results.
      learning: how to train, and for how long (`training.max_minutes`).
      trains: whether to train at all; otherwise the policy to start from decides, or the default if there is none.
      changed_settings: the user's changes to `learning`, as text; an optimisation continues only with the same.
      reuse_policy: folder of an earlier policy or optimisation, whose policy is used without training; None to train.
      search_minutes: how long to search from the policy for single decisions; 0 for no search.
      test_command: runs the project's tests, in the build folder; None for the tests registered with CTest.
      verdict_minutes: after this time, no further build or run of tests begins to find out why tests fail.
      level: optimisation level of every file in every build, whatever the project asks for.
      pass_options: options of LLVM's passes at this level, which the compiler can take; policy and decisions are found
        and deployed with these.
      jobs: compilers at a time.
      trust_corpus: train with all options of the build, see `corpus.command_line`.
    """

    output: Path
    learning: PipelineSettings
    trains: bool = True
    changed_settings: str = ""
    reuse_policy: Path | None = None
    search_minutes: float = 0.0
    test_command: tuple[str, ...] | None = None
    verdict_minutes: float = 60.0
    level: str = OPTIMISATION
    pass_options: OptionSets = NO_OPTIONS
    jobs: int = 1
    trust_corpus: bool = False

    @property
    def options(self) -> tuple[str, ...]:
        """Added to every compilation of every variant."""
        return self.level, "-fno-lto"

    def identity(self, program: Program, toolchain: Toolchain) -> dict[str, str]:
        """The properties that must be the same for any optimisation to continue."""
        identity = {
            **program.identity(),
            "compiler": f"{toolchain.clang} {toolchain.version_text}",
            "test command": json.dumps(self.test_command),
        }
        options = self.pass_options
        if options:
            identity["set of options"] = json.dumps([options.levels, options.targets], sort_keys=True)
        return identity


@dataclasses.dataclass(frozen=True)
class ReusedPolicy:
    """An earlier policy, and the program that it was trained on, if known.

    Attributes:
      policy_dir: its folder.
      reference: the program.
      decisions: decision file of a search from the policy, if there was one.
    """

    policy_dir: Path
    reference: Reference | None
    decisions: Path | None = None

    @classmethod
    def find(cls, folder: Path) -> "ReusedPolicy":
        """The policy in the folder of an optimisation, trained or taken as it was, or in its own folder.

        Raises:
          PolicyError: the description of its program is damaged.
        """
        decisions, candidates = folder / DECISIONS, (folder / POLICY_DIR, folder / TRAINING / POLICY_DIR)
        return cls(
            next((path for path in candidates if path.is_dir()), folder).absolute(),
            Reference.load(folder),
            decisions.absolute() if decisions.is_file() else None,
        )


@dataclasses.dataclass(frozen=True)
class OptimizationContext:
    """An optimisation in progress.

    Attributes:
      folder: the absolute path of `settings.output`.
      reused: the earlier policy to use, instead of training one.
      echo: prints a line.
      num_steps: that the user sees.
    """

    program: Program
    toolchain: Toolchain
    problem: Problem
    settings: OptimizeSettings
    folder: Path
    reused: ReusedPolicy | None
    state: State
    echo: Callable[[str], Any]
    num_steps: int = 7

    def heading(self, number: int, text: str) -> None:
        self.echo(f"\n== {number}/{self.num_steps} {text}")

    def forget_results(self, *names: str) -> None:
        """Makes some steps, and all that depend on policy and decisions, to be done again."""
        self.state.forget(*names, FALLBACK, *_DEPLOYED)

    def forget_deployment(self) -> None:
        """Makes all that depends on what is deployed to be done again."""
        self.state.forget(*_DEPLOYED)

    def variant(self, name: str, compilers: Compilers, *options: str, linking: tuple[str, ...] = ()) -> Variant:
        return Variant(self.folder / f"build-{name}", compilers, (*self.settings.options, *options), linking)

    def once(self, name: str, work: Callable[[Step], dict[str, Any]], *, message: str = "") -> dict[str, Any]:
        """Does a step unless it is done, and otherwise prints the message; returns its result, JSON values.

        `work` does the step and returns its result; `Step.result` may hold results of an interrupted attempt.
        """
        if not self.state.is_done(name):
            with self.state.step(name) as step:
                step.result = work(step)
        elif message:
            self.echo(message)
        return self.state.steps[name].result


def _cpu_s() -> float:
    """CPU seconds of this process and of its descendants that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
