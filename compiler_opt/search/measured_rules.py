"""Searches for rules of register allocation with which a program that runs costs less: one for each hot function.

What the register allocator decides in a function changes neither the code of another function nor how often any is
called. So what callgrind counts in a function depends on the rule in that function only. One run measures a rule in
every function at once, and the best rules of all functions can be put together, for their gains add up.

    measure the program as the compiler makes it
    search for one rule for all hot functions        mirrored pairs, around the best so far: two runs a pair
    search for one rule for each of them             the same, in all functions at once: two runs a pair
    measure the best rules together; keep what costs least, which may be the compiler's own decisions

Legend: P parameters of a rule.
"""

import dataclasses
import functools
import hashlib
import json
import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np

from compiler_opt.checked_values import NonNegativeInt
from compiler_opt.collect.workers import Job, WorkerPool
from compiler_opt.corpus.module import Module
from compiler_opt.errors import BenchmarkError, CompileError, ConfigError, ResourceError
from compiler_opt.files import write_checked_json
from compiler_opt.llvm.object_file import read_object_sizes
from compiler_opt.measure.attribution import Metric
from compiler_opt.measure.callgrind import Counts, Profile
from compiler_opt.policies.policy import Policy
from compiler_opt.policies.rule import Rule, RulesByFunction
from compiler_opt.search.saved_state import read_state

Run = Callable[[Mapping[int, Path]], Profile]
"""Links a program with other objects for some of its modules, and measures it; raises BenchmarkError if it is wrong."""

STATE_FILE = "measurements.json"
MIN_MEASUREMENTS = 7
"""The compiler's own decisions, one pair for all functions, one for each function, and two choices put together."""

_NUM_CHECKS = 2
_HOT_SHARE = 0.999
"""Functions are hot that execute this share of the program's own instructions together, the most costly first."""
_LONGER, _SHORTER = 1.5, 0.9
"""Factors of the length of steps after success and after failure: some one pair in five should succeed."""
_LONGEST = 4.0


@dataclasses.dataclass(frozen=True)
class RuleSearchSettings:
    """How long to search, and with which random numbers.

    Attributes:
      measurements: runs of the program at most, at least `MIN_MEASUREMENTS`; half of the pairs search for one rule.
      seed: of the sampled rules.
      step: standard deviation of the first steps, in units of each parameter's scale.
    """

    measurements: int = 40
    seed: int = 0
    step: float = 1.0

    def __post_init__(self) -> None:
        if self.measurements < MIN_MEASUREMENTS:
            raise ConfigError(f"measurements: expected at least {MIN_MEASUREMENTS}, found {self.measurements}")
        if not 0 < self.step <= _LONGEST:
            raise ConfigError(f"step: expected a number over 0, at most {_LONGEST:g}; found {self.step:g}")

    @property
    def pairs(self) -> tuple[int, int]:
        """Pairs of runs with one rule for all functions, and with one for each."""
        pairs = (self.measurements - 1 - _NUM_CHECKS) // 2
        return pairs - pairs // 2, pairs // 2


@dataclasses.dataclass(frozen=True)
class Costs:
    """What a run has cost.

    Attributes:
      total: of the run, with libraries.
      own: of the functions in the program's file.
      functions: of the hot functions that could be compiled, by symbol.
    """

    total: Counts
    own: Counts
    functions: Mapping[str, Counts]

    def replaced(self, functions: Mapping[str, Counts]) -> "Costs":
        """What a run costs in which these functions cost something else: the sum, not measured."""
        difference = Counts()
        for function, counts in functions.items():
            difference += counts - self.functions[function]
        return Costs(self.total + difference, self.own + difference, {**self.functions, **functions})


@dataclasses.dataclass(frozen=True)
class RuleSearch:
    """What a search has found.

    Attributes:
      rules: parameters by name for each function that has a rule; empty if the compiler's own decisions are best.
      plain: costs under the compiler's own decisions.
      best: costs with `rules`, measured.
      choices: costs by how the rules are chosen (see `ONE_RULE` and the following), some of them sums.
      rules_tried: in all functions at once.
      measurements: runs that this is the result of, those of an earlier call that it continues included.
      failures: why runs have no costs, one line each.
      hot_functions: in which rules were tried.
      changed_functions: those of them in which a rule changed the instructions, loads or stores.
      hot_modules: that were compiled with rules.
    """

    rules: Mapping[str, Mapping[str, float]]
    plain: Costs
    best: Costs
    choices: Mapping[str, Costs]
    rules_tried: int
    measurements: int
    failures: Sequence[str]
    hot_functions: int
    changed_functions: int
    hot_modules: int


