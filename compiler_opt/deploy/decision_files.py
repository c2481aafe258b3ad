"""Decision files for a deployment: which compiler each is for, and what the driver is told about it."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from compiler_opt.errors import PolicyError
from compiler_opt.files import printable
from compiler_opt.policies.decisions import Base, Decisions

_SUMMARY_CHARS = 300


@dataclasses.dataclass(frozen=True)
class DeployedDecisions:
    """A decision file in a prefix.

    Attributes:
      content: the native form.
      summary: one line for `mlgo-clang --mlgo-info`.
    """

    content: bytes
    summary: str

    @staticmethod
    def file_name(major: int) -> str:
        """Its name in the prefix's folder `lib`, for a major version of LLVM."""
        return f"mlgo-decisions-{major}.mlgo"


def load_decisions(
    paths: Sequence[Path], majors: Collection[int], problem: str, base: Base
) -> dict[int, DeployedDecisions]:
    """Loads decision files, and merges those for the same major version of LLVM.

    Args:
      paths: the files; where they contradict each other, the last one counts.
      majors: the versions that are deployed.
      problem: the deployed policy's.
      base: that policy.

    Raises:
      PolicyError: a file is missing, damaged, or for another problem, compiler or policy.
    """
    merged: dict[int, Decisions] = {}
    for path in paths:
        decisions = Decisions.load(path)
        major = decisions.major
        if major is None or major not in majors:
            found = "none" if major is None else major
            expected = ", ".join(map(str, sorted(majors)))
            raise PolicyError(
                f"{path}: expected decisions for a compiler that is deployed (LLVM {expected}), found those for LLVM "
                f"{found}; search with such a compiler, or add its --clang_path"
            )
        of_problem = decisions.about.get("problem", problem)
        if of_problem != problem:
            raise PolicyError(f"{path}: expected decisions of {problem}, found those of {printable(of_problem)}")
        decisions.check(major=major, base=base, origin=str(path))
        decisions = Decisions(decisions, {**decisions.about, "policy": base.name})
        merged[major] = merged[major].merged(decisions) if major in merged else decisions
    return {
        major: DeployedDecisions(decisions.native_form(major=major, base=base), _summary(decisions))
        for major, decisions in merged.items()
    }


def _summary(decisions: Decisions) -> str:
    about: Mapping[str, object] = decisions.about
    # Numbers and words that a search has left, such as the program's name; lists and mappings are too long for a line.
    facts = [f"{key} {value}" for key, value in about.items() if isinstance(value, str | int | float)]
    return printable(", ".join((f"{len(decisions)} decisions", *facts)))[:_SUMMARY_CHARS]
