"""A fast benchmark: options for the program and its functions, and decisions where it is hot, on top of a profile.

    1 build with bitcode, extract a corpus         5 search for decisions where it is hot, build and measure
    2 build plainly, measure the benchmark         6 build with what is kept, run the tests
    3 record a profile, build with it              7 measure, report
    4 build with options, and another profile, measure each build

Each step is kept only if the program prints the same, and is better with it than without.
"""

import dataclasses
import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from compiler_opt.corpus.description import Corpus
from compiler_opt.cost_models import block_costs
from compiler_opt.cost_models.function_costs import CompiledProfile
from compiler_opt.errors import BenchmarkError, ToolchainError
from compiler_opt.llvm.advisors import mllvm
from compiler_opt.llvm.options_plugin import options_plugin
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.measure.attribution import METRICS
from compiler_opt.measure.benchmark import Benchmark
from compiler_opt.measure.callgrind import Profile
from compiler_opt.measure.wall_time import WallTimes, wall_times
from compiler_opt.optimize import profiles, steps
from compiler_opt.optimize.optimization import DECISIONS, Optimization, OptimizeSettings
from compiler_opt.optimize.pipeline import ProgramObjective
from compiler_opt.optimize.profiles import PROGRAM
from compiler_opt.optimize.program import Variant
from compiler_opt.optimize.results import Measured, SpeedResult, Tests
from compiler_opt.optimize.speed_options import PROGRAM_STEPS, Best, BuildCost, ChosenSets, Trials
from compiler_opt.optimize.steps import Searched
from compiler_opt.optimize.target_sizes import text_bytes
from compiler_opt.report.formatting import count_text
from compiler_opt.search.profiled import CostWeights, profiled_pool, search_profiled
from compiler_opt.search.progress_bar import weighted_bar
from compiler_opt.search.search import SearchSettings

DEFAULT_BYTES_PER_PERCENT = 0.05
"""Of the program's text."""

_BUDGET = 100_000
"""Compiles a module; the time ends a search before."""


@dataclasses.dataclass(frozen=True)
class Found:
    """What there is before the program is built with what is kept.

    Attributes:
      corpus: the program's modules.
      trials: the builds that were tried.
      profiled: the build by plain clang with the profile, and its benchmark's profile.
      best: what is kept.
      chosen: the sets of single functions.
      searched: what the search came to.
    """

    corpus: Corpus
    trials: Trials
    profiled: tuple[Measured, Profile]
    best: Best
    chosen: ChosenSets
    searched: Searched