ONE_RULE = "one rule"
"""The best of the rules that were tried in all functions; measured."""
RULE_BY_MODULE = "one of these for each module"
"""The best of the same rules for each module; measured."""
RULE_BY_FUNCTION = "one of these for each function"
"""The best of the same rules for each function; a sum."""
OWN_RULES_SUM = "own rule for each function, as a sum"
OWN_RULES = "own rule for each function"
"""The best rule that was found for each function; measured."""


Measurement = Costs | str
"""What a run has cost, or why that is not known."""


class MirroredSearch:
    """Searches for one rule for some functions: a (1+2) evolution strategy with mirrored sampling.

    Each pair of candidates is the best rule so far, moved along a random direction and against it (Brockhoff et al.
    2010). Measurements are exact, so whatever is better is kept. Steps get longer after success, and where neither
    candidate changes anything; otherwise shorter (Rechenberg's one-fifth rule, 1973).

    Attributes:
      functions: that the rule is for.
      best: `[P]`, the best parameters; None as long as none is better than the compiler's own decisions.
      costs: of a run with the best, or with these decisions.
    """

    def __init__(self, functions: Sequence[str], plain: Costs, rule: Rule, metric: Metric, step: float = 1.0):
        self.functions, self.costs = functions, plain
        self.best: np.ndarray | None = None
        self._start, self._scale, self._step, self._metric = rule.start(), rule.scale(), step, metric

    def score(self, measurement: Measurement) -> tuple[float, float]:
        """The metric of the functions, and their instructions, which break ties; infinity if they were not measured."""
        if isinstance(measurement, str) or any(name not in measurement.functions for name in self.functions):
            return math.inf, math.inf
        return _score([measurement.functions[name] for name in self.functions], self._metric)

    def candidates(self, rng: np.random.Generator) -> np.ndarray:
        """Two rules, `[2, P]`."""
        centre = self._start if self.best is None else self.best
        offset = self._step * self._scale * rng.standard_normal(len(centre))
        return np.stack([centre + offset, centre - offset])

    def offer(self, values: np.ndarray, measurement: Measurement) -> bool:
        """Keeps a rule `[P]` if it is better than the best; returns whether it is."""
        if isinstance(measurement, str) or self.score(measurement) >= self.score(self.costs):
            return False
        self.best, self.costs = values, measurement
        return True

    def tell(self, candidates: np.ndarray, pair: Sequence[Measurement]) -> None:
        """Keeps the better of two candidates `[2, P]` if it is better than the best, and adapts the step."""
        changes_nothing = all(self.score(each) == self.score(self.costs) for each in pair)
        succeeds = [self.offer(*each) for each in zip(candidates, pair, strict=True)]
        self._step = min(_LONGEST, self._step * (_LONGER if any(succeeds) or changes_nothing else _SHORTER))


Rules = Mapping[str, np.ndarray]
"""Parameters `[P]` by function; functions without any are left to the compiler."""


_Either = TypeVar("_Either", Costs, str)


