"""Rules of eviction by measured cost: the choice, which costs add up, and what an interrupted search keeps."""

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from compiler_opt.collect.rollout import Rollout
from compiler_opt.collect.workers import Job, WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.errors import BenchmarkError, ConfigError
from compiler_opt.llvm import processes
from compiler_opt.llvm.toolchain import Toolchain, probe
from compiler_opt.measure.benchmark import Benchmark, Reference
from compiler_opt.measure.callgrind import Counts, Profile
from compiler_opt.problems import problem as problems
from compiler_opt.problems.regalloc_eviction.rules import EvictionRule
from compiler_opt.search.measured_rules import (
    ONE_RULE,
    OWN_RULES,
    OWN_RULES_SUM,
    RULE_BY_FUNCTION,
    RULE_BY_MODULE,
    STATE_FILE,
    Costs,
    MirroredSearch,
    RuleSearch,
    RuleSearchSettings,
    search_rules,
)
from tests.small_corpus import make_busy_corpus

CLANG = "/usr/bin/clang-22"
PROBLEM = problems.load("regalloc_eviction")
SETTINGS = RuleSearchSettings(measurements=11, seed=3, step=2.0)
FUNCTIONS = {"called", "again", "alone", "sums", "more", "looped", "summed"}
MAIN = """
#include <stdio.h>
int called(int *, int, int *, int *, int *), again(int *, int, int *, int *, int *);
int alone(int *, int, int *, int *, int *), looped(int *, int, int *, int *, int *);
long sums(const long *, long), more(const long *, long), summed(const long *, long);
int use(int *p) { return *p; }
int main(void) {
  int a[99] = {1, 2, 3}, b[99] = {4, 5}, c[99] = {6}, d[99] = {7};
  long p[11] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, s = sums(p, 500) + more(p, 300) + summed(p, 200);
  for (int i = 0; i < 20; i++) {
    s += called(a, 90, b, c, d) + again(a, 80, b, c, d) + alone(a, 70, b, c, d) + looped(a, 60, b, c, d);
  }
  printf("%ld\\n", s);
}
"""


class _Program:
    """Links `MAIN` with objects, and measures it; counts how often."""

    def __init__(self, toolchain: Toolchain, folder: Path):
        folder.mkdir()
        self.path = folder.resolve() / "program"
        self.runs = 0
        self._clang = str(toolchain.clang)
        self._main = folder / "main.c"
        self._main.write_text(MAIN)
        self._benchmark = Benchmark.of(["./program"])
        self._reference: Reference | None = None

    def __call__(self, objects: Mapping[int, Path]) -> Profile:
        command = [self._clang, "-O2", str(self._main), *map(str, objects.values()), "-o", str(self.path)]
        assert processes.run(command, timeout_s=60).ok
        if self._reference is None:
            self._reference = self._benchmark.reference(self.path.parent)
        self.runs += 1
        return self._benchmark.measure(self.path.parent, self._reference)

    def is_own(self, file: str) -> bool:
        return file == str(self.path)


@dataclasses.dataclass(frozen=True)
class _Setting:
    """What all searches share."""

    toolchain: Toolchain
    corpus: Corpus
    pool: WorkerPool
    folder: Path


def _accesses(counts: Counts) -> int:
    return counts.accesses


def _search(setting: _Setting, program: _Program, folder: Path, pool: WorkerPool | None = None) -> RuleSearch:
    folder.mkdir(exist_ok=True)
    (folder / "scratch" / "plain").mkdir(parents=True, exist_ok=True)
    return search_rules(
        setting.corpus.modules,
        pool or setting.pool,
        program,
        _accesses,
        program.is_own,
        SETTINGS,
        folder=folder,
        scratch=folder / "scratch",
        identity={"compiler": setting.toolchain.version_text},
    )


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Setting]:
    toolchain, folder = probe(CLANG), tmp_path_factory.mktemp("rules")
    (folder / "corpus").mkdir()
    with WorkerPool(toolchain, PROBLEM, num_workers=1) as pool:
        yield _Setting(toolchain, make_busy_corpus(folder / "corpus", CLANG), pool, folder)


@pytest.fixture(scope="module")
def found(setting: _Setting) -> RuleSearch:
    return _search(setting, _Program(setting.toolchain, setting.folder / "first"), setting.folder / "search")


def _measurements(folder: Path) -> list[dict[str, dict[str, dict[str, int]]]]:
    """The plain run first, then in the order in which they were made."""
    return list(json.loads((folder / STATE_FILE).read_text())["measurements"].values())


def test_what_functions_cost_adds_up(found: RuleSearch) -> None:
    assert set(found.plain.functions) == FUNCTIONS
    assert found.hot_modules == 4
    together, measured = found.choices[OWN_RULES_SUM], found.choices[OWN_RULES]
    # All functions have rules of their own, measured in different runs: the sums are exact.
    for name in ("instructions", "reads", "writes"):
        assert getattr(measured.own, name) == getattr(together.own, name)
        assert getattr(measured.total, name) == getattr(together.total, name)


