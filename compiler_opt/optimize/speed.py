"""A fast benchmark: decisions where it is hot, on top of a profile.

    1 build with bitcode, extract a corpus         5 deploy compilers that make these decisions
    2 build plainly, measure the benchmark         6 build with them and the profile, run the tests
    3 record a profile, build with it              7 measure, report
    4 search for decisions where it is hot

The decisions are kept only if the program that the deployed compilers have built prints the same, and is better than
what clang builds with the profile alone.
"""

import dataclasses
import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from compiler_opt.corpus.description import Corpus
from compiler_opt.cost_models import block_costs
from compiler_opt.cost_models.function_costs import CompiledProfile
from compiler_opt.deploy.policies import PolicyRequest
from compiler_opt.errors import BenchmarkError
from compiler_opt.evaluation.statistics import relative_change
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.measure.attribution import METRICS, Attribution
from compiler_opt.measure.benchmark import Benchmark, Reference
from compiler_opt.measure.callgrind import Profile
from compiler_opt.measure.wall_time import WallTimes, wall_times
from compiler_opt.optimize import profiles, steps
from compiler_opt.optimize.optimization import DECISIONS, Optimization, OptimizeSettings
from compiler_opt.optimize.pipeline import ProgramObjective
from compiler_opt.optimize.profiles import PROGRAM
from compiler_opt.optimize.program import Variant
from compiler_opt.optimize.results import Measured, SpeedResult, TargetSize, Tests, text_bytes
from compiler_opt.optimize.steps import Searched
from compiler_opt.progress_bar import progress_bar
from compiler_opt.search.profiled import CostWeights, profiled_pool, search_profiled
from compiler_opt.search.progress_bar import weighted_bar
from compiler_opt.search.search import SearchSettings

DEFAULT_BYTES_PER_PERCENT = 0.05
"""Of the program's text."""

_BUDGET = 100_000
"""Compiles a module; the time ends a search before."""


@dataclasses.dataclass(frozen=True)
class Found:
    """What there is before decisions are deployed.

    Attributes:
      corpus: the program's modules.
      reference: what the benchmark prints.
      before: its profile in the plain build.
      after: its profile in the build by plain clang with the profile.
      attribution: of changes to functions of the plain build.
      targets: text of both builds.
      bytes_per_percent: bytes that one percent of the metric counts as.
      searched: what the search came to.
    """

    corpus: Corpus
    reference: Reference
    before: Profile
    after: Profile
    attribution: Attribution
    targets: tuple[TargetSize, ...]
    bytes_per_percent: float
    searched: Searched

    def measured(self, profile: Profile, text_bytes: int) -> Measured:
        """A build."""
        return Measured(profile.total, self.attribution.own_cost(profile), text_bytes)


