"""Searches for the inlining decisions that make a program fast, by LLVM's profile of a run of it.

The search is the one for size. Only the sizes that it sees differ: to the bytes of each function, those are added
that its cost counts as. All modules are compiled with the profile, so that each object says how often its blocks run:
nothing is linked or run, and one compile tells which of dozens of moves pay.
"""

import collections
import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from compiler_opt.collect.rollout import DefaultPolicy, Rollout
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.module import Module
from compiler_opt.cost_models.block_costs import BlockCosts
from compiler_opt.cost_models.function_costs import CompiledProfile
from compiler_opt.cost_models.objectives import ProfiledObject, profiled_reader
from compiler_opt.cost_models.profiled_costs import InlinedCall, ProfiledCosts, ProfiledModule
from compiler_opt.decisions.inlining import DECISION
from compiler_opt.errors import CorpusError
from compiler_opt.llvm.inliner_plugin import with_plugin_features
from compiler_opt.llvm.object_file import ObjectSizes
from compiler_opt.llvm.plugin_features import CALLSITE_COUNT
from compiler_opt.llvm.remarks import CallSites
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.decisions import Decisions, Site, provenance, sites_of
from compiler_opt.problem import CompileTask
from compiler_opt.search.builds import Compiled
from compiler_opt.search.compiling import compiled_with, rollouts
from compiler_opt.search.confirmation import needed_decisions
from compiler_opt.search.moves import Hotness
from compiler_opt.search.program_search import identity_of, resumable_search
from compiler_opt.search.search import SearchSettings
from compiler_opt.search.search_outcome import Progress, SearchOutcome

HOT_SHARE = 0.99
"""Functions are hot that have this share of the cost together, the most costly first."""
_CALL_COST = 10.0
"""What a call may save by being inlined, at least: call, return, arguments and saved registers, in instructions."""


@dataclasses.dataclass(frozen=True)
class CostWeights:
    """What counts as the cost of a program.

    Attributes:
      profile: of a run of it.
      costs: of blocks.
      bytes_per_percent: text bytes that one percent of the cost counts as.
      own_share: of the cost, that is in these modules; the rest is in libraries.
    """

    profile: CompiledProfile
    costs: BlockCosts
    bytes_per_percent: float
    own_share: float = 1.0


@dataclasses.dataclass(frozen=True)
class ProfiledSearch:
    """What a search has found.

    Attributes:
      decisions: of the program; none if none made it better.
      outcome: of the search.
      hot_functions: number of functions whose calls were searched.
    """

    decisions: Decisions
    outcome: SearchOutcome
    hot_functions: int


@contextlib.contextmanager
def profiled_pool(
    toolchain: Toolchain, weights: CostWeights, num_workers: int | None = None
) -> Iterator[WorkerPool[ProfiledObject]]:
    """Workers that compile with the profile, and whose plugin observes how often calls run; raises as `WorkerPool`."""
    toolchain = with_plugin_features(toolchain, (CALLSITE_COUNT,))
    task = CompileTask(DECISION, profiled_reader(toolchain, weights.profile))
    with WorkerPool(toolchain, task, num_workers) as pool:
        yield pool


