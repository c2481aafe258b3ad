"""A small program whose benchmark runs no more instructions: what seldom runs in its profile is compiled for size.

    1 build plainly, measure the benchmark         4 build with the smallest, time it, run the tests
    2 record a profile, build with it              5 report
    3 build with more and more code for size

A profile makes hot code faster, which pays for what is compiled for size. All builds are by plain clang, and nothing is
deployed: whoever compiles with the profile and the options that are found has the program.
"""

import dataclasses
import json
import math
import shutil
from collections.abc import Mapping

from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.measure.attribution import METRICS, Attribution
from compiler_opt.measure.benchmark import Benchmark, Reference
from compiler_opt.measure.callgrind import Counts, Profile
from compiler_opt.measure.wall_time import WallTimes, wall_times
from compiler_opt.optimize import profiles, steps
from compiler_opt.optimize.optimization import Optimization, OptimizeSettings
from compiler_opt.optimize.pipeline import ProgramObjective
from compiler_opt.optimize.profiles import PROGRAM, RecordedProfile, cold_options
from compiler_opt.optimize.program import Variant
from compiler_opt.optimize.results import ColdStep, Measured, SizeAtSpeedResult, Tests
from compiler_opt.optimize.state import Record
from compiler_opt.optimize.target_sizes import text_bytes
from compiler_opt.report.formatting import change_text

METRIC = "instructions"

COLD = (0.000001, 0.001, 0.01, 0.05, 0.1, 0.2, 0.4)
"""Shares of all counts of blocks, see `ColdStep.cold`; the first is LLVM's own idea of what is cold."""

_ANYWHERE = "-static-func-full-module-prefix=false"
"""Without it, a static function's profile is found only at the path that its file had when the profile was recorded."""

PROFILES = (
    RecordedProfile("small", (_ANYWHERE, "-preinline-threshold=10")),
    RecordedProfile("small-late", (_ANYWHERE, "-disable-preinline")),
)
"""Before it counts, clang inlines more than suits size; the second is for programs that the first makes slower."""

TEXT_OF_INSTRUCTIONS = 0.2
"""Percent of text that one percent of instructions counts as, between builds that are as fast as the plain one."""

_AS_MANY = 1.001
"""Where code and data lie changes what libraries execute by some hundredths of a percent."""

_HALVINGS = 2
"""Builds between the last share that is as fast and the first that is not."""


@dataclasses.dataclass(frozen=True)
class Found:
    """The builds to choose from.

    Attributes:
      reference: what the benchmark prints.
      before: its profile in the plain build.
      attribution: of changes to functions of the plain build.
      default: the plain build.
      profiled: the build with clang's own profile.
      checking: what the other benchmark prints, and costs in the plain build; None if there is none.
      profile: that of `steps`.
      steps: builds with it; the first is with the profile alone.
    """

    reference: Reference
    before: Profile
    attribution: Attribution
    default: Measured
    profiled: Measured
    checking: tuple[Reference, Counts] | None
    profile: RecordedProfile = PROFILES[0]
    steps: tuple[ColdStep, ...] = ()

    def choices(self) -> list[ColdStep]:
        """The builds that are smaller than the plain one, and whose benchmark costs no more; the best first."""

        def cost(step: ColdStep) -> float:
            measured, plain = step.measured, self.default
            instructions = measured.counts.instructions / plain.counts.instructions
            return measured.text_bytes / plain.text_bytes + TEXT_OF_INSTRUCTIONS * instructions

        smaller = (step for step in self.steps if step.measured.text_bytes < self.default.text_bytes)
        return sorted(filter(self.is_fast, smaller), key=cost)

    def next_share(self) -> float | None:
        """What to build next: more for size while that is as fast, then less than what was not; None at the end."""
        if not self.steps:
            return 0.0
        shares = [step.cold for step in self.steps]
        slow = next((number for number, step in enumerate(self.steps) if not self.is_fast(step)), None)
        if slow is None:
            return next((cold for cold in COLD if cold > shares[-1]), None)
        if slow < 2 or len([cold for cold in shares if cold and cold not in COLD]) >= _HALVINGS:
            return None
        return float(f"{math.sqrt(shares[slow - 1] * shares[slow]):.2g}")

    def inputs(self, run: Optimization, cold: float) -> list[object]:
        """What the build with this share depends on, and what is measured in it."""
        prints = [self.reference.identity, self.checking and self.checking[0].identity]
        return [cold_options(cold), self.profile.identity(run), *prints]

    def is_fast(self, step: ColdStep) -> bool:
        """Whether the benchmarks take as many instructions and estimated cycles as plainly, or fewer."""
        pairs = [(step.measured.counts, self.default.counts)]
        if self.checking is not None and step.checked is not None:
            pairs.append((step.checked, self.checking[1]))
        return all(
            after <= _AS_MANY * before
            for now, plain in pairs
            for before, after in ((plain.instructions, now.instructions), (plain.cycles, now.cycles))
        )


