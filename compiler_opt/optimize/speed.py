"""Makes one program faster, by what a benchmark of the user's measures; each step continues after an interruption.

    1 build with bitcode, extract a corpus        4 deploy the decisions
    2 build plainly, measure the benchmark        5 build with them, run the tests, measure again
    3 search for decisions where it is hot        6 report

The decisions are kept only if the program that the deployed compilers have built prints the same, and is better.
"""

import contextlib
import dataclasses
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.deploy.deployment import deploy
from compiler_opt.deploy.policies import PolicyRequest
from compiler_opt.errors import BenchmarkError
from compiler_opt.evaluation.statistics import relative_change
from compiler_opt.files import check_folder_writable, exclusive_directory
from compiler_opt.llvm.inliner_plugin import inliner_plugin
from compiler_opt.llvm.scratch import scratch_directory
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
from compiler_opt.optimize.trial_build import TrialBuild
from compiler_opt.optimize.verdict import Verdict
from compiler_opt.problems import problem as problems
from compiler_opt.progress_bar import progress_bar
from compiler_opt.search.found import Progress
from compiler_opt.search.measured import Cost, search_measured
from compiler_opt.search.search import SearchSettings

METRICS: Mapping[str, Metric] = {
    "instructions": lambda counts: counts.instructions,
    "cycles": lambda counts: counts.cycles,
}
"""What can be made less, by name; cycles are callgrind's estimate."""

DEFAULT_BYTES_PER_PERCENT = 0.05
"""Of the program's text."""

_BUDGET = 100_000
"""Compiles a module; the time ends a search before."""