class MeasuredRules:
    """Measures a program under rules by function, and remembers what it has measured, in a file.

    Attributes:
      used: what this object has returned, by rules.
    """

    def __init__(
        self,
        modules: Sequence[Module],
        pool: WorkerPool,
        run: Run,
        is_own: Callable[[str], bool],
        folder: Path,
        scratch: Path,
        identity: Mapping[str, str],
    ):
        """See `search_rules`.

        Raises:
          ConfigError: the problem has no rule, or the folder has the measurements of another program.
        """
        problem = pool.problem
        if problem.rule is None or problem.default_policy is None:
            raise ConfigError(f"{problem.name}: has no rule whose parameters could be searched for")
        self.rule: Rule = problem.rule
        self._default: Policy = problem.default_policy
        self._modules, self._pool, self._run, self._is_own, self._scratch = modules, pool, run, is_own, scratch
        self.used: dict[str, Measurement] = {}
        self._path = folder / STATE_FILE
        state = read_state(self._path, _State, identity)
        self._state = _State(1, dict(identity), {}, {}) if state is None else state

    @functools.cached_property
    def plain(self) -> Costs:
        """Under the compiler's own decisions.

        Raises:
          BenchmarkError: the program is wrong.
          CompileError: a module does not compile.
        """
        known = self._known("")
        if isinstance(known, Costs):
            return known
        profile = self._run(self._plain_objects)
        defining = self._defining_modules()
        self._state.homes = {function: sorted(defining[function]) for function in self._hot(profile, defining)}
        return self._remember("", self._costs(profile, self._state.homes))

    @property
    def homes(self) -> Mapping[str, Sequence[int]]:
        """The modules that define each hot function; of a COMDAT function the first, whose copy a linker keeps."""
        return self._state.homes

    def measure(self, rules: Rules) -> Measurement:
        """Under rules; if there are no costs, the reason: the program does not run as it should.

        Functions of modules that do not compile under the rules have no costs, and are as the compiler makes them.
        """
        plain = self.plain
        if not rules:
            return plain
        key = hashlib.sha256(json.dumps({name: rules[name].tolist() for name in sorted(rules)}).encode()).hexdigest()
        known = self._known(key)
        if known is not None:
            return known
        objects = dict(self._plain_objects)
        failed: set[int] = set()
        for module, path in self._compiled(rules).items():
            if path is None:
                failed.add(module)
            else:
                objects[module] = path
        compiled = [name for name in plain.functions if not (name in rules and failed.intersection(self.homes[name]))]
        try:
            return self._remember(key, self._costs(self._run(objects), compiled))
        except BenchmarkError as error:
            return self._remember(key, str(error))

    @functools.cached_property
    def _plain_objects(self) -> dict[int, Path]:
        found = self._compile(dict.fromkeys(range(len(self._modules))), "plain")
        for module, path in found.items():
            if path is None:
                raise CompileError(f"{self._modules[module].name}: cannot be compiled as its corpus says")
        objects = {module: path for module, path in sorted(found.items()) if path is not None}
        if self._known("") is not None:
            # Also in a search that continues, the program that runs first is the one that the others must agree with.
            self._run(objects)
        return objects

    def _defining_modules(self) -> dict[str, set[int]]:
        defining: dict[str, set[int]] = {}
        for module, path in self._plain_objects.items():
            sizes = read_object_sizes(path)
            for name in sizes.functions:
                if name not in sizes.function_comdats or name not in defining:
                    defining.setdefault(name, set()).add(module)
        return defining

    def _hot(self, profile: Profile, defined: Container[str]) -> list[str]:
        own = {f.symbol: counts.instructions for f, counts in profile.functions.items() if self._is_own(f.object)}
        left = _HOT_SHARE * sum(own.values())
        hot = []
        for symbol in sorted(own, key=lambda each: (-own[each], each)):
            if left <= 0:
                break
            left -= own[symbol]
            # The others are code that is linked with the modules.
            if symbol in defined:
                hot.append(symbol)
        if not hot:
            raise BenchmarkError(
                "expected that the program runs functions of its modules, found none among those "
                "that are hot; give a benchmark that calls them"
            )
        return hot

    def _costs(self, profile: Profile, functions: Iterable[str]) -> Costs:
        own, by_symbol = Counts(), dict.fromkeys(functions, Counts())
        for function, counts in profile.functions.items():
            if self._is_own(function.object):
                own += counts
                if function.symbol in by_symbol:
                    by_symbol[function.symbol] += counts
        return Costs(profile.total, own, by_symbol)

    def _compiled(self, rules: Rules) -> dict[int, Path | None]:
        by_module: dict[int, dict[str, np.ndarray]] = {}
        for function, values in rules.items():
            for module in self.homes[function]:
                by_module.setdefault(module, {})[function] = values
        policies = {m: RulesByFunction(self.rule, values, self._default) for m, values in by_module.items()}
        return self._compile(policies, "changed")

    def _compile(self, policies: Mapping[int, Policy | None], folder: str) -> dict[int, Path | None]:
        """Objects by module; None for one that does not compile."""
        numbers = {self._modules[module].name: module for module in policies}
        jobs = (
            Job(self._modules[module], policy, keep_object=self._scratch / folder / f"{module}.o")
            for module, policy in policies.items()
        )
        found: dict[int, Path | None] = {}
        for job, rollout in self._pool.rollouts(jobs):
            if rollout.is_transient:
                raise ResourceError(rollout.failure or job.module.name)
            found[numbers[job.module.name]] = None if rollout.failure is not None else job.keep_object
        return found

    def _known(self, key: str) -> Measurement | None:
        if key in self._state.measurements:
            self.used[key] = self._state.measurements[key]
        return self.used.get(key)

    def _remember(self, key: str, measurement: _Either) -> _Either:
        self._state.measurements[key] = self.used[key] = measurement
        write_checked_json(self._path, dataclasses.asdict(self._state))
        return measurement


@dataclasses.dataclass
class _State:
    """The measurements, by the rules; those under the compiler's own decisions have the key ''."""

    format: Literal[1]
    identity: dict[str, str]
    homes: dict[str, list[NonNegativeInt]]
    measurements: dict[str, Measurement]


