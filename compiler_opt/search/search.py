"""Searches for the inlining decisions that make a linked program small.

compile all modules under the base policy, and with nothing inlined; take the smaller of each component
until the budget is spent, or no move is left:
    plan: the most promising untried moves that touch no common unit; compile the modules in which they are, those first
    that promise most in a compile or, if time is limited, in a second
    keep the components of these builds that save linked bytes
    now and then, confirm: compile what has been composed; what turns out larger than in the last confirmed state is
    taken back

The result is the best state that was compiled as it is. The search is deterministic for a seed, unless it is stopped
by time.
"""

import collections
import dataclasses
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from compiler_opt.errors import CorpusError
from compiler_opt.policies.decisions import Site
from compiler_opt.search.builds import Build, Caller, Compiled, Compiler, build_of, comdat_groups
from compiler_opt.search.moves import Hotness, Move, MoveMaker
from compiler_opt.search.planning import Plan, plan
from compiler_opt.search.program import Component, Program, compare
from compiler_opt.search.saved_state import SavedState, pins_from
from compiler_opt.search.search_outcome import Progress, SearchOutcome
from compiler_opt.search.untried import UntriedMoves

_CONFIRM_ATTEMPTS = 3
_MAX_SHARE = 8
"""A module gets at most this many times the compiles of the average one."""


@dataclasses.dataclass(frozen=True)
class SearchSettings:
    """How to search.

    Attributes:
      budget: compiles a module, on the average; a search may end with fewer.
      max_minutes: wall-clock limit; None for none. With one, modules that compile quickly come earlier.
      seed: of random moves.
      max_moves: tried in one compile of a module; 1 tries one at a time.
      kinds: of moves (see `Move`), from which a search chooses.
      confirm_after: compiles for each module that awaits confirmation, until it is confirmed.
      min_modules: compiled at a time, if there are moves for them: as many as there are CPUs.
    """

    budget: float = 100
    max_minutes: float | None = None
    seed: int = 0
    max_moves: int = 64
    kinds: tuple[str, ...] = ("call", "callee", "caller", "default", "free", "exposed", "pair")
    confirm_after: float = 4.0
    min_modules: int = 2


