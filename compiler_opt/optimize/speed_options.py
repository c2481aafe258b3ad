"""What makes a benchmark fast on top of its profile, tried step by step: what pays is kept.

    trials = Trials(run, benchmark, metric, reference, attribution, default, cost)
    best = Best(tried)                                                          # the profile alone
    for name, options in PROGRAM_STEPS:
        best = trials.tried_on(best, name, options=(*best.options, *options))   # for the whole program
    chosen = trials.choose_sets(best, corpus)                                   # for single functions
    best = trials.tried_on(best, "options of functions", functions=True)

Options of the code generator change no function but the one that has them. So after one build and run with each set,
the best of every function is known, and all of them together save what they save each.
"""

import dataclasses
import itertools
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.deploy.pass_options import NO_OPTIONS
from compiler_opt.deploy.policies import PolicyRequest
from compiler_opt.errors import BenchmarkError, CompileError, ConfigError, ProtocolError
from compiler_opt.llvm.advisors import mllvm
from compiler_opt.llvm.options_plugin import FunctionOptions
from compiler_opt.llvm.pass_options import list_pass_options, parse_option
from compiler_opt.measure.attribution import Attribution
from compiler_opt.measure.benchmark import Benchmark, Reference
from compiler_opt.measure.callgrind import Profile
from compiler_opt.optimize import profiles, steps
from compiler_opt.optimize.optimization import DECISIONS, FUNCTION_OPTIONS, Optimization
from compiler_opt.optimize.profiles import LATE, PROGRAM, RecordedProfile
from compiler_opt.optimize.results import ChosenSet, Measured, SpeedStep
from compiler_opt.optimize.state import Record, checksum
from compiler_opt.optimize.target_sizes import text_bytes
from compiler_opt.pass_options.sets import OptionSets
from compiler_opt.progress_bar import progress_bar
from compiler_opt.report.formatting import change_text, count_text
from compiler_opt.search import function_options

COLD = 0.0001
"""The share of all counts of blocks that what is compiled for size has; this costs no speed, and pays for the rest."""

PROGRAM_STEPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (f"the last {100 * COLD:g}% for size", profiles.cold_options(COLD)),
    ("-O3", ("-O3",)),
    ("no load PRE", tuple(mllvm(["-enable-load-pre=false"]))),
    ("more unrolling", tuple(mllvm(["-unroll-threshold=300"]))),
)
"""Names, and options of clang that are tried for the whole program, each on top of those that have paid."""

SETS: tuple[tuple[str, ...], ...] = (
    ("-disable-lsr=true",),
    ("-pre-RA-sched=list-burr",),
    ("-disable-machine-licm=true",),
    ("-disable-machine-cse=true",),
    ("-use-mbpi=false",),
    ("-grow-region-complexity-budget=0",),
    ("-greedy-reverse-local-assignment=true",),
    ("-disable-cgp=true",),
    ("-enable-tail-merge=false",),
    ("-tail-dup-size=4",),
    ("-pre-RA-sched=list-ilp",),
)
"""What functions may have besides, the most useful set first; see docs/size_at_speed_tried.md for what each wins."""

_SMALLEST_SHARE = 1e-5
"""Functions that cost less of the benchmark, or would save less, are left as they are."""


@dataclasses.dataclass(frozen=True)
class BuildCost:
    """What a build costs, in bytes of text.

    Attributes:
      bytes_per_percent: bytes that one percent of the metric counts as.
      total: the metric in the plain build.
    """

    bytes_per_percent: float
    total: int

    def of(self, measured: Measured) -> float:
        return 100 * measured.own / max(1, self.total) * self.bytes_per_percent + measured.text_bytes


@dataclasses.dataclass(frozen=True)
class OwnCost:
    """What a function executes itself; cycles are an estimate."""

    instructions: int
    cycles: int

    def is_no_more_than(self, other: "OwnCost") -> bool:
        """Whether neither is more."""
        return self.instructions <= other.instructions and self.cycles <= other.cycles


_UNKNOWN = OwnCost(1 << 62, 1 << 62)
"""Of a function that is inlined everywhere, or hardly runs."""


@dataclasses.dataclass(frozen=True)
class Tried:
    """A build that was tried: what it costs, and of that each of the program's own functions, by symbol."""

    measured: Measured
    functions: Mapping[str, OwnCost]


@dataclasses.dataclass(frozen=True)
class _Attempt:
    """A build that was tried, or why it cannot be built or measured: valgrind does not know all instructions."""

    tried: Tried | None
    failure: str = ""