@dataclasses.dataclass(frozen=True)
class FastBenchmark(ProgramObjective[Found, SpeedResult]):
    """What a benchmark of the user's runs, on top of its profile.

    Attributes:
      benchmark: commands that run in the build folder.
      metric: a name of `METRICS`.
      bytes_per_percent: text that one percent of the metric counts as; None for `DEFAULT_BYTES_PER_PERCENT`.
      wall_rounds: how often the benchmark is timed in both builds.
    """

    benchmark: Benchmark
    metric: str = "instructions"
    bytes_per_percent: float | None = None
    wall_rounds: int = 20

    num_headings = 7

    @property
    def quantity(self) -> str:
        return self.metric

    def check(self, toolchain: Toolchain, settings: OptimizeSettings) -> None:
        toolchain.tool("llvm-readobj")
        profiles.check(toolchain)
        block_costs.load(block_costs.INSTRUCTIONS, toolchain)  # Needs a package that may be missing.

    def identity(self, settings: OptimizeSettings) -> Mapping[str, str]:
        commands = json.dumps(self.benchmark.commands)
        return {"objective": f"{self.metric} of {commands} at {settings.level}, with a profile"}

    def find(self, run: Optimization) -> Found:
        corpus, benchmark = steps.make_corpus(run), self.benchmark
        run.heading(2, f"Benchmark: plain clang {run.settings.level}")
        reference, before = profiles.measure_plain(run, benchmark)
        attribution = profiles.attribution(run, before, METRICS[self.metric])
        run.heading(3, "Profile: of the benchmark")
        PROGRAM.record(run, benchmark, reference)
        profiled = profiles.build(run)
        targets = steps.sizes(run, profiled)
        after = benchmark.measure(profiled.folder, reference)
        text = text_bytes(targets)
        run.echo(
            f"plain clang with the profile: {relative_change(*map(self._total, (before, after))):+.2%} {self.metric}, "
            f"{relative_change(*text):+.2%} text"
        )
        given = self.bytes_per_percent
        weight = DEFAULT_BYTES_PER_PERCENT * text[0] if given is None else given
        searched = self._search(run, corpus, weight, attribution.own_cost(before) / self._total(before))
        return Found(corpus, reference, before, after, attribution, targets, weight, searched)

    def build(self, run: Optimization, found: Found) -> Variant | None:
        settings = run.settings
        run.heading(5, f"Deployment: mlgo-clang and mlgo-clang++, for {settings.level}")
        if not found.searched.decisions:
            run.echo("none: the search has found nothing that is better")
            return None
        request = PolicyRequest(levels=(settings.level,))
        compilers = steps.deploy_compilers(run, request, run.folder / DECISIONS, settings.pass_options)
        run.heading(6, "Build: by the deployed compilers, with the profile")
        return steps.build_optimized(run, compilers, *PROGRAM.use(run), inputs=[PROGRAM.identity(run)])

    def result(self, run: Optimization, found: Found, optimized: Variant | None, tests: Tests) -> SpeedResult:
        plain_bytes, profiled_bytes = text_bytes(found.targets)
        profiled = found.measured(found.after, profiled_bytes)
        targets, after, tried, kept = found.targets, found.after, None, False
        if optimized is not None:
            try:
                after = self.benchmark.measure(optimized.folder, found.reference)
            except BenchmarkError as error:
                shutil.rmtree(steps.deployed(run))
                raise BenchmarkError(f"the optimised build is wrong, and its compilers are removed: {error}") from None
            targets = steps.sizes(run, optimized)
            tried = found.measured(after, text_bytes(targets)[1])
            percent = 100 * (tried.own - profiled.own) / max(1, self._total(found.before))
            kept = percent * found.bytes_per_percent + tried.text_bytes - profiled.text_bytes < 0
        if not kept:
            targets, after = found.targets, found.after
            shutil.rmtree(steps.deployed(run), ignore_errors=True)
        variant = optimized if kept and optimized is not None else profiles.profiled(run)
        builds = [run.default, profiles.profiled(run), *([optimized] if optimized else [])]
        return SpeedResult(
            program=run.program.name,
            targets=targets,
            tests=tests,
            costs=run.state.costs(),
            notes=tuple(run.notes),
            provenance=steps.provenance(run, found.corpus),
            compilers=(str(variant.compilers.c), str(variant.compilers.cxx)),
            options=(run.settings.level, PROGRAM.use(run)[0]),
            kept=kept,
            metric=self.metric,
            bytes_per_percent=found.bytes_per_percent,
            default=found.measured(found.before, plain_bytes),
            profiled=profiled,
            tried=tried,
            optimized=tried if kept and tried is not None else profiled,
            functions=profiles.largest_changes(found.attribution, after),
            wall=self._timed(builds, found.reference) if kept else (),
            num_decisions=found.searched.decisions,
            compiles=found.searched.compiles,
            hot_functions=found.searched.hot_functions,
        )

    def _search(self, run: Optimization, corpus: Corpus, weight: float, own_share: float) -> Searched:
        minutes, toolchain = run.settings.search_minutes, run.toolchain
        what = f"{weight:g} bytes for a percent of {self.metric}"
        run.heading(4, f"Search: {minutes:g} minutes, {weight:,.0f} bytes for a percent of {self.metric}")

        def find(settings: SearchSettings, folder: Path) -> Searched:
            profile = CompiledProfile(PROGRAM.path(run), toolchain)
            weights = CostWeights(profile, block_costs.load(block_costs.INSTRUCTIONS, toolchain), weight, own_share)
            with (
                weighted_bar(run.program.name, self.metric, weight) as show,
                profiled_pool(toolchain, weights, run.settings.jobs) as pool,
            ):
                found = search_profiled(
                    corpus.modules,
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

        return steps.search(run, [what, PROGRAM.identity(run)], _BUDGET, find)

    def _timed(self, variants: Iterable[Variant], reference: Reference) -> tuple[WallTimes, ...]:
        rounds, folders = self.wall_rounds, [variant.folder for variant in variants]
        with progress_bar(total=rounds, description="timing", unit="round") as bar:
            return tuple(
                wall_times(self.benchmark, folders, reference, rounds=rounds, on_round=lambda: bar.update() and None)
            )

    def _total(self, profile: Profile) -> int:
        return METRICS[self.metric](profile.total)
