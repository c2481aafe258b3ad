"""Why tests fail: broken by the policy, flaky, or broken before; and which modules the policy breaks.

Tests that fail when several run at a time may just disturb each other. So what fails in either build is run again in
both, alone, several times. A test is

- `policy`: broken by the policy, if it passes in every run without it, and fails in every run with it (or in most of
  many);
- `before`: broken before, if it fails in every run without the policy;
- `flaky` otherwise: it fails sometimes, in either build, or only while other tests run.

The modules at fault for what the policy breaks are found by builds in which plain clang compiles some of them.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from compiler_opt.checked_values import convert
from compiler_opt.errors import ConfigError
from compiler_opt.evaluation.minimiser import minimised
from compiler_opt.optimize.bisection import MAX_MODULES, MixedBuild, differing_objects
from compiler_opt.optimize.optimization import Optimization
from compiler_opt.optimize.program import TestRun, TestSuite, Variant
from compiler_opt.optimize.state import Record
from compiler_opt.progress_bar import progress_bar

POLICY, BEFORE, FLAKY = "policy", "before", "flaky"
"""Causes of a failure."""

REPETITION, BISECTION = "tests again", "bisection"
"""The steps that find out why tests fail."""

_MIN_RUNS = 3
_MIN_RUNS_BROKEN = 5
"""A test that fails half of the time passes five times and fails five times once in 1,000 cases; three, once in 64."""

_MAX_RUNS = 10
_UNNAMED = "The modules in which the policy breaks tests cannot be named"
_MAX_SHOWN = 10


@dataclasses.dataclass(frozen=True)
class FailedTest:
    """A test that failed in at least one run.

    Attributes:
      default_failures: in how many runs alone it failed in the default build.
      optimized_failures: the same in the optimised build.
      runs: number of runs alone in each of the builds.
    """

    __test__ = False

    name: str
    default_failures: int = 0
    optimized_failures: int = 0
    runs: int = 0

    @property
    def cause(self) -> str:
        """`POLICY`, `BEFORE` or `FLAKY`."""
        if self.runs and self.default_failures == self.runs:
            return BEFORE
        needed = self.runs if self.runs < _MAX_RUNS else (self.runs + 1) // 2
        return POLICY if self.runs and not self.default_failures and self.optimized_failures >= needed else FLAKY

    @property
    def is_undecided(self) -> bool:
        """Whether more runs could change the cause."""
        if self.runs < _MIN_RUNS:
            return True
        if self.default_failures or not self.optimized_failures:
            return False
        always = self.optimized_failures == self.runs
        return self.runs < (_MIN_RUNS_BROKEN if always else _MAX_RUNS)

    def describe(self) -> str:
        """A phrase that says why it failed."""
        if not self.default_failures and not self.optimized_failures:
            return f"{self.name}: flaky (passes in both builds, {self.runs} times each, when no other test runs)"
        cause = {POLICY: "broken by the policy", BEFORE: "broken before", FLAKY: "flaky"}[self.cause]
        failures = f"{self.optimized_failures} of {self.runs} runs with the policy, {self.default_failures} without"
        return f"{self.name}: {cause} (fails in {failures})"


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Why tests failed.

    Attributes:
      tests: all that failed in any run.
      modules: objects, relative to the build folder, that the policy breaks: the tests pass if plain clang compiles
        these; empty if nothing is broken, or if they could not be found.
      note: what the search for modules came to, one sentence; empty if nothing is broken.
    """

    tests: tuple[FailedTest, ...]
    modules: tuple[str, ...] = ()
    note: str = ""

    @property
    def broken(self) -> tuple[FailedTest, ...]:
        """The tests that the policy breaks."""
        return tuple(test for test in self.tests if test.cause == POLICY)

    def to_json(self) -> dict[str, Any]:
        """The verdict as JSON values."""
        tests = [{**dataclasses.asdict(test), "cause": test.cause} for test in self.tests]
        return {**dataclasses.asdict(self), "tests": tests}

    def lines(self) -> list[str]:
        """Sentences about each cause."""
        order = (POLICY, BEFORE, FLAKY)
        tests = sorted(self.tests, key=lambda test: order.index(test.cause))
        lines = [test.describe() for test in tests[:_MAX_SHOWN]]
        if len(tests) > _MAX_SHOWN:
            lines.append(f"and {len(tests) - _MAX_SHOWN} more, see summary.json")
        return [*lines, self.note] if self.note else lines


class _OutOfTimeError(Exception):
    """The time for the search is up."""


@dataclasses.dataclass(frozen=True)
class _Bisected:
    """The modules at fault, and a sentence; `minutes` is the limit, if that was too short."""

    modules: tuple[str, ...]
    note: str
    minutes: float | None = None


def tests_of(variant: Variant) -> str:
    """The step that runs the tests in a build."""
    return f"tests of {variant.folder.name}"


