"""Makes one program faster, by what a benchmark of the user's runs; each step continues after an interruption.

    1 build with bitcode, extract a corpus        5 deploy the decisions
    2 build plainly, measure the benchmark        6 build with them and the profile, run the tests, measure again
    3 record a profile, build with it             7 report
    4 search for decisions where it is hot

The decisions are kept only if the program that the deployed compilers have built prints the same, and is better than
what clang builds with the profile alone.
"""

import contextlib
import dataclasses
import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from compiler_opt.corpus.description import Corpus
from compiler_opt.cost_models import block_costs
from compiler_opt.cost_models.function_costs import CompiledProfile
from compiler_opt.deploy.deployment import deploy
from compiler_opt.deploy.policies import PolicyRequest
from compiler_opt.errors import BenchmarkError
from compiler_opt.evaluation.statistics import relative_change
from compiler_opt.files import check_folder_writable, exclusive_directory
from compiler_opt.llvm import profile as llvm_profile
from compiler_opt.llvm.inliner_plugin import inliner_plugin
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.measure import callgrind
from compiler_opt.measure.attribution import Attribution, Metric
from compiler_opt.measure.benchmark import Benchmark, Reference
from compiler_opt.measure.callgrind import Counts, Profile
from compiler_opt.measure.wall_time import WallTimes, wall_times
from compiler_opt.optimize import steps
from compiler_opt.optimize.context import DECISIONS, SEARCH, OptimizationContext, OptimizeSettings, State, Step
from compiler_opt.optimize.program import EMBED_BITCODE, Compilers, Program, TestRun, Variant
from compiler_opt.optimize.results import TargetSize, measure
from compiler_opt.optimize.verdict import Verdict
from compiler_opt.problems.inlining import PROBLEM
from compiler_opt.progress_bar import progress_bar
from compiler_opt.search.profiled import CostWeights, profiled_pool, search_profiled
from compiler_opt.search.progress_bar import weighted_bar
from compiler_opt.search.search import SearchSettings

METRICS: Mapping[str, Metric] = {
    "instructions": lambda counts: counts.instructions,
    "cycles": lambda counts: counts.cycles,
}
"""What can be made less, by name; cycles are callgrind's estimate."""

DEFAULT_BYTES_PER_PERCENT = 0.05
"""Of the program's text."""

PROFILE = "program.profdata"
"""The profile, in the folder of an optimisation."""

_BUDGET = 100_000
"""Compiles a module; the time ends a search before."""
_QUIET = ("-Wno-backend-plugin", "-Wno-profile-instr-out-of-date", "-Wno-profile-instr-unprofiled")
"""Code that the benchmark does not link has no profile."""


@dataclasses.dataclass(frozen=True)
class SpeedSettings:
    """What fast means.

    Attributes:
      benchmark: commands that run in the build folder.
      metric: a name of `METRICS`.
      bytes_per_percent: text that one percent of the metric counts as; None for `DEFAULT_BYTES_PER_PERCENT`.
      minutes: how long to search.
      seed: of random moves.
      wall_rounds: how often the benchmark is timed in both builds.
    """

    benchmark: Benchmark
    metric: str = "instructions"
    bytes_per_percent: float | None = None
    minutes: float = 60.0
    seed: int = 0
    wall_rounds: int = 20


@dataclasses.dataclass(frozen=True)
class Measured:
    """A build of the program.

    Attributes:
      counts: of the benchmark, libraries included.
      own: the metric of the program's own functions; the rest of a change is in libraries, where nothing was decided.
      text_bytes: of all main targets.
    """

    counts: Counts
    own: int
    text_bytes: int


