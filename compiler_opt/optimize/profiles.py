"""A benchmark's profile, as clang's own PGO makes it, and builds with it."""

import shutil

from compiler_opt.errors import BenchmarkError
from compiler_opt.llvm import profile as llvm_profile
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.measure import callgrind
from compiler_opt.measure.attribution import Attribution, Metric
from compiler_opt.measure.benchmark import Benchmark, Reference
from compiler_opt.measure.callgrind import Profile
from compiler_opt.optimize import steps
from compiler_opt.optimize.optimization import Optimization
from compiler_opt.optimize.program import Variant
from compiler_opt.optimize.state import Record, checksum

PROFILE = "program.profdata"
"""The profile, in the folder of an optimisation."""

_QUIET = ("-Wno-backend-plugin", "-Wno-profile-instr-out-of-date", "-Wno-profile-instr-unprofiled")
"""Code that the benchmark does not link has no profile."""


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


def record(run: Optimization, benchmark: Benchmark, reference: Reference) -> None:
    """Builds the program so that it records a profile, and runs the benchmark.

    Raises:
      BenchmarkError: it has recorded none.
    """
    folder = run.folder / "raw-profiles"
    options = (f"-fprofile-generate={folder}", *_QUIET)
    variant = run.variant("instrumented", *options, linking=options)

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
        llvm_profile.merge(raw, run.folder / PROFILE, run.toolchain)
        shutil.rmtree(folder)

    steps.build(run, variant)
    run.state.do("profile", type(None), work, after=[variant.folder.name], outputs=[run.folder / PROFILE])


def identity(run: Optimization) -> str | None:
    """Changes with the profile."""
    return checksum(run.folder / PROFILE)


def use(run: Optimization) -> tuple[str, ...]:
    """The options that compile with the profile."""
    return f"-fprofile-use={run.folder / PROFILE}", *_QUIET


def build(run: Optimization) -> Variant:
    """Builds by plain clang with the profile alone."""
    variant = profiled(run)
    steps.build(run, variant, [identity(run)])
    return variant


def profiled(run: Optimization) -> Variant:
    """The build by plain clang with the profile alone."""
    return run.variant("profiled", *use(run))


def largest_changes(changes_of: Attribution, profile: Profile, count: int = 50) -> dict[str, float]:
    """By symbol, what functions cost more than in the plain build, the largest differences first."""
    changes = changes_of.changes(profile)
    largest = sorted(changes, key=lambda symbol: (-abs(changes[symbol]), symbol))[:count]
    return {symbol: changes[symbol] for symbol in largest if changes[symbol]}