class ProfiledCompiler:
    """Compiles modules of a program with its profile; a `Compiler` whose sizes have what the functions cost.

    The first call has to compile all modules under the base policy, the compiler's own.
    """

    def __init__(self, pool: WorkerPool[ProfiledObject], modules: Sequence[Module], weights: CostWeights):
        """`pool` is a `profiled_pool` of the same weights."""
        self._pool, self._modules, self._weights = pool, modules, weights
        self._base = DefaultPolicy(pool.task)
        self._costs: ProfiledCosts | None = None
        self._bytes_per_unit = 0.0
        self._hotness = Hotness()

    def compile(self, requests: Mapping[int, Mapping[Site, int]]) -> dict[int, Compiled | str]:
        """See `Compiler`; raises as `rollouts`."""
        done = self._rollouts(requests)
        profiled = {m: self._profiled(rollout) for m, rollout in done.items() if rollout.measurement is not None}
        if self._costs is None and profiled:
            nothing = {module: {site: 0 for site, _, _ in _calls(done[module])} for module in profiled}
            without = self._rollouts(nothing)
            self._costs = ProfiledCosts(
                profiled.values(),
                [self._profiled(rollout) for rollout in without.values() if rollout.measurement is not None],
            )
            self._start(done, profiled)
        return {m: compiled_with(rollout, self._weighted(rollout, profiled.get(m))) for m, rollout in done.items()}

    def hotness(self) -> Hotness:
        """The hot functions under the base policy, and what their calls may save."""
        return self._hotness

    def _rollouts(self, requests: Mapping[int, Mapping[Site, int]]) -> dict[int, Rollout[ProfiledObject]]:
        return dict(sorted(rollouts(self._pool, self._modules, self._base, requests)))

    def _profiled(self, rollout: Rollout[ProfiledObject]) -> ProfiledModule:
        measured, weights = rollout.measurement, self._weights
        assert measured is not None
        inlined = [InlinedCall(site.caller, site.callee, count) for site, done, count in _calls(rollout) if done]
        return ProfiledModule.of(measured.sizes, measured.code, weights.costs, weights.profile, inlined)

    def _weighted(self, rollout: Rollout[ProfiledObject], profiled: ProfiledModule | None) -> ObjectSizes | None:
        """The object's sizes with the bytes that the functions' costs count as."""
        if rollout.measurement is None or profiled is None or self._costs is None:
            return None
        costs = self._costs.of(profiled)
        added = {name: round(cost * self._bytes_per_unit) for name, cost in costs.items()}
        return rollout.measurement.sizes.with_added(added)

    def _start(self, done: Mapping[int, Rollout[ProfiledObject]], profiled: Mapping[int, ProfiledModule]) -> None:
        """Takes from the base what a unit of cost counts as, what is hot, and what its calls may save."""
        costs: dict[str, float] = {}
        for each in profiled.values():
            for name, cost in each.call_costs.items():
                # Each copy of a shared function has the calls of all.
                costs[name] = max(costs.get(name, 0.0), cost * each.calls[name])
        total = sum(costs.values())
        if not total:
            raise CorpusError(
                f"{self._weights.profile.path}: expected functions of the program that ran, found none; make the "
                "profile from the same sources with the same LLVM"
            )
        self._bytes_per_unit = 100 * self._weights.bytes_per_percent * self._weights.own_share / total
        calls: dict[tuple[str, str], float] = {}
        for module in profiled:
            counts: collections.Counter[tuple[str, str]] = collections.Counter()
            for site, _, count in _calls(done[module]):
                counts[site.caller, site.callee] += count
            calls |= {pair: max(count, calls.get(pair, 0.0)) for pair, count in counts.items()}
        hot: set[str] = set()
        left = (1 - HOT_SHARE) * total
        for name, cost in sorted(costs.items(), key=lambda each: (each[1], each[0])):
            left -= cost
            if left < 0:
                hot.add(name)
        saved = _CALL_COST * self._bytes_per_unit
        self._hotness = Hotness(frozenset(hot), {pair: saved * count for pair, count in calls.items()})


def search_profiled(
    modules: Sequence[Module],
    pool: WorkerPool[ProfiledObject],
    toolchain: Toolchain,
    settings: SearchSettings,
    weights: CostWeights,
    *,
    name: str,
    folder: Path | None,
    identity: Mapping[str, str],
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> ProfiledSearch:
    """Searches, from the compiler's own decisions with the profile, for those that make a program fast.

    Args:
      modules: of the program, in link order.
      pool: a `profiled_pool` of the same weights.
      toolchain: the compiler; it must be able to load the plugin.
      settings: how to search.
      weights: what counts.
      name: the program's.
      folder: where the state is kept, from which a search that was interrupted continues; None for nowhere.
      identity: what must be the same to continue, besides program, compiler and settings.
      on_progress: called after each round.

    Raises:
      ConfigError: the folder has the state of another search.
      CorpusError: no module compiles, or nothing of them ran in the profile.
      ToolchainError: the compiler cannot load the plugin.
    """
    about = provenance(pool.task.decision.name, toolchain.version)
    compiler = ProfiledCompiler(pool, modules, weights)
    found = resumable_search(
        compiler,
        len(modules),
        settings,
        folder,
        {**identity_of(modules, settings, about), **identity},
        hotness=compiler.hotness,
        on_progress=on_progress,
    )
    about |= {"program": name, "search": {"compiles": sum(found.compiles.values()), "seed": settings.seed}}
    hot = compiler.hotness().functions
    return ProfiledSearch(
        decisions=Decisions(needed_decisions(found, base_is_default=True), about),
        outcome=found,
        hot_functions=len(hot or ()),
    )


def _calls(rollout: Rollout[ProfiledObject]) -> list[tuple[Site, bool, int]]:
    """The calls that were decided about, whether each was inlined, and how often it runs in the profile."""
    trajectory = rollout.trajectory
    if trajectory is None:
        return []
    # The plugin records call sites for an overriding policy.
    assert isinstance(trajectory.sites, CallSites)
    counts = trajectory.features()[CALLSITE_COUNT].reshape(-1)
    return list(zip(sites_of(trajectory.sites), trajectory.sites.inlined.tolist(), counts.tolist(), strict=True))
