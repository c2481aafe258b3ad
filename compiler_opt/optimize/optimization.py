"""What all steps of an optimisation are given: the program, the compiler, the settings, and what is done already."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from compiler_opt.deploy.pass_options import NO_OPTIONS
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.optimize.program import OPTIMISATION, Compilers, Program, Variant
from compiler_opt.optimize.state import State
from compiler_opt.pass_options.sets import OptionSets
from compiler_opt.search.report import DECISIONS_FILE

SEARCH = "search"
"""The step, and folder, of the search for single decisions."""

DECISIONS = Path(SEARCH) / DECISIONS_FILE
"""The decision file, in the folder of an optimisation."""

FUNCTION_OPTIONS = "function_options.json"
"""The file of options of single functions, in the folder of an optimisation."""

FUNCTIONS_TABLE = "function_options.csv"
"""Beside it, a table of these functions: what options they have, and what that gains."""


@dataclasses.dataclass(frozen=True)
class OptimizeSettings:
    """How to optimise a program, for whatever objective.

    Attributes:
      output: folder for all results.
      search_minutes: how long to search for single decisions; 0 for no search.
      seed: of the search.
      test_command: runs the project's tests, in the build folder; None for the tests registered with CTest.
      verdict_minutes: after this time, no further build or run of tests begins to find out why tests fail.
      level: optimisation level of every file in every build, whatever the project asks for.
      pass_options: options of LLVM's passes at this level, which the compiler can take; policy and decisions are found
        and deployed with these; for speed, they are tried like others.
      jobs: compilers at a time.
      trust_corpus: compile with all options of the build, see `corpus.command_line`.
    """

    output: Path
    search_minutes: float = 0.0
    seed: int = 0
    test_command: tuple[str, ...] | None = None
    verdict_minutes: float = 60.0
    level: str = OPTIMISATION
    pass_options: OptionSets = NO_OPTIONS
    jobs: int = 1
    trust_corpus: bool = False

    def identity(self, program: Program, toolchain: Toolchain) -> dict[str, str]:
        """The properties that must be the same for an optimisation to continue, whatever the objective."""
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
class Optimization:
    """An optimisation in progress.

    Attributes:
      folder: the absolute path of `settings.output`.
      echo: prints a line.
      notes: sentences about how the program was built, to which steps add.
      num_headings: of the objective.
    """

    program: Program
    toolchain: Toolchain
    settings: OptimizeSettings
    folder: Path
    state: State
    echo: Callable[[str], Any]
    notes: list[str]
    num_headings: int

    def heading(self, number: int, text: str) -> None:
        self.echo(f"\n== {number}/{self.num_headings} {text}")

    def variant(
        self, name: str, *options: str, compilers: Compilers | None = None, linking: tuple[str, ...] = ()
    ) -> Variant:
        """A way to build the program: with these options, and by default with the compilers without a policy."""
        compilers = compilers or plain_compilers(self.toolchain)
        return Variant(self.folder / f"build-{name}", compilers, (self.settings.level, "-fno-lto", *options), linking)

    @property
    def default(self) -> Variant:
        """The build to compare with, by the compilers without a policy."""
        return self.variant("default")


def plain_compilers(toolchain: Toolchain) -> Compilers:
    """The compilers without a policy: `clang` for C, even if the user gave `clang++`."""
    sibling = toolchain.clang.with_name(toolchain.clang.name.replace("clang++", "clang"))
    clang = sibling if sibling.is_file() else toolchain.clang
    return Compilers(clang, toolchain.tool("clang++"), toolchain.tool("llvm-ar"))