@dataclasses.dataclass(frozen=True)
class SpeedResult:
    """Before and after.

    Attributes:
      program: its name.
      kept: whether decisions were found that are better than the profile alone.
      metric: what was to be made less.
      default: the plain build.
      profiled: the build by plain clang with the profile.
      optimized: the build by the deployed compilers with the profile; `profiled` if nothing is kept.
      targets: text of the plain and the optimised build.
      functions: by symbol, what its code costs more than in the plain build, the largest differences first.
      wall: times of the three builds.
      tests: in the plain and the optimised build; empty if there are none.
      verdict: why tests failed; None if none did.
      num_decisions: that are replayed.
      compiles: of modules, in the search.
      hot_functions: that it searched.
    """

    program: str
    kept: bool
    metric: str
    default: Measured
    profiled: Measured
    optimized: Measured
    targets: tuple[TargetSize, ...]
    functions: Mapping[str, float]
    wall: tuple[WallTimes, ...]
    tests: tuple[TestRun, ...]
    verdict: Verdict | None
    num_decisions: int
    compiles: int
    hot_functions: int

    def to_json(self) -> dict[str, Any]:
        """The result as JSON values."""
        values = {**dataclasses.asdict(self), "targets": [target.to_json() for target in self.targets]}
        values["verdict"] = None if self.verdict is None else self.verdict.to_json()
        for name, build in (("default", self.default), ("profiled", self.profiled), ("optimized", self.optimized)):
            values[name]["counts"]["cycles"] = build.counts.cycles
        return values


def optimize_for_speed(
    program: Program,
    toolchain: Toolchain,
    settings: OptimizeSettings,
    speed: SpeedSettings,
    echo: Callable[[str], Any] = print,
) -> SpeedResult:
    """Makes one program faster, built with the clang of `toolchain`; `echo` prints lines about the progress.

    Of the settings, those count that concern builds and tests.

    Raises:
      CompilerOptError: an error that the user can fix; the same call then continues.
    """
    problem = PROBLEM
    toolchain.require(problem.decision.advisor.problem)
    for tool in ("clang++", "ld.lld", "llvm-ar", "llvm-profdata", "llvm-readobj"):
        toolchain.tool(tool)
    callgrind.valgrind()
    llvm_profile.check_runtime(toolchain)
    block_costs.load(block_costs.INSTRUCTIONS, toolchain)  # Needs a package that may be missing.
    check_folder_writable(settings.output)
    inliner_plugin(toolchain)
    identity = {
        **settings.identity(program, toolchain),
        "objective": f"{speed.metric} of {json.dumps(speed.benchmark.commands)} at {settings.level}, with a profile",
    }
    with exclusive_directory(settings.output, "--output"):
        folder = settings.output.absolute()
        state = State(folder, identity)
        context = OptimizationContext(program, toolchain, problem, settings, folder, None, state, echo)
        return _SpeedOptimization(context, speed).run()