@dataclasses.dataclass(frozen=True)
class FastBenchmark(ProgramObjective[Found, SpeedResult]):
    """What a benchmark of the user's runs, on top of its profile.

    Attributes:
      benchmark: commands that run in the build folder.
      metric: a name of `METRICS`.
      bytes_per_percent: text that one percent of the metric counts as; None for `DEFAULT_BYTES_PER_PERCENT`.
      wall_rounds: how often the benchmark is timed in each build.
      program_steps: names, and options of clang, that are tried for the whole program.
    """

    benchmark: Benchmark
    metric: str = "instructions"
    bytes_per_percent: float | None = None
    wall_rounds: int = 20
    program_steps: tuple[tuple[str, tuple[str, ...]], ...] = PROGRAM_STEPS

    num_headings = 7

    @property
    def quantity(self) -> str:
        return self.metric

    def levels(self, settings: OptimizeSettings) -> str:
        tried = [word for _, options in self.program_steps for word in options if word.startswith("-O")]
        others = "".join(f", or at {level} if that pays" for level in tried if level != settings.level)
        return f"{settings.level}{others}"

    def check(self, toolchain: Toolchain, settings: OptimizeSettings) -> None:
        toolchain.tool("llvm-readobj")
        profiles.check(toolchain)
        block_costs.load(block_costs.INSTRUCTIONS, toolchain)  # Needs a package that may be missing.

    def identity(self, settings: OptimizeSettings) -> Mapping[str, str]:
        commands = json.dumps(self.benchmark.commands)
        return {"objective": f"{self.metric} of {commands} at {settings.level}, with a profile"}

    def find(self, run: Optimization) -> Found:
        corpus, benchmark, total = steps.make_corpus(run), self.benchmark, METRICS[self.metric]
        run.heading(2, f"Benchmark: plain clang {run.settings.level}")
        reference, before = profiles.measure_plain(run, benchmark)
        attribution = profiles.attribution(run, before, total)
        run.heading(3, "Profile: of the benchmark")
        PROGRAM.record(run, benchmark, reference)
        profiled = profiles.build(run)
        after = benchmark.measure(profiled.folder, reference)
        text = text_bytes(steps.sizes(run, profiled))
        default = Measured(before.total, attribution.own_cost(before), text[0])
        given = self.bytes_per_percent
        cost = BuildCost(DEFAULT_BYTES_PER_PERCENT * text[0] if given is None else given, total(before.total))
        trials = Trials(run, benchmark, self.metric, reference, attribution, default, cost)
        start = trials.of(after, text[1])
        profiles.echo(run, "plain clang with the profile", start.measured, default)
        weight = f"{cost.bytes_per_percent:,.0f} bytes for a percent of {self.metric}"
        run.heading(4, f"Options: {weight}")
        best = self._with_program_options(run, trials, Best(start))
        best = trials.with_late_profile(best)
        best, chosen = self._with_function_options(run, trials, best, corpus)
        run.heading(5, f"Search: {run.settings.search_minutes:g} minutes, {weight}")
        searched = Searched(0, 0, 0)
        if run.settings.search_minutes:
            searched = self._search(run, corpus, best, cost.bytes_per_percent, default.own / cost.total)
        if searched.decisions:
            best = trials.tried_on(best, count_text(searched.decisions, "inlining decision"), decisions=True)
        shutil.rmtree(run.folder / "build-tried", ignore_errors=True)
        return Found(corpus, trials, (start.measured, after), best, chosen, searched)

    def _with_program_options(self, run: Optimization, trials: Trials, best: Best) -> Best:
        target = run.toolchain.target.partition("-")[0]
        if given := run.settings.pass_options.options(run.settings.level.removeprefix("-"), target):
            best = trials.tried_on(best, " ".join(given), options=tuple(mllvm(given)))
        for name, options in self.program_steps:
            if options != (run.settings.level,):
                best = trials.tried_on(best, name, options=(*best.options, *options))
        return best

    def _with_function_options(
        self, run: Optimization, trials: Trials, best: Best, corpus: Corpus
    ) -> tuple[Best, ChosenSets]:
        try:
            options_plugin(run.toolchain)
        except ToolchainError as error:
            run.notes.append(f"All functions have the same options of LLVM's passes: {error}")
            return best, ChosenSets(())
        chosen = trials.choose_sets(best, corpus)
        if number := chosen.num_functions:
            best = trials.tried_on(best, f"options of {count_text(number, 'function')}", functions=True)
        return best, chosen

    def build(self, run: Optimization, found: Found) -> Variant | None:
        best = found.best
        kept = ", ".join(step.name for step in best.steps if step.kept)
        if not best.is_deployed:  # An earlier run, with another --bytes_per_percent, may have kept more.
            shutil.rmtree(steps.deployed(run), ignore_errors=True)
        run.heading(6, f"Build: with the profile and {kept}" if kept else "Build: none, the profile alone is kept")
        if not kept:
            return None
        options, inputs = best.use(run), [best.profile.identity(run)]
        if best.is_deployed:
            compilers = steps.deploy_compilers(run, *best.deployment(run))
            return steps.build_optimized(run, compilers, *options, inputs=inputs)
        variant = run.variant("optimized", *options)
        steps.build(run, variant, inputs)
        return variant

    def result(self, run: Optimization, found: Found, optimized: Variant | None, tests: Tests) -> SpeedResult:
        trials, best = found.trials, found.best
        profiled, after = found.profiled
        variant, measured = profiles.profiled(run), profiled
        if optimized is not None:
            variant = optimized
            try:
                after = self.benchmark.measure(optimized.folder, trials.reference)
            except BenchmarkError as error:
                shutil.rmtree(steps.deployed(run), ignore_errors=True)
                raise BenchmarkError(
                    f"the optimised build is wrong; compilers made for it are removed: {error}"
                ) from None
        targets = steps.sizes(run, variant)
        if optimized is not None:
            measured = trials.of(after, text_bytes(targets)[1]).measured
        wall: tuple[WallTimes, ...] = ()
        if optimized is not None:
            folders = [each.folder for each in (run.default, profiles.profiled(run), optimized)]
            wall = wall_times(self.benchmark, folders, trials.reference, rounds=self.wall_rounds)
        facts = {**steps.provenance(run, found.corpus)}
        facts["Options of LLVM's passes"] = " ".join(best.llvm_options()) or "none"
        return SpeedResult(
            program=run.program.name,
            targets=targets,
            tests=tests,
            costs=run.state.costs(),
            notes=_notes(run, best),
            provenance=facts,
            compilers=(str(variant.compilers.c), str(variant.compilers.cxx)),
            options=(run.settings.level, best.profile.use(run)[0], *best.options),
            metric=self.metric,
            bytes_per_percent=trials.cost.bytes_per_percent,
            default=trials.default,
            profiled=profiled,
            optimized=measured,
            functions=profiles.largest_changes(trials.attribution, after),
            wall=wall,
            steps=best.steps,
            function_options=found.chosen.sets if best.functions else (),
            num_decisions=found.searched.decisions,
            compiles=found.searched.compiles,
            hot_functions=found.searched.hot_functions,
        )

    def _search(self, run: Optimization, corpus: Corpus, best: Best, weight: float, own_share: float) -> Searched:
        """Searches from the decisions of the compiler with options of the whole program."""
        minutes, toolchain = run.settings.search_minutes, run.toolchain
        what = f"{weight:g} bytes for a percent of {self.metric}"
        modules = [
            dataclasses.replace(module, pass_options=best.llvm_options()).with_flags(best.level(run))
            for module in corpus.modules
        ]

        def find(settings: SearchSettings, folder: Path) -> Searched:
            profile = CompiledProfile(PROGRAM.path(run), toolchain)
            weights = CostWeights(profile, block_costs.load(block_costs.INSTRUCTIONS, toolchain), weight, own_share)
            with (
                weighted_bar(run.program.name, self.metric, weight, settings.max_minutes) as show,
                profiled_pool(toolchain, weights, run.settings.jobs) as pool,
            ):
                found = search_profiled(
                    modules,
                    pool,
                    toolchain,
                    settings,
                    weights,
                    name=run.program.name,
                    folder=folder,
                    identity={"weight": what, "profile": profile.identity},
                    on_progress=show,
                )
            found.decisions.save(run.folder / DECISIONS)
            compiles = sum(found.outcome.compiles.values())
            run.echo(
                f"{len(found.decisions)} decisions; {found.hot_functions} functions are hot; {compiles} compilations"
            )
            return Searched(minutes, len(found.decisions), compiles, found.hot_functions)

        return steps.search(run, [what, best.options, PROGRAM.identity(run)], _BUDGET, find)


def _notes(run: Optimization, best: Best) -> tuple[str, ...]:
    """The notes, of which the program's say at which level the builds are compiled in the end."""
    plain, optimized = run.settings.level, best.level(run)
    own = run.program.notes(plain if optimized == plain else f"{plain}, and at {optimized} in the optimised build")
    return (*own, *run.notes[len(own) :])
