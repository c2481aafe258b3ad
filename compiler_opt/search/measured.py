"""Searches for the inlining decisions that make a program fast: what functions cost when they run counts as bytes.

The search is the one for size. Only the sizes that it sees are others: to the bytes of each function, those are added
that its changed cost is worth (`Price`, `Attribution`). So it keeps what saves more than it costs, in each part of the
program by itself, and one run of the benchmark tells for dozens of moves which of them pay.
"""

import collections
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from compiler_opt.collect.rollout import DefaultPolicy
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.module import Module
from compiler_opt.errors import BenchmarkError
from compiler_opt.llvm.object_file import ObjectSizes
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.measure.attribution import Attribution, Metric
from compiler_opt.measure.callgrind import Profile
from compiler_opt.policies.decisions import Decisions, Site, provenance
from compiler_opt.problems.problem import AnyProblem
from compiler_opt.search.builds import Compiled, build_of, comdat_groups
from compiler_opt.search.compiling import PoolCompiler
from compiler_opt.search.confirmation import needed_decisions
from compiler_opt.search.found import Found, Progress
from compiler_opt.search.moves import Hotness
from compiler_opt.search.program_search import identity_of, resumable_search
from compiler_opt.search.search import SearchSettings

HOT_SHARE = 0.99
"""Functions are hot that have this share of the cost together, the most costly first."""
_CALL_COST = 10.0
"""What a call may save by being inlined, at least: call, return, arguments and saved registers."""

_START_THRESHOLDS = (500, 2000)
"""Of the inliner; its own is 225 at -O2."""

Run = Callable[[Mapping[int, Path]], Profile]
"""Links a program with other objects for some of its modules, and measures it; raises BenchmarkError if it is wrong."""


@dataclasses.dataclass(frozen=True)
class Cost:
    """What counts as the cost of a program.

    Attributes:
      metric: of a run.
      bytes_per_percent: text bytes that one percent of the metric is worth.
      is_own: whether an object file, by its path in a profile, is part of the program, and not of a library.
    """

    metric: Metric
    bytes_per_percent: float
    is_own: Callable[[str], bool]


@dataclasses.dataclass(frozen=True)
class MeasuredSearch:
    """What a search has found.

    Attributes:
      decisions: of the program; none if none made it better.
      found: the search.
      base: profile under the compiler's own decisions.
      best: profile with the decisions.
      measurements: runs of the benchmark.
      hot_functions: number of functions whose calls were searched.
    """

    decisions: Decisions
    found: Found
    base: Profile
    best: Profile
    measurements: int
    hot_functions: int