class _SpeedOptimization:
    def __init__(self, context: OptimizationContext, speed: SpeedSettings):
        plain = steps.plain_compilers(context.toolchain)
        self._context, self._speed, self._metric = context, speed, METRICS[speed.metric]
        self._profile = context.folder / PROFILE
        self._use = (f"-fprofile-use={self._profile}", *_QUIET)
        self._bitcode = context.variant("bitcode", plain, *EMBED_BITCODE)
        self._default = context.variant("default", plain)
        self._profiled = context.variant("profiled", plain, *self._use)

    def run(self) -> SpeedResult:
        context, speed, level = self._context, self._speed, self._context.settings.level
        for note in context.program.notes(level):
            context.echo(note)
        context.heading(1, f"Bitcode: {context.program.name}, built with {context.toolchain.version_text}")
        corpus = steps.make_corpus(context, self._bitcode)
        context.heading(2, f"Benchmark: plain clang {level}")
        steps.build(context, self._default)
        reference = speed.benchmark.reference(self._default.folder)
        before = speed.benchmark.measure(self._default.folder, reference)
        context.echo(f"{before.total.instructions:,} instructions, {before.total.cycles:,} estimated cycles")
        attribution = Attribution(before, self._metric, self._is_own)
        context.heading(3, "Profile: of the benchmark")
        self._record(reference)
        steps.build(context, self._profiled)
        sizes = self._sizes(self._profiled)
        after = speed.benchmark.measure(self._profiled.folder, reference)
        default = _measured(before, attribution, (size.default_bytes for size in _main(sizes)))
        profiled = _measured(after, attribution, (size.optimized_bytes for size in _main(sizes)))
        context.echo(
            f"plain clang with the profile: {relative_change(*map(self._total, (before, after))):+.2%} {speed.metric}, "
            f"{relative_change(default.text_bytes, profiled.text_bytes):+.2%} text"
        )
        price = speed.bytes_per_percent
        price = DEFAULT_BYTES_PER_PERCENT * default.text_bytes if price is None else price
        found = self._search(corpus, price, attribution.own_cost(before) / self._total(before))
        context.heading(5, f"Deployment: mlgo-clang and mlgo-clang++, for {level}")
        result = SpeedResult(
            program=context.program.name,
            kept=False,
            metric=speed.metric,
            default=default,
            profiled=profiled,
            optimized=profiled,
            targets=sizes,
            functions=_largest(attribution, after),
            wall=(),
            tests=(),
            verdict=None,
            num_decisions=0,
            compiles=int(found["compiles"]),
            hot_functions=int(found["hot_functions"]),
        )
        if not found["decisions"]:
            context.echo("none: the search has found nothing that is better")
            return result
        optimized = context.variant("optimized", self._deploy(), *self._use)
        context.heading(6, "Build: by the deployed compilers, with the profile")
        steps.build(context, optimized)
        tests, verdict = steps.run_tests(context, self._default, optimized)
        context.heading(7, f"Report: {speed.metric}, before and after")
        try:
            after = speed.benchmark.measure(optimized.folder, reference)
        except BenchmarkError as error:
            self._withdraw()
            raise BenchmarkError(f"the optimised build is wrong, and its compilers are removed: {error}") from None
        sizes = self._sizes(optimized)
        better = _measured(after, attribution, (size.optimized_bytes for size in _main(sizes)))
        percent = 100 * (better.own - profiled.own) / max(1, self._total(before))
        if percent * price + better.text_bytes - profiled.text_bytes >= 0:
            self._withdraw()
            return dataclasses.replace(result, tests=tests, verdict=verdict)
        return dataclasses.replace(
            result,
            kept=True,
            optimized=better,
            targets=sizes,
            functions=_largest(attribution, after),
            wall=self._timed([self._default, self._profiled, optimized], reference),
            tests=tests,
            verdict=verdict,
            num_decisions=int(found["decisions"]),
        )

    def _record(self, reference: Reference) -> None:
        """Builds the program so that it records a profile, and runs the benchmark."""
        context, folder = self._context, self._context.folder / "raw-profiles"
        options = (f"-fprofile-generate={folder}", *_QUIET)
        variant = context.variant("instrumented", steps.plain_compilers(context.toolchain), *options, linking=options)

        def work(step: Step) -> dict[str, Any]:
            # The build may have run what it has built.
            shutil.rmtree(folder, ignore_errors=True)
            self._speed.benchmark.wall_s(variant.folder, reference)
            raw = sorted(folder.glob("*.profraw"))
            if not raw:
                raise BenchmarkError(
                    f"{variant.folder}: the benchmark has recorded no profile in {folder}; it must run a program of "
                    "this build, and end by itself"
                )
            llvm_profile.merge(raw, self._profile, context.toolchain)
            shutil.rmtree(folder)
            return {}

        steps.build(context, variant)
        context.once("profile", work, message="done before")

    def _search(self, corpus: Corpus, price: float, own_share: float) -> Mapping[str, Any]:
        """Searches for as long as the settings say; a search that is done goes on if it was shorter."""
        context, speed = self._context, self._speed
        state, folder = context.state, context.folder / SEARCH
        context.heading(4, f"Search: {speed.minutes:g} minutes, {price:,.0f} bytes for a percent of {speed.metric}")
        searched = state.steps.get(SEARCH)
        if searched is not None and searched.done and searched.result["minutes"] >= speed.minutes:
            context.echo("done before")
            return searched.result
        context.forget_results()
        toolchain = context.toolchain
        profile = CompiledProfile(self._profile, toolchain)
        cost = CostWeights(profile, block_costs.load(block_costs.INSTRUCTIONS, toolchain), price, own_share)
        with state.step(SEARCH) as step, contextlib.ExitStack() as stack:
            step.result = {"minutes": speed.minutes}
            state.save()
            folder.mkdir(parents=True, exist_ok=True)
            show = stack.enter_context(weighted_bar(context.program.name, speed.metric, price))
            found = search_profiled(
                corpus.modules,
                stack.enter_context(profiled_pool(toolchain, cost, context.settings.jobs)),
                toolchain,
                SearchSettings(
                    budget=_BUDGET,
                    max_minutes=max(0.0, speed.minutes - step.wall_s / 60),
                    seed=speed.seed,
                    min_modules=context.settings.jobs,
                ),
                cost,
                name=context.program.name,
                folder=folder,
                identity={"price": f"{price:g} bytes for a percent of {speed.metric}", "profile": profile.identity},
                on_progress=show,
            )
            found.decisions.save(context.folder / DECISIONS)
            step.result |= {
                "decisions": len(found.decisions),
                "hot_functions": found.hot_functions,
                "compiles": sum(found.found.compiles.values()),
            }
            context.echo(
                f"{len(found.decisions)} decisions; {found.hot_functions} functions are hot; "
                f"{sum(found.found.compiles.values())} compilations"
            )
        return step.result

    def _deploy(self) -> Compilers:
        """Makes the compilers that replay the decisions, and decide as clang elsewhere."""
        context = self._context

        def work(step: Step) -> dict[str, Any]:
            output = context.folder / "deployed"
            shutil.rmtree(output, ignore_errors=True)
            request = PolicyRequest(levels=(context.settings.level,))
            clangs, options = [context.toolchain.clang], context.settings.pass_options
            deploy([request], output, clangs, decisions=[context.folder / DECISIONS], options=options)
            return {}

        context.once("deployment", work, message="done before")
        return steps.deployed_compilers(context)

    def _withdraw(self) -> None:
        """Removes the compilers."""
        shutil.rmtree(self._context.folder / "deployed")
        self._context.forget_results()

    def _timed(self, variants: Sequence[Variant], reference: Reference) -> tuple[WallTimes, ...]:
        rounds, folders = self._speed.wall_rounds, [variant.folder for variant in variants]
        with progress_bar(total=rounds, description="timing", unit="round") as bar:
            return tuple(
                wall_times(
                    self._speed.benchmark, folders, reference, rounds=rounds, on_round=lambda: bar.update() and None
                )
            )

    def _sizes(self, variant: Variant) -> tuple[TargetSize, ...]:
        return measure(self._context.program, self._default, variant, self._context.toolchain.tool("ld.lld"))

    def _is_own(self, file: str) -> bool:
        """Whether a file in a profile is part of a build, and not a library of the system."""
        return file.startswith(f"{self._context.folder.resolve()}/")

    def _total(self, profile: Profile) -> int:
        return self._metric(profile.total)


def _main(sizes: Iterable[TargetSize]) -> list[TargetSize]:
    return [size for size in sizes if size.role == "main"]


def _measured(profile: Profile, attribution: Attribution, text: Iterable[int]) -> Measured:
    return Measured(profile.total, attribution.own_cost(profile), sum(text))


def _largest(attribution: Attribution, profile: Profile, count: int = 50) -> dict[str, float]:
    changes = attribution.changes(profile)
    largest = sorted(changes, key=lambda symbol: (-abs(changes[symbol]), symbol))[:count]
    return {symbol: changes[symbol] for symbol in largest if changes[symbol]}
