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
from compiler_opt.optimize.context import BISECTION, REPETITION, OptimizationContext, Step
from compiler_opt.optimize.program import TestRun, TestSuite, Variant
from compiler_opt.progress_bar import progress_bar

POLICY, BEFORE, FLAKY = "policy", "before", "flaky"
"""Causes of a failure."""

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


def judge(
    context: OptimizationContext, suite: TestSuite, default: Variant, optimized: Variant, runs: Collection[TestRun]
) -> Verdict | None:
    """Finds out why tests failed in these runs of both builds; None if none failed."""
    names = list(dict.fromkeys(name for run in runs for name in run.failed))
    if not names:
        return None
    deadline_s = time.monotonic() + 60 * context.settings.verdict_minutes

    def repeat(step: Step) -> dict[str, Any]:
        return _repeat(context, step, suite, (default, optimized), names, deadline_s)

    tests = convert(context.once(REPETITION, repeat)["tests"], tuple[FailedTest, ...])
    verdict = Verdict(tests)
    if verdict.broken:
        broken = [test.name for test in verdict.broken]
        earlier = context.state.steps.get(BISECTION)
        if earlier is not None and earlier.result.get("minutes", math.inf) < context.settings.verdict_minutes:
            earlier.done = False
        found = context.once(
            BISECTION, lambda step: _bisect(context, step, suite, (default, optimized), broken, deadline_s)
        )
        verdict = Verdict(tests, tuple(found["modules"]), found["note"])
    for line in verdict.lines():
        context.echo(line)
    return verdict


def _repeat(
    context: OptimizationContext,
    step: Step,
    suite: TestSuite,
    variants: tuple[Variant, Variant],
    names: list[str],
    deadline_s: float,
) -> dict[str, Any]:
    """Runs tests again, alone, in both builds in turn, until it is clear why they fail or the time is up."""
    counted = step.result.get("tests")
    tests = list(convert(counted, tuple[FailedTest, ...])) if counted else [FailedTest(name) for name in names]
    with progress_bar(total=_MIN_RUNS, description="failed tests again", unit="run") as bar:
        while undecided := [test.name for test in tests if test.is_undecided]:
            if tests[0].runs and time.monotonic() > deadline_s:
                break  # Each of them has run at least once.
            default, optimized = (
                set(suite.run(variant, variant.log("tests-again"), undecided).failed) for variant in variants
            )
            tests = [
                dataclasses.replace(
                    test,
                    default_failures=test.default_failures + (test.name in default),
                    optimized_failures=test.optimized_failures + (test.name in optimized),
                    runs=test.runs + 1,
                )
                if test.is_undecided
                else test
                for test in tests
            ]
            step.result = {"tests": [dataclasses.asdict(test) for test in tests]}
            context.state.save()
            bar.total = max(_MIN_RUNS, max(test.runs for test in tests))
            bar.update()
    return step.result


def _bisect(
    context: OptimizationContext,
    step: Step,
    suite: TestSuite,
    variants: tuple[Variant, Variant],
    broken: list[str],
    deadline_s: float,
) -> dict[str, Any]:
    """Finds the modules in which the policy breaks tests; outcomes of builds are kept in `step.result`."""
    default, optimized = variants
    folder = context.folder / "build-bisect"
    mixed = MixedBuild(context.program, folder, default.options, default.compilers, optimized.compilers)
    if "outcomes" not in step.result:
        mixed.remove()  # The leftovers of another policy.
        step.result = {"outcomes": {}, "compiles": 0}
        context.state.save()
    outcomes: dict[str, bool] = step.result["outcomes"]
    objects = differing_objects(context.program, default, optimized)
    log = mixed.variant.log("tests")

    with progress_bar(total=math.ceil(math.log2(len(objects) or 1)) + 3, description="bisecting", unit="build") as bar:

        def passes(plain: Collection[str]) -> bool:
            key = " ".join(str(number) for number, name in enumerate(objects) if name in plain)
            if key not in outcomes:
                if time.monotonic() > deadline_s:
                    raise _OutOfTimeError
                step.result["compiles"] += mixed.build(plain, lambda done, total: bar.refresh())
                outcomes[key] = suite.run(mixed.variant, log, broken).passed
                context.state.save()
            bar.update()
            return outcomes[key]

        try:
            modules, note = _search(objects, passes, log)
        except _OutOfTimeError:
            minutes = context.settings.verdict_minutes
            note = f"{minutes:g} minutes (--verdict_minutes) were too few to find the modules in which it breaks them."
            return step.result | {"modules": [], "note": note, "minutes": minutes}
        except ConfigError as error:
            modules, note = [], f"{_UNNAMED}: {error}"
    mixed.remove()
    return {"modules": modules, "note": note, "compiles": step.result["compiles"]}


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
