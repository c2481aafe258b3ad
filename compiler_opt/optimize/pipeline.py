"""Optimises one program for an objective, step by step, each of which continues after an interruption.

What the program is to be built with is found, then it is built so, its tests run, and a report compares the builds.
What differs between objectives is a `ProgramObjective`.
"""

import abc
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from compiler_opt.errors import told_if_interrupted
from compiler_opt.files import check_folder_writable, exclusive_directory
from compiler_opt.llvm.advisors import INLINING
from compiler_opt.llvm.inliner_plugin import inliner_plugin
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.optimize import steps
from compiler_opt.optimize.optimization import Optimization, OptimizeSettings
from compiler_opt.optimize.program import Program, Variant
from compiler_opt.optimize.results import Result, Tests
from compiler_opt.optimize.state import State

_Found = TypeVar("_Found")
_Result = TypeVar("_Result", bound=Result)


class ProgramObjective(abc.ABC, Generic[_Found, _Result]):
    """What a program is optimised for, with all that differs between objectives."""

    @property
    @abc.abstractmethod
    def quantity(self) -> str:
        """What is to be made less."""

    @property
    @abc.abstractmethod
    def num_headings(self) -> int:
        """Under how many headings it shows its progress; the last one is the report."""

    @property
    def starts_over(self) -> bool:
        """Whether an optimisation starts again if it is finished, or has another identity."""
        return False

    def levels(self, settings: OptimizeSettings) -> str:
        """The optimisation level of all files, or those that are tried, such as `-O2, or at -O3 if that pays`."""
        return settings.level

    @abc.abstractmethod
    def check(self, toolchain: Toolchain, settings: OptimizeSettings) -> None:
        """Raises CompilerOptError if something is missing, before anything is built."""

    @abc.abstractmethod
    def identity(self, settings: OptimizeSettings) -> Mapping[str, str]:
        """The properties that must be the same for an optimisation to continue, beside those of the settings."""

    @abc.abstractmethod
    def find(self, run: Optimization) -> _Found:
        """Finds what the program is to be built with."""

    @abc.abstractmethod
    def build(self, run: Optimization, found: _Found) -> Variant | None:
        """Builds the default and the optimised variant, with compilers that it may make; None without any."""

    @abc.abstractmethod
    def result(self, run: Optimization, found: _Found, optimized: Variant | None, tests: Tests) -> _Result:
        """Compares the builds."""


def optimize(
    program: Program,
    toolchain: Toolchain,
    settings: OptimizeSettings,
    objective: ProgramObjective[_Found, _Result],
    echo: Callable[[str], Any] = print,
) -> _Result:
    """Optimises one program, built with the clang of `toolchain`; `echo` prints lines about the progress.

    Raises:
      CompilerOptError: an error that the user can fix; the same call then continues.
      KeyboardInterrupt: it is interrupted; `str()` says how far it was, and how to resume.
    """
    toolchain.require(INLINING.problem)
    for tool in ("clang++", "ld.lld", "llvm-ar"):
        toolchain.tool(tool)
    objective.check(toolchain, settings)
    check_folder_writable(settings.output)
    # Otherwise a plugin that cannot be built would show only on deployment, an hour later.
    inliner_plugin(toolchain)
    identity = {**settings.identity(program, toolchain), **objective.identity(settings)}
    with exclusive_directory(settings.output, "--output_dir"):
        folder = settings.output.absolute()
        state = State(folder, identity, echo, start_over=objective.starts_over)
        notes = [*program.notes(objective.levels(settings))]
        run = Optimization(program, toolchain, settings, folder, state, echo, notes, objective.num_headings)
        for note in run.notes:
            echo(note)
        with told_if_interrupted(state.how_far):
            found = objective.find(run)
            optimized = objective.build(run, found)
            tests = steps.run_tests(run, optimized) if optimized is not None else Tests()
            run.heading(run.num_headings, f"Report: {objective.quantity}, before and after")
            result = objective.result(run, found, optimized, tests)
        state.save(finished=True)
        return result
