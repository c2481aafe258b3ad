"""Score and credit of the problems of register allocation.

`llvm/lib/CodeGen/RegAllocScore.cpp` weights every copy, load and store by how often its block runs, relative to the
function's entry. Here only those count that register allocation has added, which a stock compiler reports in remarks;
the program's own and rematerialisations do not. So the score is good for differences of the same function (the sign
mostly agrees with LLVM's), but not for levels: see `docs/regalloc_score.md`.

Functions are allocated one by one, so a decision changes only its own function, and is credited with what that saved.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from compiler_opt.llvm.interactive import FunctionOfDecisions
from compiler_opt.llvm.remarks import REGALLOC_PASS, RegallocCosts, parse_costs
from compiler_opt.problems.problem import Problem, Sites

COPY_WEIGHT = 0.2
LOAD_WEIGHT = 4.0
STORE_WEIGHT = 1.0
LOAD_AND_STORE_WEIGHT = 5.0
"""Also for a folded spill: most are instructions that read a slot, change it and write it back."""


class RegallocProblem(Problem[Mapping[str, float], None]):
    """The score is the sum of the functions' weighted spills, reloads and copies; projects have no context."""

    score_name = "weighted spills, reloads and copies"
    remark_pass = REGALLOC_PASS

    def measure(self, object_path: Path, remarks: bytes) -> dict[str, float]:
        return function_scores(parse_costs(remarks))

    def project_context(
        self, measurements: Iterable[Mapping[str, float]], others: Iterable[Mapping[str, float]] = ()
    ) -> None:
        return None

    def score(self, measurement: Mapping[str, float], context: None) -> float:
        return sum(measurement.values())

    def credit(
        self, measurements: Sequence[Mapping[str, float]], sites: Sequence[Sites], context: None
    ) -> list[np.ndarray]:
        return function_credit(measurements, [each for each in sites if isinstance(each, FunctionOfDecisions)])

    def by_function(self, measurement: Mapping[str, float]) -> Mapping[str, float]:
        return measurement


def function_score(costs: RegallocCosts) -> float:
    """The score of a function: its weighted instructions per call."""
    return (
        LOAD_WEIGHT * (costs.reloads + costs.folded_reloads)
        + STORE_WEIGHT * costs.spills
        + LOAD_AND_STORE_WEIGHT * costs.folded_spills
        + COPY_WEIGHT * costs.copies
    )


def function_scores(costs: Mapping[str, RegallocCosts]) -> dict[str, float]:
    """The score of each function."""
    return {function: function_score(cost) for function, cost in costs.items()}


def function_credit(group: Sequence[Mapping[str, float]], sites: Sequence[FunctionOfDecisions]) -> list[np.ndarray]:
    """Credits each decision of a group of rollouts of one module: how much its function is below the group's mean."""
    names = {name for scores in group for name in scores}
    mean = {name: sum(scores.get(name, 0.0) for scores in group) / len(group) for name in names}
    credit = []
    for scores, decisions in zip(group, sites, strict=True):
        saved = [mean.get(name, 0.0) - scores.get(name, 0.0) for name in decisions.functions]
        credit.append(np.array(saved, np.float64)[decisions.indices])
    return credit
