"""A benchmark's profile, as clang's own PGO makes it, and builds with it."""

import dataclasses
import shutil
from pathlib import Path

from compiler_opt.errors import BenchmarkError
from compiler_opt.evaluation.statistics import relative_change
from compiler_opt.llvm import profile as llvm_profile
from compiler_opt.llvm.advisors import mllvm
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.measure import callgrind
from compiler_opt.measure.attribution import Attribution, Metric
from compiler_opt.measure.benchmark import Benchmark, Reference
from compiler_opt.measure.callgrind import Profile
from compiler_opt.optimize import steps
from compiler_opt.optimize.optimization import Optimization
from compiler_opt.optimize.program import Variant
from compiler_opt.optimize.results import Measured
from compiler_opt.optimize.state import Record, checksum
from compiler_opt.report.formatting import change_text

_QUIET = ("-Wno-backend-plugin", "-Wno-profile-instr-out-of-date", "-Wno-profile-instr-unprofiled")
"""Code that the benchmark does not link has no profile."""

_HOT = 990_000
"""Millionths of all counts that hot code has, unless the code for size has more of the rest."""


def check(toolchain: Toolchain) -> None:
    """Raises ToolchainError if what records profiles, or callgrind, is missing."""
    toolchain.tool("llvm-profdata")
    callgrind.valgrind()
    llvm_profile.check_runtime(toolchain)


def measure_plain(run: Optimization, benchmark: Benchmark) -> tuple[Reference, Profile]:
    """Builds plainly: what the benchmark prints, and what it costs under callgrind."""
    steps.build(run, run.default)
    reference = benchmark.reference(run.default.folder)
    before = benchmark.measure(run.default.folder, reference)
    run.echo(f"{before.total.instructions:,} instructions, {before.total.cycles:,} estimated cycles")
    return reference, before


def attribution(run: Optimization, plain: Profile, metric: Metric) -> Attribution:
    """Of changes to the program's functions since the plain build."""
    # A file in a profile is part of a build, or of a library of the system.
    return Attribution(plain, metric, lambda file: file.startswith(f"{run.folder.resolve()}/"))


@dataclasses.dataclass(frozen=True)
class RecordedProfile:
    """A profile in the folder of an optimisation.

    Attributes:
      name: of its file, without a suffix, and of the step that records it.
      llvm_options: with which it is recorded and used, as cc1 passes them on to LLVM.
      first: a profile that it adds to: it counts again, after the inlining that this one leads to (context-sensitive).
      options: of clang, with which it is recorded if there is a first one; builds that use it should have them, too.
    """

    name: str
    llvm_options: tuple[str, ...] = ()
    first: "RecordedProfile | None" = None
    options: tuple[str, ...] = ()

    def path(self, run: Optimization) -> Path:
        return run.folder / f"{self.name}.profdata"

    def record(self, run: Optimization, benchmark: Benchmark, reference: Reference) -> None:
        """Builds the program so that it records a profile, and runs the benchmark.

        Raises:
          BenchmarkError: it has recorded none.
        """
        folder, path = run.folder / "raw-profiles", self.path(run)
        if self.first is None:
            linking = (f"-fprofile-generate={folder}", *_QUIET)
            options, inputs = (*linking, *mllvm(self.llvm_options)), list[object]()
        else:
            linking = (f"-fcs-profile-generate={folder}", *_QUIET)
            options = (*self.first.use(run), *linking, *mllvm(self.llvm_options), *self.options)
            inputs = [self.first.identity(run)]
        variant = run.variant(f"instrumented-{self.name}", *options, linking=linking)

        def work(record: Record) -> None:
            # The build may have run what it has built.
            shutil.rmtree(folder, ignore_errors=True)
            benchmark.wall_s(variant.folder, reference)
            raw = sorted(folder.glob("*.profraw"))
            if not raw:
                raise BenchmarkError(
                    f"{variant.folder}: the benchmark has recorded no profile in {folder}; it must run a program of "
                    "this build, and end by itself"
                )
            llvm_profile.merge(raw if self.first is None else [*raw, self.first.path(run)], path, run.toolchain)
            shutil.rmtree(folder)

        steps.build(run, variant, inputs)
        name, after = f"profile {self.name}", [variant.folder.name]
        run.state.do(name, type(None), work, inputs=[reference.identity], after=after, outputs=[path])

    def identity(self, run: Optimization) -> str | None:
        """Changes with the profile."""
        return checksum(self.path(run))

    def use(self, run: Optimization) -> tuple[str, ...]:
        """The options that compile with the profile."""
        return f"-fprofile-use={self.path(run)}", *_QUIET, *mllvm(self.llvm_options)


PROGRAM = RecordedProfile("program")
"""As clang makes it without further options."""

LATE = "program-late"
"""The name of the profile that counts again after inlining."""


def build(run: Optimization) -> Variant:
    """Builds by plain clang with `PROGRAM` alone."""
    variant = profiled(run)
    steps.build(run, variant, [PROGRAM.identity(run)])
    return variant


def profiled(run: Optimization) -> Variant:
    """The build by plain clang with `PROGRAM` alone."""
    return run.variant("profiled", *PROGRAM.use(run))


def largest_changes(changes_of: Attribution, profile: Profile, count: int = 50) -> dict[str, float]:
    """By symbol, what functions cost more than in the plain build, the largest differences first."""
    changes = changes_of.changes(profile)
    largest = sorted(changes, key=lambda symbol: (-abs(changes[symbol]), symbol))[:count]
    return {symbol: changes[symbol] for symbol in largest if changes[symbol]}


def cold_options(cold: float) -> tuple[str, ...]:
    """Options of clang, beside those that compile with a profile, that compile for size what seldom runs.

    It has this share of all counts of blocks; there are no options if that is 0.
    """
    if not cold:
        return ()
    cutoff = 1_000_000 - round(1_000_000 * cold)
    settings = ["-pgo-cold-func-opt=optsize", f"-profile-summary-cutoff-cold={cutoff}"]
    if cutoff < _HOT:  # Otherwise nearly all that is cold would be hot, too.
        settings.append(f"-profile-summary-cutoff-hot={cutoff}")
    return tuple(mllvm(settings))


def echo(run: Optimization, name: str, measured: Measured, plain: Measured) -> None:
    """Prints a build's changes to the plain one."""
    counts, before = measured.counts, plain.counts
    pairs = {
        "instructions": (before.instructions, counts.instructions),
        "estimated cycles": (before.cycles, counts.cycles),
        "text": (plain.text_bytes, measured.text_bytes),
    }
    changes = ", ".join(f"{change_text(relative_change(*pair))} {name}" for name, pair in pairs.items())
    run.echo(f"{name}: {changes}")