def test_each_choice_is_at_least_as_good_as_the_one_before(found: RuleSearch) -> None:
    names = (ONE_RULE, RULE_BY_MODULE, RULE_BY_FUNCTION, OWN_RULES)
    costs = [found.choices[name].own.accesses for name in names if name in found.choices]
    assert costs == sorted(costs, reverse=True)
    assert found.best.own.accesses == costs[-1] < found.plain.own.accesses
    assert found.rules.keys() <= FUNCTIONS
    assert all(values.keys() == {each.name for each in EvictionRule.parameters} for values in found.rules.values())


def test_no_function_costs_more_than_before(found: RuleSearch) -> None:
    for function, counts in found.best.functions.items():
        assert counts.accesses <= found.plain.functions[function].accesses


def test_the_choice_for_each_module_is_the_best_of_the_runs(found: RuleSearch, setting: _Setting) -> None:
    """A second, obvious implementation, from the file of measurements."""
    plain, *runs = _measurements(setting.folder / "search")
    modules = [{"called", "again"}, {"alone"}, {"sums", "more"}, {"looped", "summed"}]

    def cost(run: dict[str, dict[str, dict[str, int]]], functions: set[str]) -> int:
        return sum(run["functions"][name]["reads"] + run["functions"][name]["writes"] for name in functions)

    shared = [plain, *runs[: found.rules_tried]]
    expected = sum(min(cost(run, functions) for run in shared) for functions in modules)
    chosen = found.choices[RULE_BY_MODULE]
    assert sum(chosen.functions[name].accesses for name in FUNCTIONS) == expected


def test_it_counts_the_functions_that_rules_change(found: RuleSearch, setting: _Setting) -> None:
    runs = [run["functions"] for run in _measurements(setting.folder / "search")]
    events = ("instructions", "reads", "writes")
    seen = {name: {tuple(run[name][event] for event in events) for run in runs} for name in FUNCTIONS}
    assert found.changed_functions == sum(len(each) > 1 for each in seen.values())


def test_it_keeps_to_its_measurements(found: RuleSearch) -> None:
    # The plain run, two pairs with one rule, two with one for each function, and two choices put together.
    assert SETTINGS.pairs == (2, 2)
    assert found.rules_tried == 4
    assert found.measurements <= 11
    assert found.failures == []


def test_an_interrupted_search_continues_and_finds_the_same(found: RuleSearch, setting: _Setting) -> None:
    class Interrupted(_Program):
        def __call__(self, objects: Mapping[int, Path]) -> Profile:
            if self.runs == 4:
                raise KeyboardInterrupt
            return super().__call__(objects)

    folder = setting.folder / "interrupted"
    # Where a program lies changes what its start costs.
    program = Interrupted(setting.toolchain, setting.folder / "again")
    with pytest.raises(KeyboardInterrupt):
        _search(setting, program, folder)
    rest = _Program(setting.toolchain, setting.folder / "other")
    rest.path = program.path
    continued = _search(setting, rest, folder)
    # The plain program runs again, as the one that the others must agree with.
    assert (program.runs, program.runs + rest.runs) == (4, found.measurements + 1)
    assert continued.rules == found.rules
    assert continued.best.functions.keys() == found.best.functions.keys()
    for name, counts in continued.best.functions.items():
        assert (counts.instructions, counts.accesses) == (
            found.best.functions[name].instructions,
            found.best.functions[name].accesses,
        )
    done = _Program(setting.toolchain, setting.folder / "done")
    assert _search(setting, done, folder) == continued
    assert done.runs == 0


@pytest.mark.slow
def test_a_module_that_does_not_compile_under_rules_stays_as_it_is(setting: _Setting, tmp_path: Path) -> None:
    class Failing(WorkerPool):
        def rollouts(self, jobs: Iterable[Job | None]) -> Iterator[tuple[Job, Rollout]]:
            for job, rollout in super().rollouts(jobs):
                fails = job.policy is not None and job.module.name == "mixed/sums.c.o"
                yield job, dataclasses.replace(rollout, failure="ran out of registers") if fails else rollout

    with Failing(setting.toolchain, PROBLEM, num_workers=1) as pool:
        result = _search(setting, _Program(setting.toolchain, tmp_path / "program"), tmp_path / "search", pool)
    assert not result.rules.keys() & {"sums", "more"}
    assert result.rules
    assert result.best.own.accesses < result.plain.own.accesses
    # A rule with which a module fails is no rule for all of them.
    assert result.choices[ONE_RULE] == result.plain