@dataclasses.dataclass(frozen=True)
class SpeedSettings:
    """What fast means.

    Attributes:
      benchmark: commands that run in the build folder.
      metric: a name of `METRICS`.
      bytes_per_percent: text that one percent of the metric is worth; None for `DEFAULT_BYTES_PER_PERCENT`.
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
class SpeedResult:
    """Before and after.

    Attributes:
      program: its name.
      kept: whether decisions were found that make the program better.
      metric: what was to be made less.
      default: counts of the benchmark in the plain build.
      optimized: and in the build by the deployed compilers.
      default_own: the metric of the program's own functions, without libraries.
      optimized_own: the same; both together show how much of a change is in libraries, where no decision was changed.
      targets: text of both builds.
      functions: by symbol, what its code costs more than before, the largest differences first.
      wall: times of both builds.
      tests: in both builds; empty if there are none.
      verdict: why tests failed; None if none did.
      num_decisions: that are replayed.
      measurements: runs of the benchmark in the search.
      hot_functions: that it searched.
    """

    program: str
    kept: bool
    metric: str
    default: Counts
    optimized: Counts
    default_own: int
    optimized_own: int
    targets: tuple[TargetSize, ...]
    functions: Mapping[str, float]
    wall: tuple[WallTimes, WallTimes] | None
    tests: tuple[TestRun, ...]
    verdict: Verdict | None
    num_decisions: int
    measurements: int
    hot_functions: int

    @property
    def text_bytes(self) -> tuple[int, int]:
        """Text of all main targets, before and after."""
        main = [target for target in self.targets if target.role == "main"]
        return sum(target.default_bytes for target in main), sum(target.optimized_bytes for target in main)

    def to_json(self) -> dict[str, Any]:
        """The result as JSON values."""
        values = dataclasses.asdict(self)
        values["verdict"] = None if self.verdict is None else self.verdict.to_json()
        for name, counts in (("default", self.default), ("optimized", self.optimized)):
            values[name]["cycles"] = counts.cycles
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
    problem = problems.load("inlining")
    toolchain.require(problem.advisor.problem)
    for tool in ("clang++", "ld.lld", "llvm-ar"):
        toolchain.tool(tool)
    callgrind.valgrind()
    check_folder_writable(settings.output)
    inliner_plugin(toolchain)
    identity = {
        **program.identity(),
        "compiler": f"{toolchain.clang} {toolchain.version_text}",
        "test command": json.dumps(settings.test_command),
        "objective": f"{speed.metric} of {json.dumps(speed.benchmark.commands)} at {settings.level}",
    }
    with exclusive_directory(settings.output, "--output"):
        folder = settings.output.absolute()
        state = State(folder, identity)
        context = OptimizationContext(program, toolchain, problem, settings, folder, None, state, echo, num_steps=6)
        return _run(context, speed)


def _run(context: OptimizationContext, speed: SpeedSettings) -> SpeedResult:
    plain, level = steps.plain_compilers(context.toolchain), context.settings.level
    default = context.variant("default", plain)
    for note in context.program.notes(level):
        context.echo(note)
    context.heading(1, f"Bitcode: {context.program.name}, built with {context.toolchain.version_text}")
    corpus = steps.make_corpus(context, context.variant("bitcode", plain, *EMBED_BITCODE))
    context.heading(2, f"Benchmark: plain clang {level}")
    steps.build(context, default)
    reference = speed.benchmark.reference(default.folder)
    before = speed.benchmark.measure(default.folder, reference)
    context.echo(f"{before.total.instructions:,} instructions, {before.total.cycles:,} estimated cycles")
    lld = context.toolchain.tool("ld.lld")
    sizes = measure(context.program, default, default, lld)
    text_bytes = sum(size.default_bytes for size in sizes if size.role == "main")
    metric = METRICS[speed.metric]
    price = speed.bytes_per_percent if speed.bytes_per_percent is not None else DEFAULT_BYTES_PER_PERCENT * text_bytes
    folders = tuple(str(context.variant(name, plain).folder.resolve()) for name in ("default", "trial", "optimized"))
    cost = Cost(metric, price, lambda file: file.startswith(tuple(f"{folder}/" for folder in folders)))
    context.heading(3, f"Search: {speed.minutes:g} minutes, {price:,.0f} bytes for a percent of {speed.metric}")
    found = _search(context, speed, corpus, default, reference, cost)
    attribution = Attribution(before, metric, cost.is_own)
    context.heading(4, f"Deployment: mlgo-clang and mlgo-clang++, for {level}")
    result = SpeedResult(
        program=context.program.name,
        kept=False,
        metric=speed.metric,
        default=before.total,
        optimized=before.total,
        default_own=attribution.own_cost(before),
        optimized_own=attribution.own_cost(before),
        targets=sizes,
        functions={},
        wall=None,
        tests=(),
        verdict=None,
        num_decisions=0,
        measurements=int(found["measurements"]),
        hot_functions=int(found["hot_functions"]),
    )
    if not found["decisions"]:
        context.echo("none: the search has found nothing that is better")
        return result
    optimized = context.variant("optimized", _deploy(context))
    context.heading(5, "Build: by the deployed compilers")
    steps.build(context, optimized)
    tests, verdict = steps.run_tests(context, default, optimized)
    context.heading(6, f"Report: {speed.metric}, before and after")
    try:
        after = speed.benchmark.measure(optimized.folder, reference)
    except BenchmarkError as error:
        _withdraw(context)
        raise BenchmarkError(f"the optimised build is wrong, and its compilers are removed: {error}") from None
    sizes = measure(context.program, default, optimized, lld)
    result = dataclasses.replace(
        result,
        optimized=after.total,
        optimized_own=attribution.own_cost(after),
        targets=sizes,
        functions=_largest(attribution, after),
        tests=tests,
        verdict=verdict,
        num_decisions=int(found["decisions"]),
    )
    percent = 100 * relative_change(metric(before.total), metric(after.total))
    text_before, text_after = result.text_bytes
    if percent * price + text_after - text_before >= 0:
        _withdraw(context)
        return result
    with progress_bar(total=speed.wall_rounds, description="timing", unit="round") as bar:
        first, second = wall_times(
            speed.benchmark,
            [default.folder, optimized.folder],
            reference,
            rounds=speed.wall_rounds,
            on_round=lambda: bar.update() and None,
        )
    return dataclasses.replace(result, kept=True, wall=(first, second))


def _search(
    context: OptimizationContext,
    speed: SpeedSettings,
    corpus: Corpus,
    default: Variant,
    reference: Reference,
    cost: Cost,
) -> Mapping[str, Any]:
    """Searches for as long as the settings say; a search that is done goes on if it was shorter. Returns its result."""
    state, folder = context.state, context.folder / SEARCH
    searched = state.steps.get(SEARCH)
    if searched is not None and searched.done and searched.result["minutes"] >= speed.minutes:
        context.echo("done before")
        return searched.result
    context.forget_results()
    with state.step(SEARCH) as step, contextlib.ExitStack() as stack:
        step.result = {"minutes": speed.minutes}
        state.save()
        folder.mkdir(parents=True, exist_ok=True)
        trial = TrialBuild(context.program, default, context.variant("trial", default.compilers))

        def run(objects: Mapping[int, Path]) -> Profile:
            trial.link({corpus.modules[module].name: path for module, path in objects.items()})
            return speed.benchmark.measure(trial.folder, reference, simulate=speed.metric != "instructions")

        bar = stack.enter_context(progress_bar(unit="compile", description=context.program.name))

        def show(progress: Progress) -> None:
            percent = (progress.confirmed_bytes - progress.base_bytes) / cost.bytes_per_percent
            bar.set_postfix_str(f"{speed.metric} and text {percent:+.2f}%", refresh=False)
            bar.update(progress.compiles - bar.n)

        found = search_measured(
            corpus.modules,
            stack.enter_context(WorkerPool(context.toolchain, context.problem, context.settings.jobs)),
            context.problem,
            context.toolchain,
            SearchSettings(
                budget=_BUDGET,
                max_minutes=max(0.0, speed.minutes - step.wall_s / 60),
                seed=speed.seed,
                min_modules=context.settings.jobs,
            ),
            run,
            cost,
            name=context.program.name,
            folder=folder,
            scratch=stack.enter_context(scratch_directory()),
            identity={"price": f"{cost.bytes_per_percent:g} bytes for a percent of {speed.metric}"},
            on_progress=show,
        )
        found.decisions.save(context.folder / DECISIONS)
        step.result |= {
            "decisions": len(found.decisions),
            "measurements": found.measurements,
            "hot_functions": found.hot_functions,
            "compiles": sum(found.found.compiles.values()),
        }
        context.echo(
            f"{len(found.decisions)} decisions in {found.hot_functions} hot functions, after {found.measurements} "
            "measurements"
        )
    return step.result


def _deploy(context: OptimizationContext) -> Compilers:
    """Makes the compilers that replay the decisions, and decide as clang elsewhere."""

    def work(step: Step) -> dict[str, Any]:
        output = context.folder / "deployed"
        shutil.rmtree(output, ignore_errors=True)
        request = PolicyRequest(levels=(context.settings.level,))
        deploy([request], output, [context.toolchain.clang], decisions=[context.folder / DECISIONS])
        return {}

    context.once("deployment", work, message="done before")
    return steps.deployed_compilers(context)


def _withdraw(context: OptimizationContext) -> None:
    """Removes the compilers."""
    shutil.rmtree(context.folder / "deployed")
    context.forget_results()


def _largest(attribution: Attribution, profile: Profile, count: int = 50) -> dict[str, float]:
    changes = attribution.changes(profile)
    largest = sorted(changes, key=lambda symbol: (-abs(changes[symbol]), symbol))[:count]
    return {symbol: changes[symbol] for symbol in largest if changes[symbol]}
