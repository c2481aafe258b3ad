"""What an optimisation came to: sizes of each target before and after, the tests, and what it cost."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from compiler_opt.evaluation.statistics import relative_change
from compiler_opt.llvm import processes
from compiler_opt.llvm.linker import linked_text_bytes
from compiler_opt.llvm.object_file import read_text_bytes
from compiler_opt.optimize.changes import Changes
from compiler_opt.optimize.program import Kind, Program, Target, Variant, build_environment, targets_of_tests

MAX_NEW_DECISIONS = 0.25
MIN_KEPT_SHARE = 2 / 3
"""When retraining is advisable: so many decisions are new, or so little is left of what training won."""


@dataclasses.dataclass(frozen=True)
class TargetSize:
    """One target's linked text.

    Attributes:
      name: of the target.
      kind: what it is.
      role: `main`; `part` of a main target and not installed itself, so counted there; or `test`.
      default_bytes: with plain clang.
      optimized_bytes: with the policy.
    """

    name: str
    kind: str
    role: str
    default_bytes: int
    optimized_bytes: int

    @property
    def change(self) -> float:
        return relative_change(self.default_bytes, self.optimized_bytes)


@dataclasses.dataclass(frozen=True)
class TestRun:
    """The project's own tests in one build.

    Attributes:
      passed: they did, as their exit status says.
      summary: a line of what they said.
      log: all of it.
    """

    __test__ = False  # No test of ours, whatever pytest thinks.

    passed: bool
    summary: str
    log: str


@dataclasses.dataclass(frozen=True)
class Cost:
    """What one step took."""

    step: str
    wall_s: float
    cpu_s: float
    compiles: int


@dataclasses.dataclass(frozen=True)
class Result:
    """The whole of it.

    Attributes:
      program: its name.
      targets: the largest main ones first.
      tests: of the default and the optimised build; empty when there are none.
      costs: by step, in order.
      num_modules: that were learnt from, or that the policy was met with.
      num_decisions: in those, under the default.
      changes: since training, when an earlier policy was used again and it is known what that was trained on.
      trained_change: what that policy won when it was trained; None where unknown.
      notes: what to know about it, a sentence each.
      provenance: compiler, policy, ..., as text to show, in order.
    """

    program: str
    targets: tuple[TargetSize, ...]
    tests: tuple[TestRun, ...]
    costs: tuple[Cost, ...]
    num_modules: int
    num_decisions: int
    changes: Changes | None
    trained_change: float | None
    notes: tuple[str, ...]
    provenance: Mapping[str, str]

    @property
    def main(self) -> tuple[TargetSize, ...]:
        """What counts."""
        return tuple(target for target in self.targets if target.role == "main")

    @property
    def default_bytes(self) -> int:
        return sum(target.default_bytes for target in self.main)

    @property
    def optimized_bytes(self) -> int:
        return sum(target.optimized_bytes for target in self.main)

    @property
    def change(self) -> float:
        """Of all main targets together; negative is smaller."""
        return relative_change(self.default_bytes, self.optimized_bytes)

    @property
    def tests_broken(self) -> bool:
        """The tests pass in the default build and fail in the optimised one."""
        return len(self.tests) == 2 and self.tests[0].passed and not self.tests[1].passed

    def retraining(self) -> str | None:
        """Why the policy should be trained anew, None when it need not be."""
        reasons = []
        if self.changes is not None and self.changes.decisions_new > MAX_NEW_DECISIONS:
            reasons.append(f"{self.changes.decisions_new:.0%} of the decisions are new to the policy")
        if self.trained_change is not None and -self.change < MIN_KEPT_SHARE * -self.trained_change:
            left = max(0.0, -self.change)
            reasons.append(f"of {-self.trained_change:.2%} that it saved when it was trained, {left:.2%} are left")
        elif self.change >= 0:
            reasons.append("it saves nothing")
        return "; ".join(reasons) or None

    def reference(self) -> dict[str, Any]:
        """What a later use of the policy is to know of this one; JSON."""
        return {"change": self.change, "targets": {target.name: target.change for target in self.main}}

    def to_json(self) -> dict[str, Any]:
        """Everything, as JSON values."""
        return {
            **dataclasses.asdict(self),
            "default_bytes": self.default_bytes,
            "optimized_bytes": self.optimized_bytes,
            "change": self.change,
            "retraining_advisable": self.retraining(),
        }


def run_tests(command: Sequence[str], variant: Variant, folder: Path) -> TestRun:
    """Runs the project's own tests in a build; what they print comes to stand in `logs/` of a folder."""
    log = folder / "logs" / f"{variant.folder.name}-tests.log"
    result = processes.run_logged(command, log, cwd=variant.folder, environment=build_environment())
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    telling = [line for line in lines if re.search(r"tests? (passed|failed)", line)]
    summary = "ran out of time" if result.timed_out else (telling or lines or ["no output"])[-1][:200]
    return TestRun(result.ok, summary, str(log.relative_to(folder)))


def measure(program: Program, default: Variant, optimized: Variant, lld: Path) -> tuple[TargetSize, ...]:
    """Linked text of every target that both builds have, main targets and large ones first.

    Of a static library, all members linked into one program, since of a COMDAT function that several carry any program
    gets one.

    Raises:
      CompileError, ProtocolError: a file is no ELF file, or lld cannot link it.
    """
    targets = [target for target in program.targets(default) if target.artifact]
    optimised = {target.name for target in program.targets(optimized)}
    roles = target_roles(program.targets(default), program.test_programs(default))
    sizes = []
    for target in targets:
        if target.name in optimised:
            paths = (variant.folder / target.artifact for variant in (default, optimized))
            before, after = (_text_bytes(path, target.kind, lld) for path in paths)
            sizes.append(TargetSize(target.name, target.kind.value, roles[target.name], before, after))
    order = ("main", "part", "test")
    return tuple(sorted(sizes, key=lambda size: (order.index(size.role), -size.default_bytes, size.name)))


def target_roles(targets: Sequence[Target], test_programs: frozenset[str]) -> dict[str, str]:
    """`main`, `part` or `test` for each target, see `TargetSize`."""
    testing = targets_of_tests(targets, test_programs)
    roles = {}
    for target in targets:
        users = [user for user in targets if target.name in user.uses and user.name not in testing]
        if target.name in testing:
            roles[target.name] = "test"
        elif target.kind in (Kind.STATIC, Kind.OBJECTS) and users and not target.installed:
            roles[target.name] = "part"
        else:
            roles[target.name] = "main"
    return roles


def _text_bytes(path: Path, kind: Kind, lld: Path) -> int:
    return linked_text_bytes(lld, [path]) if kind is Kind.STATIC else read_text_bytes(path)