@dataclasses.dataclass(frozen=True)
class SmallAtSpeed(ProgramObjective[Found, SizeAtSpeedResult]):
    """The smallest text with which a benchmark of the user's is as fast as with the plain build.

    Attributes:
      benchmark: commands that run in the build folder.
      check_benchmark: others, which must be as fast although the profile has not recorded them; None for none.
      wall_rounds: how often the benchmark is timed in each build.
    """

    benchmark: Benchmark
    check_benchmark: Benchmark | None = None
    wall_rounds: int = 20

    quantity = "linked text at the same speed"
    num_headings = 5

    def check(self, toolchain: Toolchain, settings: OptimizeSettings) -> None:
        profiles.check(toolchain)

    def identity(self, settings: OptimizeSettings) -> Mapping[str, str]:
        check = () if self.check_benchmark is None else self.check_benchmark.commands
        commands = json.dumps([self.benchmark.commands, check])
        return {"objective": f"size at the speed of {commands} at {settings.level}"}

    def find(self, run: Optimization) -> Found:
        run.heading(1, f"Benchmark: plain clang {run.settings.level}")
        reference, before = profiles.measure_plain(run, self.benchmark)
        checking = None
        if self.check_benchmark is not None:
            folder = run.default.folder
            other = self.check_benchmark.reference(folder)
            checking = other, self.check_benchmark.measure(folder, other).total
        attribution = profiles.attribution(run, before, METRICS[METRIC])
        run.heading(2, "Profile: of the benchmark")
        PROGRAM.record(run, self.benchmark, reference)
        profiled = profiles.build(run)
        targets = steps.sizes(run, profiled)
        after = self.benchmark.measure(profiled.folder, reference)
        default, with_profile = (
            Measured(profile.total, attribution.own_cost(profile), text)
            for profile, text in zip((before, after), text_bytes(targets), strict=True)
        )
        profiles.echo(run, "clang's own use of a profile", with_profile, default)
        run.heading(3, "Size: of what seldom runs")
        for profile in PROFILES:
            found = Found(reference, before, attribution, default, with_profile, checking, profile)
            profile.record(run, self.benchmark, reference)
            while (cold := found.next_share()) is not None:
                step = self._measure(run, found, cold)
                profiles.echo(run, step_name(cold), step.measured, default)
                ordered = sorted((*found.steps, step), key=lambda each: each.cold)
                found = dataclasses.replace(found, steps=tuple(ordered))
            if found.choices():
                break
        shutil.rmtree(_tried(run, profile, 0.0).folder, ignore_errors=True)
        return found

    def _measure(self, run: Optimization, found: Found, cold: float) -> ColdStep:
        def work(record: Record) -> ColdStep:
            variant = _tried(run, found.profile, cold)
            steps.build_now(run, variant, record)
            profile = self.benchmark.measure(variant.folder, found.reference)
            text = text_bytes(steps.sizes(run, variant))[1]
            checked = None
            if self.check_benchmark is not None and found.checking is not None:
                checked = self.check_benchmark.measure(variant.folder, found.checking[0]).total
            return ColdStep(cold, Measured(profile.total, found.attribution.own_cost(profile), text), checked)

        name, after = f"{found.profile.name}, {step_name(cold)}", [run.default.folder.name]
        return run.state.do(name, ColdStep, work, inputs=found.inputs(run, cold), after=after)

    def build(self, run: Optimization, found: Found) -> Variant | None:
        run.heading(4, "Build: the smallest that is as fast")
        for step in found.choices():
            variant = _optimized(run, found.profile, step.cold)
            known = self._timed(run, found, step.cold, find_only=True)
            if not known or known[-1].ratio.low <= 1:
                steps.build(run, variant, [found.profile.identity(run)])
            times = (known or self._timed(run, found, step.cold))[-1]
            if times.ratio.low <= 1:
                return variant
            slower = f"{change_text(times.ratio.value - 1)} ({change_text(times.ratio.low - 1)} at least)"
            run.echo(f"{step_name(step.cold)}: takes {slower} of the plain build's wall time; the next one is tried")
        run.echo("none: no build is smaller than the plain one, and as fast")
        return None

    def result(self, run: Optimization, found: Found, optimized: Variant | None, tests: Tests) -> SizeAtSpeedResult:
        variant, kept, chosen, profile = run.default, None, found.default, found.before
        if optimized is not None:
            variant = optimized
            by_options = {_optimized(run, found.profile, each.cold).options: each for each in found.steps}
            step = by_options[optimized.options]
            kept, chosen = step.cold, step.measured
            profile = self.benchmark.measure(optimized.folder, found.reference)
        return SizeAtSpeedResult(
            program=run.program.name,
            targets=steps.sizes(run, variant),
            tests=tests,
            costs=run.state.costs(),
            notes=tuple(run.notes),
            provenance=steps.compiler_facts(run),
            compilers=(str(variant.compilers.c), str(variant.compilers.cxx)),
            options=(run.settings.level, *variant.options[2:]),
            metric=METRIC,
            default=found.default,
            profiled=found.profiled,
            optimized=chosen,
            functions=profiles.largest_changes(found.attribution, profile),
            wall=() if kept is None else self._timed(run, found, kept, find_only=True),
            steps=found.steps,
            kept=kept,
            default_checked=None if found.checking is None else found.checking[1],
        )

    def _timed(self, run: Optimization, found: Found, cold: float, *, find_only: bool = False) -> tuple[WallTimes, ...]:
        """Times of plain clang, clang's own profile, and this build; () if it was not timed, and only to be found."""
        plain, profiled = run.default, profiles.profiled(run)
        folders = [each.folder for each in (plain, profiled, _optimized(run, found.profile, cold))]

        def work(record: Record) -> tuple[WallTimes, ...]:
            return wall_times(self.benchmark, folders, found.reference, rounds=self.wall_rounds)

        # Each build has a step of its own, so that what was slow is not tried again.
        name, inputs = (
            f"wall time of {found.profile.name}, {step_name(cold)}",
            [self.wall_rounds, *found.inputs(run, cold)],
        )
        after = [plain.folder.name, profiled.folder.name]
        known = run.state.find(name, tuple[WallTimes, ...], inputs=inputs, after=after)
        if known is not None or find_only:
            return known or ()
        return run.state.do(name, tuple[WallTimes, ...], work, inputs=inputs, after=after)


def _tried(run: Optimization, profile: RecordedProfile, cold: float) -> Variant:
    """A build that is measured, in a folder that all of these use one after the other."""
    return run.variant("tried", *profile.use(run), *cold_options(cold))


def _optimized(run: Optimization, profile: RecordedProfile, cold: float) -> Variant:
    return run.variant("optimized", *profile.use(run), *cold_options(cold))


def step_name(cold: float) -> str:
    """The name of the step with this share."""
    return f"the last {100 * cold:g}% for size" if cold else "the profile alone"
