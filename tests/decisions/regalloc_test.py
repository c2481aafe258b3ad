"""The score of a function and the credit of its decisions, by visible arithmetic."""

import numpy as np
import pytest

from compiler_opt import problem as problems
from compiler_opt.llvm.interactive import FunctionOfDecisions
from compiler_opt.llvm.remarks import RegallocCosts
from compiler_opt.objectives.spill_cost import function_score


def test_loads_weigh_four_stores_one_both_five_and_copies_a_fifth() -> None:
    costs = RegallocCosts(spills=10, folded_spills=1, reloads=100, folded_reloads=20, copies=5)
    assert function_score(costs) == pytest.approx(4 * (100 + 20) + 10 + 5 * 1 + 0.2 * 5)


def test_a_decision_is_credited_with_its_own_function() -> None:
    problem = problems.load("regalloc_eviction")
    group = [{"f": 10.0, "g": 3.0}, {"f": 4.0}]
    sites = [
        FunctionOfDecisions(("f", "g"), np.array([0, 0, 1], np.int32)),
        FunctionOfDecisions(("g", "f", "idle"), np.array([1, 0, 2], np.int32)),
    ]
    # Means: f 7, g 1.5, since the second rollout's g costs nothing.
    first, second = problem.credit(group, sites, None) or []
    assert first.tolist() == [-3.0, -3.0, -1.5]
    assert second.tolist() == [3.0, 1.5, 0.0]
    assert problem.score(group[0], problem.objective.project_context(group)) == 13.0