def search_rules(
    modules: Sequence[Module],
    pool: WorkerPool,
    run: Run,
    metric: Metric,
    is_own: Callable[[str], bool],
    settings: RuleSearchSettings,
    *,
    folder: Path,
    scratch: Path,
    identity: Mapping[str, str],
    on_measured: Callable[[float], None] = lambda change: None,
) -> RuleSearch:
    """Searches for the rules with which a program costs least, see the module's docstring.

    Args:
      modules: of the program, in link order.
      pool: workers for a problem of register allocation that has a rule.
      run: measures the program with an object for each module; the first time as the compiler makes it.
      metric: what is to be made less; of two rules with the same, the one with fewer instructions is better.
      is_own: whether an object file, by its path in a profile, is the program, and not a library.
      settings: how to search.
      folder: where measurements are kept, from which a search that was interrupted continues.
      scratch: folder for objects.
      identity: what must be the same to continue: program, compiler, benchmark.
      on_measured: called after each pair of measurements with the best relative change so far; -0.01 is one percent
        less.

    Raises:
      BenchmarkError: the program is wrong as it is, or runs nothing of its modules.
      CompileError: a module does not compile as it is.
      ConfigError: the folder has the measurements of another program, or the problem has no rule.
      ResourceError: memory or disk ran out.
    """
    measured = MeasuredRules(modules, pool, run, is_own, folder, scratch, _identity(modules, identity))
    plain, rng = measured.plain, np.random.default_rng(settings.seed)
    hot = sorted(plain.functions)

    def search(functions: Sequence[str]) -> MirroredSearch:
        return MirroredSearch(functions, plain, measured.rule, metric, settings.step)

    def report(searches: Iterable[MirroredSearch]) -> None:
        saved = sum(each.score(plain)[0] - each.score(each.costs)[0] for each in searches)
        on_measured(-saved / max(1, metric(plain.own)))

    in_module: dict[int, list[str]] = {}
    for function in hot:
        in_module.setdefault(measured.homes[function][0], []).append(function)
    everywhere = search(hot)
    module_searches = [search(functions) for functions in in_module.values()]
    function_searches = {function: search([function]) for function in hot}
    num_shared, num_own = settings.pairs
    for _ in range(num_shared):
        candidates = everywhere.candidates(rng)
        pair = [measured.measure(dict.fromkeys(hot, values)) for values in candidates]
        everywhere.tell(candidates, pair)
        for each in (*module_searches, *function_searches.values()):
            for values, measurement in zip(candidates, pair, strict=True):
                each.offer(values, measurement)
        report([everywhere])
    sums = {RULE_BY_FUNCTION: _sum(plain, function_searches.values())}
    for _ in range(num_own):
        own = {function: each.candidates(rng) for function, each in function_searches.items()}
        pair = [measured.measure({function: own[function][side] for function in hot}) for side in range(2)]
        for function, each in function_searches.items():
            each.tell(own[function], pair)
        report(function_searches.values())
    sums[OWN_RULES_SUM] = _sum(plain, function_searches.values())

    rules: Rules = {}
    best, choices = plain, {}
    for name, searches in (
        (ONE_RULE, [everywhere]),
        (RULE_BY_MODULE, module_searches),
        (OWN_RULES, list(function_searches.values())),
    ):
        chosen = {function: each.best for each in searches if each.best is not None for function in each.functions}
        measurement = measured.measure(chosen)
        if isinstance(measurement, str):
            continue
        choices[name] = measurement
        if _score([measurement.own], metric) < _score([best.own], metric):
            rules, best = chosen, measurement
    return RuleSearch(
        rules={function: measured.rule.named(values) for function, values in rules.items()},
        plain=plain,
        best=best,
        choices={**choices, **sums},
        rules_tried=2 * num_shared,
        measurements=len(measured.used),
        failures=[each for each in measured.used.values() if isinstance(each, str)],
        hot_functions=len(hot),
        changed_functions=sum(_changes(function, plain, measured.used.values()) for function in hot),
        hot_modules=len(in_module),
    )


def _score(counts: Sequence[Counts], metric: Metric) -> tuple[int, int]:
    return sum(map(metric, counts)), sum(each.instructions for each in counts)


def _changes(function: str, plain: Costs, measurements: Iterable[Measurement]) -> bool:
    def work(counts: Counts) -> tuple[int, int, int]:
        return counts.instructions, counts.reads, counts.writes

    return any(
        work(each.functions.get(function, plain.functions[function])) != work(plain.functions[function])
        for each in measurements
        if isinstance(each, Costs)
    )


def _sum(plain: Costs, searches: Iterable[MirroredSearch]) -> Costs:
    """The costs if each search's functions cost what they do with its best rule."""
    return plain.replaced({name: each.costs.functions[name] for each in searches for name in each.functions})


def _identity(modules: Sequence[Module], identity: Mapping[str, str]) -> dict[str, str]:
    digest = hashlib.sha256()
    for module in modules:
        digest.update(module.content_digest())
    return {**identity, "program": digest.hexdigest()[:16]}