class Search:
    """One search; `run` does all of it.

    Attributes:
      has_started: whether the first states are compiled.
    """

    def __init__(
        self,
        compiler: Compiler,
        num_modules: int,
        settings: SearchSettings = SearchSettings(),
        *,
        other_starts: Sequence[Compiler] = (),
        hotness: Callable[[], Hotness] | None = None,
        on_progress: Callable[[Progress], None] = lambda progress: None,
        resume: SavedState | None = None,
    ):
        """Compiles nothing yet.

        Args:
          compiler: decides as the base policy where it is given no decision.
          num_modules: of the program.
          settings: how to search.
          other_starts: compilers with other base policies, from whose builds the search takes what is smaller.
          hotness: where the program spends its time, once it is compiled under the base policy. The search then
            changes only what is hot, and does not start from what is smaller with nothing inlined.
          on_progress: called after each round; `state` then has all that is needed to resume.
          resume: an earlier search, which is continued. What it had compiled is compiled again, but not counted again.
        """
        self.has_started = False
        self._compiler = compiler
        self._num_modules = num_modules
        self._settings = settings
        self._other_starts = other_starts
        self._hotness = hotness
        self._on_progress = on_progress
        self._resumed = resume
        state = resume or SavedState()
        self._limits: dict[int, int] = dict(state.limits)
        self._compiles = collections.Counter(state.compiles)
        self._cpu_s = state.cpu_s
        self._curve = [Progress(*each) for each in state.curve]
        self._round = state.round
        self._program = Program(())
        self._others: list[Program] = []
        self._groups: dict[str, str] = {}
        self._failures: dict[int, str] = {}
        self._compile_s: dict[int, float] = {}
        self._unpinned: frozenset[Caller] = frozenset()
        self._since_confirmed = 0
        self._kept: list[Move] = []

    def run(self) -> SearchOutcome:
        """Searches until the budget or the time is spent, or nothing is left to try.

        Raises:
          CorpusError: no module compiles.
        """
        started_s = time.monotonic()
        self._start()
        limit_s = None if self._settings.max_minutes is None else 60 * self._settings.max_minutes
        budget = self._settings.budget * len(self._base.builds)
        while limit_s is None or time.monotonic() < started_s + limit_s:
            waiting = len(self._program.inexact)
            left = budget - self._compiles.total() - 2 * waiting
            if self._since_confirmed >= self._settings.confirm_after * waiting > 0:
                self._confirm()
                continue
            chosen = self._plan(left) if left > 0 else None
            if chosen is None or not chosen.moves:
                if not waiting:
                    break
                self._confirm()
                continue
            self._try(chosen)
            self._report()
        if self._program.inexact:
            self._confirm()
        self._report()
        return SearchOutcome(
            self._base, self._best, self._others, self._compiles, self._cpu_s, self._curve, self._failures
        )

    def _compile(
        self, requests: Mapping[int, Mapping[Site, int]], compiler: Compiler | None = None
    ) -> dict[int, Compiled]:
        """Compiles modules; those that fail are missing from the result."""
        found = {}
        for module, compiled in sorted((compiler or self._compiler).compile(requests).items()):
            self._compiles[module] += not self._is_restoring
            if isinstance(compiled, str):
                self._failures.setdefault(module, compiled)
            else:
                self._cpu_s += 0.0 if self._is_restoring else compiled.cpu_s
                self._compile_s[module] = compiled.cpu_s
                found[module] = compiled
        return found

    @property
    def _is_restoring(self) -> bool:
        """Whether the state of an earlier search is being built again."""
        return self._resumed is not None and not self.has_started

    def _build(self, compiled: Mapping[int, Compiled]) -> dict[int, Build]:
        builds = {}
        for module, each in compiled.items():
            previous = self._program.builds[module].calls if module in self._program.builds else {}
            build = build_of(each, module, self._groups, previous)
            if not self._unpinned.isdisjoint(build.calls):
                kept = {caller: calls for caller, calls in build.calls.items() if caller not in self._unpinned}
                build = dataclasses.replace(build, calls=kept)
            builds[module] = build
        return builds

    def _start(self) -> None:
        """The first states: those of the base, without inlining, and of other policies, or that of the saved search."""
        base = self._compile({module: {} for module in range(self._num_modules)})
        if not base:
            raise CorpusError(f"no module compiles; the first: {next(iter(self._failures.values()), 'there is none')}")
        excluded = dict(self._failures)
        nothing = {m: dict.fromkeys(compiled.sites, 0) for m, compiled in base.items()}
        without = self._compile(nothing) if self._hotness is None else {}
        self._groups = {**comdat_groups(without.values()), **comdat_groups(base.values())}
        sizes: dict[str, int] = {}
        for compiled in (*base.values(), *without.values()):
            sizes.update(compiled.sizes.functions)
        maker = MoveMaker(sizes, Hotness() if self._hotness is None else self._hotness())
        self._untried = UntriedMoves(maker, self._settings.kinds, self._resumed or SavedState())
        self._base = Program(self._build(base).values())
        if self._hotness is not None:
            # Decisions that the default takes differently in other modules cannot be pinned for all of them.
            self._unpinned = self._base.differing_callers()
            self._base = Program(self._build(base).values())
        self._best = self._base.copy()
        self._program = self._base.copy()
        self._limits = {m: self._limits.get(m, self._settings.max_moves) for m in base}
        starts = [self._build(without)]
        # Where costs are measured, nothing is compared with the other starts later, and they are expensive.
        is_needed = self._resumed is None or self._hotness is None
        for compiler in self._other_starts if is_needed else ():
            starts.append(self._build(self._compile({m: {} for m in base}, compiler)))
            self._others.append(Program(starts[-1].values()))
        if self._resumed is not None:
            for saved in (self._resumed.best, self._resumed.current):
                pins = pins_from(saved)
                self._adopt_whole(self._build(self._compile({m: self._pinned(m, pins) for m in base})))
                self._since_confirmed = 0
                self._confirm()
        else:
            for start in starts:
                self._adopt(start, compare(self._program, start)[0])
        self._failures = excluded
        self.has_started = True
        self._confirm()
        self._report()

    def _pinned(self, module: int, pins: Mapping[str, Sequence[tuple[Site, int]]]) -> dict[Site, int]:
        return {site: advice for name in self._base.builds[module].by_name for site, advice in pins.get(name, ())}

    def _plan(self, left: float) -> Plan:
        generator = random.Random(self._settings.seed * 1_000_003 + self._round)
        candidates: list[tuple[float, Move]] = []
        limits = {}
        for module in self._program.builds:
            if self._compiles[module] >= _MAX_SHARE * self._settings.budget:
                continue
            limits[module] = self._limits[module]
            candidates += self._untried.of_module(self._program, module, generator, limits[module])
        most = max(1, int(left))
        return plan(
            self._program,
            candidates,
            limits,
            min_modules=self._settings.min_modules,
            max_modules=most,
            seconds={} if self._settings.max_minutes is None else self._compile_s,
        )

    def _try(self, chosen: Plan) -> None:
        """Compiles with all moves of a plan, and keeps what saves bytes."""
        self._round += 1
        flips: dict[int, dict[Site, int]] = {module: {} for module in chosen.compiled()}
        for move, modules in chosen.pairs():
            for module in modules:
                flips[module].update(move.flips)
        freed = {m: set().union(*(move.freed for move, modules in chosen.pairs() if m in modules)) for m in flips}
        compiled = self._compile({m: {**self._program.decisions(m, freed[m]), **flips[m]} for m in flips})
        trial = self._build(compiled)
        # Moves after the point where LLVM stopped to decide were not tried.
        cut = {m for m, build in trial.items() if build.is_cut and not self._program.builds[m].is_cut}
        reached = {m: {(site.caller, site.body) for site in compiled[m].sites} for m in cut}
        tried = [
            (move, modules)
            for move, modules in chosen.pairs()
            if all(move.callers <= reached[m] for m in modules & cut)
        ]
        # A move that makes LLVM stop by itself cannot be tried; others wait for a trial with fewer moves.
        counts = collections.Counter(module for modules in chosen.modules for module in modules)
        alone = [move for move, modules in chosen.pairs() if any(counts[m] == 1 for m in modules & cut)]
        self._untried.mark_tried((*alone, *(move for move, _ in tried)))
        self._since_confirmed += len(flips)
        for module in (flips.keys() - trial.keys()) | cut:
            self._limits[module] = max(1, self._limits[module] // 2)
        measured = [move for move, modules in tried if modules <= trial.keys()]
        components, leftover = compare(self._program, trial)
        self._untried.learn(measured, components, self._program, trial)
        kept = frozenset(caller for each in components if each.saved_bytes > 0 for caller in each.callers)
        self._kept += [move for move in measured if not move.callers.isdisjoint(kept)]
        inexact = {module: build for module, build in trial.items() if not self._program.builds[module].is_exact}
        self._adopt(trial, components)
        if leftover and inexact:
            # The new builds correct what was composed before.
            self._program.adopt(inexact, [Component(frozenset(), leftover, 0, {})])
        self._note_best()

    def _note_best(self) -> None:
        if not self._program.inexact and self._program.linked_bytes < self._best.linked_bytes:
            self._best = self._program.copy()

    def _adopt(self, trial: Mapping[int, Build], components: Iterable[Component]) -> None:
        """Takes the components that save bytes."""
        kept = [component for component in components if component.saved_bytes > 0]
        self._program.adopt(trial, kept)
        for component in kept:
            self._untried.mark_changed(component)

    def _adopt_whole(self, builds: Mapping[int, Build]) -> None:
        self._program.adopt(builds, (), whole=True)

    def _confirm(self) -> None:
        """Compiles the state as it is; takes back what is larger than in the best confirmed one."""
        for _ in range(_CONFIRM_ATTEMPTS):
            modules = self._program.inexact
            before = {module: self._program.builds[module] for module in modules}
            built = self._build(self._compile({module: self._program.decisions(module) for module in modules}))
            self._adopt_whole(built)
            for module in before.keys() - built.keys():
                self._adopt_whole({module: self._best.builds[module]})
            self._adapt_limits(before, built)
            if self._program.inexact:
                continue
            old = self._best
            different = {
                module: build for module, build in self._program.builds.items() if build is not old.builds[module]
            }
            worse = [component for component in compare(old, different)[0] if component.saved_bytes < 0]
            self._note_best()
            if not worse:
                break
            self._program.adopt(
                {module: old.builds[module] for module in different}, [component.reverse() for component in worse]
            )
            # Otherwise the same moves would be tried, kept and taken back again.
            taken_back = frozenset(caller for component in worse for caller in component.callers)
            self._untried.mark_tried(move for move in self._kept if not move.callers.isdisjoint(taken_back))
        if self._program.inexact or self._program.linked_bytes > self._best.linked_bytes:
            self._program = self._best.copy()
        self._since_confirmed = 0
        self._kept.clear()
        self._report()

    def _adapt_limits(self, composed: Mapping[int, Build], built: Mapping[int, Build]) -> None:
        """Fewer moves at once in modules whose composed sizes were wrong, more where they were right."""
        for module, build in built.items():
            expected, units = composed[module].units, build.units
            old = self._best.builds[module].units
            wrong = sum(abs(expected.get(u, 0) - units.get(u, 0)) for u in expected.keys() | units.keys())
            moved = sum(abs(old.get(u, 0) - units.get(u, 0)) for u in old.keys() | units.keys())
            factor = 0.5 if wrong > 0.25 * moved + 16 else 1.5
            self._limits[module] = max(4, min(self._settings.max_moves, round(self._limits[module] * factor)))
            self._limits[module] = min(self._limits[module], self._settings.max_moves)

    def _report(self) -> None:
        if self._is_restoring:
            return
        self._curve.append(
            Progress(
                self._compiles.total(),
                self._cpu_s,
                self._base.linked_bytes,
                self._program.linked_bytes,
                self._best.linked_bytes,
            )
        )
        self._on_progress(self._curve[-1])

    def state(self) -> SavedState:
        """All that is needed to resume the search, once it `has_started`."""
        return SavedState(
            round=self._round,
            best=self._best.all_decisions(),
            current=self._program.all_decisions(),
            expectations=self._untried.expectations.to_json(),
            tried=self._untried.tried,
            versions=self._untried.versions,
            limits=self._limits,
            compiles=self._compiles,
            cpu_s=self._cpu_s,
            curve=[dataclasses.astuple(each) for each in self._curve],
        )
