"""Optimises one program for an objective, in seven steps, each of which continues after an interruption.

    1 build with bitcode, extract a corpus         5 deploy compilers that make these decisions
    2, 3 what the objective needs                  6 build without and with them, run the tests
    4 search for single decisions                  7 measure, report

What differs between objectives is a `ProgramObjective`.
"""

import abc
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from compiler_opt.corpus.description import Corpus
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
    def starts_over(self) -> bool:
        """Whether an optimisation starts again if it is finished, or has another identity."""
        return False

    @abc.abstractmethod
    def check(self, toolchain: Toolchain, settings: OptimizeSettings) -> None:
        """Raises CompilerOptError if something is missing, before anything is built."""

    @abc.abstractmethod
    def identity(self, settings: OptimizeSettings) -> Mapping[str, str]:
        """The properties that must be the same for an optimisation to continue, beside those of the settings."""

    @abc.abstractmethod
    def find(self, run: Optimization, corpus: Corpus) -> _Found:
        """Steps 2 to 4: finds what the compilers are to decide."""

    @abc.abstractmethod
    def build(self, run: Optimization, corpus: Corpus, found: _Found) -> Variant | None:
        """Steps 5 and 6: makes the compilers, and builds the default and the optimised variant; None without any."""

    @abc.abstractmethod
    def result(
        self, run: Optimization, corpus: Corpus, found: _Found, optimized: Variant | None, tests: Tests
    ) -> _Result:
        """Step 7: compares the builds."""


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
    """
    toolchain.require(INLINING.problem)
    for tool in ("clang++", "ld.lld", "llvm-ar"):
        toolchain.tool(tool)
    objective.check(toolchain, settings)
    check_folder_writable(settings.output)
    # Otherwise a plugin that cannot be built would show only on deployment, an hour later.
    inliner_plugin(toolchain)
    identity = {**settings.identity(program, toolchain), **objective.identity(settings)}
    with exclusive_directory(settings.output, "--output"):
        folder = settings.output.absolute()
        state = State(folder, identity, echo, start_over=objective.starts_over)
        run = Optimization(program, toolchain, settings, folder, state, echo, [*program.notes(settings.level)])
        for note in run.notes:
            echo(note)
        run.heading(1, f"Bitcode: {program.name}, built with {toolchain.version_text}")
        corpus = steps.make_corpus(run)
        found = objective.find(run, corpus)
        optimized = objective.build(run, corpus, found)
        tests = steps.run_tests(run, optimized) if optimized is not None else Tests()
        run.heading(7, f"Report: {objective.quantity}, before and after")
        result = objective.result(run, corpus, found, optimized, tests)
        state.save(finished=True)
        return result