def judge(
    run: Optimization, suite: TestSuite, variants: tuple[Variant, Variant], runs: Collection[TestRun]
) -> Verdict | None:
    """Finds out why tests failed in these runs of the default and the optimised build; None if none failed."""
    names = list(dict.fromkeys(name for each in runs for name in each.failed))
    if not names:
        return None
    minutes = run.settings.verdict_minutes
    deadline_s = time.monotonic() + 60 * minutes
    tests = run.state.do(
        REPETITION,
        tuple[FailedTest, ...],
        lambda record: _repeat(run, record, suite, variants, names, deadline_s),
        after=[tests_of(variant) for variant in variants],
    )
    verdict = Verdict(tests)
    if broken := [test.name for test in verdict.broken]:
        found = run.state.do(
            BISECTION,
            _Bisected,
            lambda record: _bisect(run, record, suite, variants, broken, deadline_s),
            after=[REPETITION],
            is_enough=lambda found: found.minutes is None or found.minutes >= minutes,
        )
        verdict = dataclasses.replace(verdict, modules=found.modules, note=found.note)
    for line in verdict.lines():
        run.echo(line)
    return verdict


def _repeat(
    run: Optimization,
    record: Record,
    suite: TestSuite,
    variants: tuple[Variant, Variant],
    names: list[str],
    deadline_s: float,
) -> tuple[FailedTest, ...]:
    """Runs tests again, alone, in both builds in turn, until it is clear why they fail or the time is up."""
    counted = record.partial.get("tests", [{"name": name} for name in names])
    tests = convert(counted, tuple[FailedTest, ...])
    with progress_bar(total=_MIN_RUNS, description="failed tests again", unit="run") as bar:
        while undecided := [test.name for test in tests if test.is_undecided]:
            if tests[0].runs and time.monotonic() > deadline_s:
                break  # Each of them has run at least once.
            default, optimized = (
                set(suite.run(variant, variant.log("tests-again"), undecided).failed) for variant in variants
            )
            tests = tuple(
                dataclasses.replace(
                    test,
                    default_failures=test.default_failures + (test.name in default),
                    optimized_failures=test.optimized_failures + (test.name in optimized),
                    runs=test.runs + 1,
                )
                if test.is_undecided
                else test
                for test in tests
            )
            record.partial = {"tests": [dataclasses.asdict(test) for test in tests]}
            run.state.save()
            bar.total = max(_MIN_RUNS, max(test.runs for test in tests))
            bar.update()
    return tests


def _bisect(
    run: Optimization,
    record: Record,
    suite: TestSuite,
    variants: tuple[Variant, Variant],
    broken: list[str],
    deadline_s: float,
) -> _Bisected:
    """Finds the modules in which the policy breaks tests; outcomes of builds are kept in `record.partial`."""
    default, optimized = variants
    folder = run.folder / "build-bisect"
    added = optimized.options[len(default.options) :]
    mixed = MixedBuild(run.program, folder, default.options, default.compilers, optimized.compilers, added)
    if not record.continues:
        mixed.remove()  # The leftovers of another policy.
    outcomes: dict[str, bool] = record.partial
    objects = differing_objects(run.program, default, optimized)
    log = mixed.variant.log("tests")

    with progress_bar(total=math.ceil(math.log2(len(objects) or 1)) + 3, description="bisecting", unit="build") as bar:

        def passes(plain: Collection[str]) -> bool:
            key = " ".join(str(number) for number, name in enumerate(objects) if name in plain)
            if key not in outcomes:
                if time.monotonic() > deadline_s:
                    raise _OutOfTimeError
                record.compiles += mixed.build(plain, lambda done, total: bar.refresh())
                outcomes[key] = suite.run(mixed.variant, log, broken).passed
                run.state.save()
            bar.update()
            return outcomes[key]

        try:
            modules, note = _search(objects, passes, log)
        except _OutOfTimeError:
            minutes = run.settings.verdict_minutes
            note = f"{minutes:g} minutes (--verdict_minutes) were too few to find the modules in which it breaks them."
            return _Bisected((), note, minutes)
        except ConfigError as error:
            modules, note = [], f"{_UNNAMED}: {error}"
    mixed.remove()
    return _Bisected(tuple(modules), note)


def _search(objects: list[str], passes: Callable[[Collection[str]], bool], log: Path) -> tuple[list[str], str]:
    """The modules in which the policy breaks tests, none if they cannot be named, and a sentence."""
    if not objects:
        return [], f"{_UNNAMED}: no object differs between the builds."
    if not passes(objects):
        return [], f"{_UNNAMED}: in a third build folder, the tests fail with plain clang, too; see {log}."
    if passes(()):
        return [], f"{_UNNAMED}: in a third build folder, the tests pass with the policy."
    modules, complete = minimised(objects, passes, most=MAX_MODULES, is_monotone=True)
    if not complete:
        return modules, f"The policy breaks tests in these modules, and in others: {', '.join(modules)}."
    return modules, f"The tests pass if plain clang compiles {', '.join(modules)}, and the policy all else."