@dataclasses.dataclass(frozen=True)
class Best:
    """The best way to build the program so far.

    Attributes:
      tried: the build.
      options: of clang, beside those that compile with the profile.
      profile: which is used.
      functions: whether functions have the options of `FUNCTION_OPTIONS`.
      decisions: whether the decisions of the search are replayed.
      steps: all that was tried.
    """

    tried: Tried
    options: tuple[str, ...] = ()
    profile: RecordedProfile = PROGRAM
    functions: bool = False
    decisions: bool = False
    steps: tuple[SpeedStep, ...] = ()

    def use(self, run: Optimization) -> tuple[str, ...]:
        """All options of clang, beside the level."""
        return *self.profile.use(run), *self.options

    @property
    def is_deployed(self) -> bool:
        """Whether it needs compilers of its own."""
        return self.functions or self.decisions

    def llvm_options(self) -> tuple[str, ...]:
        """LLVM's own ones of `options`."""
        return tuple(option for word, option in itertools.pairwise(self.options) if word == "-mllvm")

    def level(self, run: Optimization) -> str:
        """The optimisation level, such as `-O2`."""
        return next((option for option in reversed(self.options) if option.startswith("-O")), run.settings.level)

    def deployment(self, run: Optimization) -> tuple[PolicyRequest | None, Path | None, OptionSets, Path | None]:
        """What its compilers are made of, as `steps.deploy_compilers` takes it."""
        return (
            PolicyRequest(levels=(self.level(run),)) if self.decisions else None,
            run.folder / DECISIONS if self.decisions else None,
            NO_OPTIONS,
            run.folder / FUNCTION_OPTIONS if self.functions else None,
        )


@dataclasses.dataclass(frozen=True)
class ChosenSets:
    """The sets that functions have; what they save is of the metric."""

    sets: tuple[ChosenSet, ...]

    @property
    def num_functions(self) -> int:
        return sum(each.functions for each in self.sets)