def test_nothing_is_kept_of_a_program_that_prints_something_else(setting: _Setting, tmp_path: Path) -> None:
    class Wrong(_Program):
        def __call__(self, objects: Mapping[int, Path]) -> Profile:
            if self.runs:
                self.runs += 1
                raise BenchmarkError("./program: expected to print 1, found 2, in line 1")
            return super().__call__(objects)

    result = _search(setting, Wrong(setting.toolchain, tmp_path / "program"), tmp_path / "search")
    assert result.rules == {}
    assert result.best == result.plain
    assert len(result.failures) == 8
    assert result.failures[0] == "./program: expected to print 1, found 2, in line 1"


def test_measurements_of_another_program_are_refused(found: RuleSearch, setting: _Setting) -> None:
    del found
    with pytest.raises(ConfigError, match=r"began with another program .* remove the file to start over"):
        search_rules(
            setting.corpus.modules[:2],
            setting.pool,
            lambda objects: pytest.fail("nothing is run"),
            _accesses,
            lambda file: True,
            SETTINGS,
            folder=setting.folder / "search",
            scratch=setting.folder,
            identity={"compiler": setting.toolchain.version_text},
        )


def test_a_damaged_file_is_named(setting: _Setting, tmp_path: Path) -> None:
    (tmp_path / STATE_FILE).write_text("{}")
    with pytest.raises(ConfigError, match=rf"{STATE_FILE}: not the state of a search"):
        _search(setting, _Program(setting.toolchain, tmp_path / "program"), tmp_path)


def test_a_program_that_runs_nothing_of_its_modules_is_refused(setting: _Setting, tmp_path: Path) -> None:
    program = _Program(setting.toolchain, tmp_path / "program")
    program._main.write_text('#include <stdio.h>\nint use(int *p) { return *p; }\nint main(void) { puts("1"); }\n')
    with pytest.raises(BenchmarkError, match=r"functions of its modules, found none .* give a benchmark that"):
        _search(setting, program, tmp_path / "search")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"measurements": 6}, "measurements: expected at least 7, found 6"),
        ({"step": 0.0}, "step: expected a number over 0, at most 4; found 0"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RuleSearchSettings(**settings)  # type: ignore[arg-type]


def test_instructions_break_ties() -> None:
    plain, fewer, more = (
        Costs(each, each, {"f": each}) for each in (Counts(reads=9, instructions=number) for number in (50, 49, 51))
    )
    search = MirroredSearch(["f"], plain, EvictionRule(), _accesses)
    assert not search.offer(EvictionRule().start(), more)
    assert search.offer(EvictionRule().start(), fewer)
    assert search.costs is fewer


def _costs(**reads: int) -> Costs:
    total = Counts(reads=sum(reads.values()))
    return Costs(total + Counts(reads=100), total, {name: Counts(reads=each) for name, each in reads.items()})


def test_a_rule_is_kept_if_it_is_better_where_it_decides() -> None:
    plain = _costs(f=10, g=20, h=30)
    search = MirroredSearch(["f", "g"], plain, EvictionRule(), _accesses)
    one, other = search.candidates(np.random.default_rng(0))
    # Around the start.
    assert (one + other) / 2 == pytest.approx(EvictionRule().start())
    assert not search.offer(one, _costs(f=9, g=21, h=0))  # 30 as before
    assert not search.offer(one, "the program fails")
    assert not search.offer(one, _costs(f=1))  # the module of g did not compile
    assert search.best is None
    assert search.offer(one, _costs(f=12, g=17, h=99))  # 29
    assert not search.offer(other, _costs(f=9, g=20, h=0))  # 29
    assert search.best is one
    # Around the best.
    pair = search.candidates(np.random.default_rng(1))
    assert pair.mean(axis=0) == pytest.approx(one)
    assert plain.replaced({name: search.costs.functions[name] for name in ("f", "g")}) == Costs(
        Counts(reads=160 + (12 - 10) + (17 - 20)),
        Counts(reads=60 + (12 - 10) + (17 - 20)),
        {"f": Counts(reads=12), "g": Counts(reads=17), "h": Counts(reads=30)},
    )


@pytest.mark.parametrize(
    ("reads", "factor"),
    [
        ((9, 11), 1.5),  # success
        ((12, 9), 1.5),
        ((10, 10), 1.5),  # too short to change anything
        ((10, 11), 0.9),
        ((12, 11), 0.9),
    ],
)
def test_steps_adapt(reads: tuple[int, int], factor: float) -> None:
    search = MirroredSearch(["f"], _costs(f=10), EvictionRule(), _accesses)
    first = search.candidates(np.random.default_rng(0))
    search.tell(first, [_costs(f=each) for each in reads])
    second = search.candidates(np.random.default_rng(0))
    assert second[0] - second[1] == pytest.approx(factor * (first[0] - first[1]))
