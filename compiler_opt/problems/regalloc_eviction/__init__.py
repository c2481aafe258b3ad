"""Live-range eviction in the greedy register allocator: whom to send away, to have little spilled where it is hot."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from compiler_opt.llvm import regalloc_remarks
from compiler_opt.llvm.advisors import REGALLOC_EVICTION
from compiler_opt.llvm.interactive import FunctionOfDecisions
from compiler_opt.problems.problem import Problem
from compiler_opt.problems.regalloc_eviction.credit import function_credit
from compiler_opt.problems.regalloc_eviction.default_eviction import DefaultEviction
from compiler_opt.problems.regalloc_eviction.inputs import EvictionInputs
from compiler_opt.problems.regalloc_eviction.score import function_scores


class LiveRangeEviction(Problem):
    """The score is the sum of the functions' weighted spills, reloads and copies; a project has no context."""

    name = "regalloc_eviction"
    advisor = REGALLOC_EVICTION
    score_name = "weighted spills, reloads and copies"
    candidates = EvictionInputs()
    feature_names = candidates.names
    default_policy = DefaultEviction()
    remark_pass = regalloc_remarks.REMARK_PASS

    def measure(self, object_path: Path, remarks: bytes) -> dict[str, float]:
        return function_scores(regalloc_remarks.parse_costs(remarks))

    def project_context(
        self, measurements: Iterable[Mapping[str, float]], others: Iterable[Mapping[str, float]] = ()
    ) -> None:
        return None

    def score(self, measurement: Mapping[str, float], context: None) -> float:
        return sum(measurement.values())

    def credit(
        self, measurements: Sequence[Mapping[str, float]], sites: Sequence[FunctionOfDecisions], context: None
    ) -> list[np.ndarray]:
        return function_credit(measurements, sites)


PROBLEM = LiveRangeEviction()