@dataclasses.dataclass(frozen=True)
class Trials:
    """Builds of a program with its profile, one after the other in one folder, whose benchmark is measured.

    Attributes:
      reference: what the benchmark prints.
      attribution: says which functions are the program's own.
      default: the plain build.
      cost: a build is better than another if it costs less.
    """

    run: Optimization
    benchmark: Benchmark
    metric: str
    reference: Reference
    attribution: Attribution
    default: Measured
    cost: BuildCost

    def tried_on(self, best: Best, name: str, **changes: Any) -> Best:
        """Builds with changes of `best`, and keeps them if they pay; the name is shown."""
        candidate = dataclasses.replace(best, **changes)
        tried = self._measured(candidate, name)
        if tried is None:
            return best
        kept = self.cost.of(tried.measured) < self.cost.of(best.tried.measured)
        better = dataclasses.replace(candidate, tried=tried) if kept else best
        return dataclasses.replace(better, steps=(*best.steps, SpeedStep(name, tried.measured, kept)))

    def with_late_profile(self, best: Best) -> Best:
        """Records a second profile of the best build, and tries it."""
        late = RecordedProfile(LATE, first=PROGRAM, options=best.options)
        try:
            late.record(self.run, self.benchmark, self.reference)
        except (BenchmarkError, CompileError, ConfigError) as error:
            self.run.notes.append(f"Counting again after inlining is left out: {error}")
            return best
        return self.tried_on(best, "counting again after inlining", profile=late)

    def choose_sets(self, best: Best, corpus: Corpus) -> ChosenSets:
        """Chooses the set of each function with which it costs least, and writes `FUNCTION_OPTIONS`."""
        run, path = self.run, self.run.folder / FUNCTION_OPTIONS
        known = list_pass_options(run.toolchain.clang)
        sets = [each for each in SETS if all(parse_option(option)[0] in known for option in each)]
        menu: tuple[tuple[str, ...], ...] = ((),)
        costs = [best.tried.functions]
        for each in sets:
            candidate = dataclasses.replace(best, options=(*best.options, *mllvm(each)))
            tried = self._measured(candidate, f"the set {' '.join(each)}")
            if tried is not None:
                menu, costs = (*menu, each), [*costs, tried.functions]
        choices = choose(costs, self.metric, _SMALLEST_SHARE * self.cost.total)

        def work(record: Record) -> ChosenSets:
            modules = corpus.modules if choices else ()
            record.compiles = len(modules)
            with (
                progress_bar(total=record.compiles, description="bodies of functions", unit="module") as bar,
                WorkerPool(run.toolchain, function_options.task(1), run.settings.jobs) as pool,
            ):
                bodies = function_options.bodies(modules, pool, choices, bar.update)
            chosen = {body: choices[body[0]] for body in bodies}
            level = best.level(run).removeprefix("-")
            function_options.save(FunctionOptions(menu, chosen, level=level), path)
            return ChosenSets(self._by_set(menu, costs, {symbol: choices[symbol] for symbol, _ in bodies}))

        inputs = [menu, best.level(run), sorted(choices.items())]
        found = run.state.do("function options", ChosenSets, work, inputs=inputs, after=["corpus"], outputs=[path])
        saved = sum(each.saved for each in found.sets) / max(1, self.cost.total)
        functions = count_text(found.num_functions, "function")
        run.echo(f"options for {functions}, of {len(menu) - 1} sets: {change_text(-saved)} {self.metric}, added up")
        return found

    def _measured(self, candidate: Best, name: str) -> Tried | None:
        """The costs of a build, which are shown; None with a note if there are none."""
        run, folder = self.run, self.run.folder / "tried"

        def work(record: Record) -> _Attempt:
            # Other trials use the folder, too.
            shutil.rmtree(run.variant("tried").folder, ignore_errors=True)
            try:
                compilers = None
                if candidate.is_deployed:
                    compilers = steps.deploy_now(run, folder, *candidate.deployment(run))
                variant = run.variant("tried", *candidate.use(run), compilers=compilers)
                steps.build_now(run, variant, record)
                profile = self.benchmark.measure(variant.folder, self.reference)
                return _Attempt(self.of(profile, text_bytes(steps.sizes(run, variant))[1]))
            except (BenchmarkError, CompileError, ConfigError, ProtocolError) as error:
                return _Attempt(None, str(error))
            finally:
                shutil.rmtree(folder, ignore_errors=True)

        used = [
            candidate.functions and checksum(run.folder / FUNCTION_OPTIONS),
            candidate.decisions and checksum(run.folder / DECISIONS),
        ]
        inputs = [candidate.options, used, candidate.profile.identity(run), self.reference.identity]
        attempt = run.state.do(
            f"with {name}",
            _Attempt,
            work,
            inputs=inputs,
            after=[run.default.folder.name],
            is_enough=lambda attempt: attempt.tried is not None,  # It may have been a full disk.
        )
        if attempt.tried is None:
            run.notes.append(f"Left out: {name}: {attempt.failure}")
            run.echo(f"{name}: left out: {attempt.failure}")
        else:
            profiles.echo(run, name, attempt.tried.measured, self.default)
        return attempt.tried

    def of(self, profile: Profile, text: int) -> Tried:
        """A build with so many bytes of text, whose benchmark has this profile."""
        least = _SMALLEST_SHARE * self.default.counts.instructions
        functions = {
            symbol: OwnCost(counts.instructions, counts.cycles)
            for symbol, counts in self.attribution.own(profile).items()
            if counts.instructions >= least
        }
        return Tried(Measured(profile.total, self.attribution.own_cost(profile), text), functions)

    def _by_set(
        self, menu: Sequence[tuple[str, ...]], costs: Sequence[Mapping[str, OwnCost]], choices: Mapping[str, int]
    ) -> tuple[ChosenSet, ...]:
        """Sums over the functions of each set, of the set first that saves most."""
        functions = Counter(choices.values())
        saved: Counter[int] = Counter()
        for symbol, number in choices.items():
            saved[number] += getattr(costs[0][symbol], self.metric) - getattr(costs[number][symbol], self.metric)
        return tuple(
            ChosenSet(function_options.difference(menu, number), functions[number], count)
            for number, count in saved.most_common()
        )


def choose(costs: Sequence[Mapping[str, OwnCost]], metric: str, least: float) -> dict[str, int]:
    """The number of the set with which each function costs least, if that is less by so much than with the first one.

    No set is chosen with which it costs more by another metric.
    """
    choices = {}
    for symbol, first in costs[0].items():
        allowed = [number for number, each in enumerate(costs) if each.get(symbol, _UNKNOWN).is_no_more_than(first)]
        number = min(allowed, key=lambda each: getattr(costs[each][symbol], metric))
        if getattr(first, metric) - getattr(costs[number][symbol], metric) >= least:
            choices[symbol] = number
    return choices