class MeasuredCompiler:
    """Compiles modules of a program and measures it; a `Compiler` whose sizes have what the functions cost.

    Modules that are not compiled are as under the base policy. The first call has to compile all of them so.

    Attributes:
      measurements: runs of the benchmark so far.
    """

    def __init__(self, compiler: PoolCompiler, run: Run, cost: Cost, scratch: Path):
        """`scratch` is a folder for objects."""
        self.measurements = 0
        self._compiler, self._run, self._cost, self._scratch = compiler, run, cost, scratch
        self._base: Profile | None = None
        self._homes: dict[str, int] = {}
        self._base_sizes: dict[int, Mapping[str, int]] = {}

    @property
    def base(self) -> Profile:
        """The profile under the base policy, once it is measured."""
        if self._base is None:
            raise RuntimeError("nothing is compiled yet")
        return self._base

    @functools.cached_property
    def _attribution(self) -> Attribution:
        return Attribution(self.base, self._cost.metric, self._cost.is_own)

    @property
    def _bytes_per_unit(self) -> float:
        """Bytes that one instruction, or one cycle, is worth."""
        return 100 * self._cost.bytes_per_percent / max(1, self._cost.metric(self.base.total))

    def compile(self, requests: Mapping[int, Mapping[Site, int]]) -> dict[int, Compiled | str]:
        """See `Compiler`. If the program is wrong, all modules have failed.

        Raises:
          BenchmarkError: it is wrong under the base policy.
        """
        if not requests:
            return {}
        is_base = self._base is None
        compiled = self._compiler.compile(requests, self._object)
        objects = {module: self._object(module) for module, each in compiled.items() if isinstance(each, Compiled)}
        if is_base:
            self._base = self._run(objects)
            for module in sorted(objects):
                sizes = _sizes(compiled[module])
                self._base_sizes[module] = sizes.functions
                for name in sizes.functions.keys() - sizes.function_comdats.keys():
                    self._homes.setdefault(name, module)
        self.measurements += 1
        try:
            profile = self.base if is_base else self._run(objects)
        except BenchmarkError as error:
            return dict.fromkeys(requests, str(error))
        changes = self._attribution.changes(profile, self._unchanged(compiled))
        return {
            module: dataclasses.replace(each, sizes=self._priced(module, each.sizes, changes))
            if isinstance(each, Compiled)
            else each
            for module, each in compiled.items()
        }

    def measure(self, decisions: Mapping[Site, int]) -> Profile:
        """The profile of the whole program with decisions.

        Raises:
          BenchmarkError: it is wrong.
        """
        compiled = self._compiler.compile(dict.fromkeys(range(len(self._compiler.modules)), decisions), self._object)
        self.measurements += 1
        return self._run({m: self._object(m) for m, each in compiled.items() if isinstance(each, Compiled)})

    def hotness(self) -> Hotness:
        """The hot functions under the base policy, and what their calls may save."""
        own: collections.Counter[str] = collections.Counter()
        for function, counts in self.base.functions.items():
            if self._cost.is_own(function.object):
                own[function.symbol] += self._cost.metric(counts)
        hot: set[str] = set()
        left = (1 - HOT_SHARE) * own.total()
        for symbol, cost in sorted(own.items(), key=lambda each: (each[1], each[0])):
            left -= cost
            if left < 0:
                hot.add(symbol)
        call_bytes: collections.Counter[tuple[str, str]] = collections.Counter()
        for (caller, callee), calls in self.base.calls.items():
            if self._cost.is_own(caller.object) and self._cost.is_own(callee.object):
                call_bytes[caller.symbol, callee.symbol] += round(calls.number * _CALL_COST * self._bytes_per_unit)
        return Hotness(frozenset(hot), call_bytes)

    def hot_decisions(self, compiled: Mapping[int, Compiled]) -> dict[int, dict[Site, int]]:
        """The decisions of builds in functions that are hot or were inlined into hot ones, by module."""
        hot = self.hotness().functions or frozenset()
        groups = comdat_groups(compiled.values())
        found: dict[int, dict[Site, int]] = {}
        for module, each in compiled.items():
            build = build_of(each, module, groups)
            callers = {name for name, _ in build.calls if not hot.isdisjoint(build.holders(name))}
            decided = zip(each.sites, each.advice, strict=True)
            found[module] = {site: advice for site, advice in decided if site.caller in callers}
        return found

    def _unchanged(self, compiled: Mapping[int, Compiled | str]) -> frozenset[str]:
        """Functions that the linker takes from a module that was not compiled, or that have the size of the base."""
        changed: set[str] = set()
        unchanged: set[str] = set()
        for module, base in sorted(self._base_sizes.items()):
            each = compiled.get(module)
            sizes = each.sizes.functions if isinstance(each, Compiled) else base
            changed |= {name for name, size in sizes.items() if base.get(name) != size} - unchanged
            unchanged |= {name for name, size in sizes.items() if base.get(name) == size} - changed
        return frozenset(unchanged)

    def _object(self, module: int) -> Path:
        return self._scratch / f"{module}.o"

    def _priced(self, module: int, sizes: ObjectSizes, changes: Mapping[str, float]) -> ObjectSizes:
        """The sizes with the bytes that changed costs of functions are worth."""
        functions, comdats, total = dict(sizes.functions), dict(sizes.comdats), sizes.text_bytes
        for name in sizes.functions.keys() & changes.keys():
            extra = round(changes[name] * self._bytes_per_unit)
            signature = sizes.function_comdats.get(name)
            # Several modules may have a local function of this name; the profile does not tell them apart.
            if signature is None and self._homes.setdefault(name, module) != module:
                continue
            functions[name] += extra
            total += extra
            if signature is not None:
                comdats[signature] += extra
        return dataclasses.replace(sizes, functions=functions, comdats=comdats, text_bytes=total)


