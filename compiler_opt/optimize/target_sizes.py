"""The linked text of a program's targets, before and after."""

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from compiler_opt.errors import CorpusError
from compiler_opt.evaluation.statistics import relative_change
from compiler_opt.llvm.object_file import TextParts, linked_parts, read_parts
from compiler_opt.optimize.program import Kind, Program, Target, Variant, targets_of_tests


@dataclasses.dataclass(frozen=True)
class TargetSize:
    """Linked text of a target, with plain clang and with the policy.

    Attributes:
      kind: the value of its `Kind`.
      role: `main`; `part` of a main target, where it is counted, and not installed; or only used by a `test`.
    """

    name: str
    kind: str
    role: str
    default: TextParts
    optimized: TextParts

    @property
    def default_bytes(self) -> int:
        return self.default.total

    @property
    def optimized_bytes(self) -> int:
        return self.optimized.total

    @property
    def change(self) -> float:
        return relative_change(self.default_bytes, self.optimized_bytes)

    def to_json(self) -> dict[str, Any]:
        """The sizes as JSON values."""
        sizes = {"default_bytes": self.default_bytes, "optimized_bytes": self.optimized_bytes}
        return {**dataclasses.asdict(self), **sizes}


def main(targets: Iterable[TargetSize]) -> tuple[TargetSize, ...]:
    """The main targets."""
    return tuple(target for target in targets if target.role == "main")


def text_bytes(targets: Iterable[TargetSize]) -> tuple[int, int]:
    """Linked text of the main targets, with plain clang and optimised."""
    counted = main(targets)
    return sum(target.default_bytes for target in counted), sum(target.optimized_bytes for target in counted)


def measure(program: Program, default: Variant, optimized: Variant, lld: Path) -> tuple[TargetSize, ...]:
    """Linked text of every target that both builds have, main targets first, large targets first.

    The members of a static library are linked into one file, since a program gets one copy of a COMDAT function that
    several members have.

    Raises:
      CompileError, ProtocolError: a file is not ELF, or lld cannot link it.
      CorpusError: there is no main target.
    """
    targets = program.targets(default)
    in_both = {target.name for target in program.targets(optimized)}
    roles = target_roles(targets, program.test_programs(default))
    sizes = []
    for target in targets:
        if target.artifact and target.name in in_both:
            paths = (variant.folder / target.artifact for variant in (default, optimized))
            before, after = (_parts(path, target.kind, lld) for path in paths)
            sizes.append(TargetSize(target.name, target.kind.value, roles[target.name], before, after))
    if not main(sizes):
        raise CorpusError(f"{default.folder}: the build made no program or library")
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


def _parts(path: Path, kind: Kind, lld: Path) -> TextParts:
    return linked_parts(lld, [path]) if kind is Kind.STATIC else read_parts(path)
