"""Results of an optimisation: the sizes of targets, the tests, what was built and measured, and the cost."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from compiler_opt.evaluation.statistics import relative_change
from compiler_opt.measure.attribution import METRICS
from compiler_opt.measure.callgrind import Counts
from compiler_opt.measure.wall_time import WallTimes
from compiler_opt.optimize.changes import Changes
from compiler_opt.optimize.program import TestRun
from compiler_opt.optimize.state import Cost
from compiler_opt.optimize.target_sizes import TargetSize, main, text_bytes
from compiler_opt.optimize.verdict import Verdict
from compiler_opt.report.formatting import change_text, count_text
from compiler_opt.report.table import data_frame

MAX_NEW_DECISIONS = 0.25
MIN_KEPT_SHARE = 2 / 3
"""A reused policy is outdated if a larger share of decisions is new, or a smaller share of the saving is left."""


@dataclasses.dataclass(frozen=True)
class Tests:
    """What the project's tests say.

    Attributes:
      runs: in the default and the optimised build; empty if there are none.
      verdict: why tests failed; None if none did.
    """

    __test__ = False

    runs: tuple[TestRun, ...] = ()
    verdict: Verdict | None = None


@dataclasses.dataclass(frozen=True)
class ChosenSet:
    """Options of LLVM's passes that some functions have besides.

    Attributes:
      functions: how many these are.
      saved: what they save together: bytes, or of the metric if the objective is speed.
    """

    options: str
    functions: int
    saved: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """Result of an optimisation, whatever the objective.

    Attributes:
      targets: main targets first, the largest first.
      tests: of both builds.
      costs: by step, in order.
      notes: sentences about how the program was built.
      provenance: compiler, policy, ..., as text, in order.
      compilers: paths of the C and the C++ compiler that build the program so.
      options: that these need, the optimisation level first.
    """

    program: str
    targets: tuple[TargetSize, ...]
    tests: Tests
    costs: tuple[Cost, ...]
    notes: tuple[str, ...]
    provenance: Mapping[str, str]
    compilers: tuple[str, str]
    options: tuple[str, ...]

    def code_change(self, targets: "Sequence[TargetSize] | None" = None) -> float:
        """Relative change of the code of these targets together, by default of all main targets."""
        chosen = self.main if targets is None else targets
        return relative_change(sum(t.default.code for t in chosen), sum(t.optimized.code for t in chosen))

    @property
    def main(self) -> tuple[TargetSize, ...]:
        return main(self.targets)

    @property
    def default_bytes(self) -> int:
        return text_bytes(self.targets)[0]

    @property
    def optimized_bytes(self) -> int:
        return text_bytes(self.targets)[1]

    @property
    def change(self) -> float:
        """Relative change of all main targets together; negative is smaller."""
        return relative_change(self.default_bytes, self.optimized_bytes)

    @property
    def cost(self) -> Cost:
        """The cost of all steps."""
        wall_s, cpu_s = sum(cost.wall_s for cost in self.costs), sum(cost.cpu_s for cost in self.costs)
        return Cost("together", wall_s, cpu_s, sum(cost.compiles for cost in self.costs))

    @property
    def tests_broken(self) -> bool:
        """Whether the policy breaks a test."""
        return self.tests.verdict is not None and bool(self.tests.verdict.broken)

    def to_dataframe(self) -> Any:
        """A `pandas.DataFrame` with a row for each target: its linked text before and after.

        Raises:
          MissingPackageError: pandas is not installed.
        """
        names = ("kind", "role", "default_bytes", "optimized_bytes", "change")
        return data_frame(
            {
                "target": target.name,
                **{name: getattr(target, name) for name in names},
                "code_change": self.code_change([target]),
            }
            for target in self.targets
        )

    def __str__(self) -> str:
        """The tables that `optimize` prints."""
        from compiler_opt.optimize import output

        return output.terminal_table(self)

    def __repr__(self) -> str:
        targets = count_text(len(self.main), "main target")
        return f"{type(self).__name__}({self.program!r}, {targets}, linked text {change_text(self.change)})"

    def to_json(self) -> dict[str, Any]:
        """The result as JSON values."""
        verdict = self.tests.verdict
        return {
            **dataclasses.asdict(self),
            "targets": [target.to_json() for target in self.targets],
            "tests": [dataclasses.asdict(run) for run in self.tests.runs],
            "verdict": None if verdict is None else verdict.to_json(),
        }


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class SizeResult(Result):
    """Small text, before and after.

    Attributes:
      num_modules: modules of the corpus.
      num_decisions: the default's decisions in them.
      is_reused: whether policy and decisions are those of an earlier optimisation, or a saved policy.
      changes: changes of the program since that, if it is reused and the program is known.
      earlier_change: change of linked text in that; None if unknown.
      function_options: sets of options of single functions, that first which saves most.
    """

    num_modules: int
    num_decisions: int
    is_reused: bool = False
    changes: Changes | None = None
    earlier_change: float | None = None
    function_options: tuple[ChosenSet, ...] = ()

    def outdated(self) -> str | None:
        """The reason why what is reused should be found anew; None if there is none."""
        if not self.is_reused:
            return None
        reasons = []
        if self.changes is not None and self.changes.decisions_new > MAX_NEW_DECISIONS:
            reasons.append(f"{self.changes.decisions_new:.0%} of the decisions are new to the policy")
        if self.earlier_change is not None and -self.change < MIN_KEPT_SHARE * -self.earlier_change:
            left = max(0.0, -self.change)
            reasons.append(f"of {-self.earlier_change:.2%} that were saved before, {left:.2%} are left")
        elif self.change >= 0:
            reasons.append("it saves nothing")
        return "; ".join(reasons) or None

    def reference(self) -> dict[str, Any]:
        """The part of the result that a later reuse of the policy needs, as JSON values."""
        return {"change": self.change, "targets": {target.name: target.change for target in self.main}}

    def to_json(self) -> dict[str, Any]:
        return {
            **super().to_json(),
            "default_bytes": self.default_bytes,
            "optimized_bytes": self.optimized_bytes,
            "change": self.change,
            "code_change": self.code_change(),
            "outdated": self.outdated(),
        }


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

    def to_json(self) -> dict[str, Any]:
        """The build as JSON values."""
        counts = {**dataclasses.asdict(self.counts), "cycles": self.counts.cycles}
        return {**dataclasses.asdict(self), "counts": counts}


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class BenchmarkResult(Result):
    """A benchmark before and after, whatever was to be made less.

    Attributes:
      metric: of speed.
      default: the plain build.
      profiled: the build by plain clang with the profile.
      optimized: what is kept.
      functions: by symbol, what its code costs more than in the plain build, the largest differences first.
      wall: times of the three builds.
    """

    metric: str
    default: Measured
    profiled: Measured
    optimized: Measured
    functions: Mapping[str, float]
    wall: tuple[WallTimes, ...]

    def to_json(self) -> dict[str, Any]:
        builds = {name: getattr(self, name).to_json() for name in ("default", "profiled", "optimized")}
        return super().to_json() | builds


@dataclasses.dataclass(frozen=True)
class ColdStep:
    """A build with the profile in which code that runs seldom is compiled for size.

    Attributes:
      cold: the share of all counts of blocks which the code that is compiled for size has, at most.
      measured: the build.
      checked: what the benchmark costs that the profile has not recorded; None if there is none.
    """

    cold: float
    measured: Measured
    checked: Counts | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class SizeAtSpeedResult(BenchmarkResult):
    """A small program whose benchmark costs no more, before and after.

    Attributes:
      steps: the builds to choose from.
      default_checked: see `ColdStep.checked`.
      kept: `cold` of the one that is kept; None if the plain build is.
    """

    steps: tuple[ColdStep, ...]
    kept: float | None
    default_checked: Counts | None

    def to_json(self) -> dict[str, Any]:
        steps = [{**dataclasses.asdict(step), **step.measured.to_json()} for step in self.steps]
        return super().to_json() | {"steps": steps}


@dataclasses.dataclass(frozen=True)
class SpeedStep:
    """A build with the profile, and with all steps before that were kept: what is new in it, and whether it is kept."""

    name: str
    measured: Measured
    kept: bool


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class SpeedResult(BenchmarkResult):
    """A fast benchmark, before and after.

    Attributes:
      bytes_per_percent: bytes of text that one percent of the metric counts as.
      steps: what was tried on top of the profile, in order.
      function_options: sets of options of single functions, that first which saves most; () if they are not kept.
      num_decisions: that the search found.
      compiles: of modules, in the search.
      hot_functions: that it searched.
    """

    bytes_per_percent: float
    steps: tuple[SpeedStep, ...]
    function_options: tuple[ChosenSet, ...]
    num_decisions: int
    compiles: int
    hot_functions: int

    @property
    def kept(self) -> tuple[str, ...]:
        """The names of the steps that are kept; none if the profile alone is."""
        return tuple(step.name for step in self.steps if step.kept)

    @property
    def gain(self) -> tuple[float, int]:
        """What is changed on top of the profile: the share of the plain build's metric, and bytes of text.

        The metric is that of the program's own functions.
        """
        own = self.optimized.own - self.profiled.own
        share = own / max(1, METRICS[self.metric](self.default.counts))
        return share, self.optimized.text_bytes - self.profiled.text_bytes

    def to_json(self) -> dict[str, Any]:
        steps = [{**dataclasses.asdict(step), **step.measured.to_json()} for step in self.steps]
        return super().to_json() | {"steps": steps, "kept": self.kept}