class GenerousStart:
    """Where the program is hot, decides as LLVM's heuristic would with a higher threshold; a `Compiler`.

    Hardly any of its calls pays alone: a callee gets cheaper when what it calls is inlined as well, and constants reach
    it. Elsewhere code would only grow.
    """

    def __init__(self, measured: MeasuredCompiler, generous: PoolCompiler):
        """`generous` compiles the same modules, with the other threshold."""
        self._measured, self._generous = measured, generous

    def compile(self, requests: Mapping[int, Mapping[Site, int]]) -> dict[int, Compiled | str]:
        """See `Compiler`; modules that need too long with this threshold have failed."""
        found = self._generous.compile(requests)
        compiled = {module: each for module, each in found.items() if isinstance(each, Compiled)}
        return {**found, **self._measured.compile(self._measured.hot_decisions(compiled))}


def search_measured(
    modules: Sequence[Module],
    pool: WorkerPool[ObjectSizes],
    problem: AnyProblem,
    toolchain: Toolchain,
    settings: SearchSettings,
    run: Run,
    cost: Cost,
    *,
    name: str,
    folder: Path,
    scratch: Path,
    identity: Mapping[str, str],
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> MeasuredSearch:
    """Searches, from the compiler's own decisions, for those that make a program fast; keeps them if they do.

    Args:
      modules: of the program, in link order.
      pool: workers for this toolchain and problem.
      problem: inlining for size, whose rollouts have the sizes of functions.
      toolchain: the compiler; it must be able to load the plugin.
      settings: how to search.
      run: measures the program.
      cost: what counts.
      name: the program's.
      folder: where the state is kept, from which a search that was interrupted continues.
      scratch: folder for objects.
      identity: what must be the same to continue, besides program, compiler and settings.
      on_progress: called after each round.

    Raises:
      BenchmarkError: the program is wrong as it is.
      ConfigError: the folder has the state of another search.
      CorpusError: no module compiles.
      ToolchainError: the compiler cannot load the plugin.
    """
    about = provenance(problem.name, toolchain.version, None)
    default = DefaultPolicy(problem)
    compiler = MeasuredCompiler(PoolCompiler(pool, modules, default), run, cost, scratch)
    starts = []
    for threshold in _START_THRESHOLDS:
        generous = [module.with_flags("-mllvm", f"-inline-threshold={threshold}") for module in modules]
        starts.append(GenerousStart(compiler, PoolCompiler(pool, generous, default)))
    found = resumable_search(
        compiler,
        len(modules),
        settings,
        folder,
        {**identity_of(modules, settings, about), **identity},
        other_starts=starts,
        hotness=compiler.hotness,
        on_progress=on_progress,
    )
    decisions, best = needed_decisions(found, base_is_default=True), compiler.base
    if decisions:
        try:
            best = compiler.measure(decisions)
        except BenchmarkError:
            decisions = {}
    about |= {"program": name, "search": {"measurements": compiler.measurements, "seed": settings.seed}}
    hot = compiler.hotness().functions
    return MeasuredSearch(
        decisions=Decisions(decisions, about),
        found=found,
        base=compiler.base,
        best=best,
        measurements=compiler.measurements,
        hot_functions=len(hot or ()),
    )


def _sizes(compiled: Compiled | str) -> ObjectSizes:
    assert isinstance(compiled, Compiled)
    return compiled.sizes
