"""What the steps of an optimisation share: its settings, its folder, and how far it has come."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.optimize.changes import Reference
from compiler_opt.optimize.program import OPTIMISATION, Compilers, Program, Variant
from compiler_opt.optimize.state import State, Step
from compiler_opt.problems.problem import Problem
from compiler_opt.rl.config import POLICY_DIR
from compiler_opt.rl.pipeline import TRAINING, PipelineSettings

OPTIONS = (OPTIMISATION, "-fno-lto")
"""Added to every compilation of every variant."""


@dataclasses.dataclass(frozen=True)
class OptimizeSettings:
    """How to optimise a program.

    Attributes:
      output: folder for all results.
      learning: how to train, and for how long (`training.max_minutes`).
      changed_settings: the user's changes to `learning`, as text; an optimisation continues only with the same.
      reuse_policy: folder of an earlier policy or optimisation, whose policy is used without training; None to train.
      test_command: runs the project's tests, in the build folder; None for the tests registered with CTest.
      jobs: compilers at a time.
      trust_corpus: train with all options of the build, see `corpus.command_line`.
    """

    output: Path
    learning: PipelineSettings
    changed_settings: str = ""
    reuse_policy: Path | None = None
    test_command: tuple[str, ...] | None = None
    jobs: int = 1
    trust_corpus: bool = False


@dataclasses.dataclass(frozen=True)
class ReusedPolicy:
    """An earlier policy, and the program that it was trained on, if known."""

    policy_dir: Path
    reference: Reference | None

    @classmethod
    def find(cls, folder: Path) -> "ReusedPolicy":
        """The policy in the folder of an optimisation, or in its own folder.

        Raises:
          PolicyError: the description of its program is damaged.
        """
        optimization = folder / TRAINING / POLICY_DIR
        return cls((optimization if optimization.is_dir() else folder).absolute(), Reference.load(folder))


@dataclasses.dataclass(frozen=True)
class OptimizationContext:
    """An optimisation in progress.

    Attributes:
      program: what is optimised.
      toolchain: the clang to build it with.
      problem: inlining.
      settings: how.
      folder: the absolute path of `settings.output`.
      reused: the earlier policy to use, instead of training one.
      state: which steps are done.
      echo: prints a line.
    """

    program: Program
    toolchain: Toolchain
    problem: Problem
    settings: OptimizeSettings
    folder: Path
    reused: ReusedPolicy | None
    state: State
    echo: Callable[[str], Any]

    def heading(self, number: int, text: str) -> None:
        self.echo(f"\n== {number}/6 {text}")

    def variant(self, name: str, compilers: Compilers, *options: str) -> Variant:
        return Variant(self.folder / f"build-{name}", compilers, (*OPTIONS, *options))

    def once(self, name: str, work: Callable[[Step], dict[str, Any]], *, message: str = "") -> dict[str, Any]:
        """Does a step unless it is done, and returns its result, JSON values.

        Args:
          name: of the step.
          work: does it and returns its result; the step may hold results of an interrupted attempt.
          message: printed if the step is done already.
        """
        if not self.state.is_done(name):
            with self.state.step(name) as step:
                step.result = work(step)
        elif message:
            self.echo(message)
        return self.state.steps[name].result
