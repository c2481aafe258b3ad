"""Any objective scores any decision, unless its costs are of calls and the decision moves code."""

import pickle

import numpy as np
import pytest

from compiler_opt.decisions import inlining, regalloc_eviction, regalloc_priority
from compiler_opt.errors import ConfigError
from compiler_opt.llvm.interactive import FunctionOfDecisions
from compiler_opt.llvm.object_file import ObjectSizes
from compiler_opt.objectives.linked_text import LinkedText
from compiler_opt.objectives.spill_cost import SpillCost
from compiler_opt.problem import Problem
from tests.own_scores import OwnScore

REGALLOC = (regalloc_eviction.DECISION, regalloc_priority.DECISION)


@pytest.mark.parametrize("decision", REGALLOC, ids=lambda each: each.name)
def test_register_allocation_for_linked_text(decision: regalloc_eviction.Decision) -> None:
    problem = Problem(decision, LinkedText(), "small_registers")
    assert (problem.name, problem.context_policies) == ("small_registers", ())
    group = [
        ObjectSizes(100, {"f": 40}, {"f": 40, "g": 60}, {"f": "f"}),
        ObjectSizes(60, {"f": 20}, {"f": 20, "g": 40}, {"f": "f"}),
    ]
    context = problem.objective.with_copies(problem.objective.project_context(group), {"f": 4.0})
    # A linker keeps one of four copies of f.
    assert [problem.score(sizes, context) for sizes in group] == [60 + 40 / 4, 40 + 20 / 4]
    assert problem.own_costs(group[0], context) == {"f": 10, "g": 60}
    assert Problem(inlining.DECISION, LinkedText()).own_costs(group[0], context) is None
    sites = FunctionOfDecisions(("f", "g"), np.array([0, 1], np.int32))
    first, second = problem.credit(group, [sites, sites], context) or []
    assert first.tolist() == [-2.5, -10] and second.tolist() == [2.5, 10]


def test_costs_of_calls_are_none_of_inlining() -> None:
    with pytest.raises(ConfigError, match=r"inlining moves code between functions, .* found weighted spills"):
        Problem(inlining.DECISION, SpillCost())


@pytest.mark.parametrize("decision", (inlining.DECISION, *REGALLOC), ids=lambda each: each.name)
def test_an_objective_of_modules_serves_all(decision: regalloc_eviction.Decision) -> None:
    problem = Problem(decision, OwnScore())
    assert (problem.name, problem.score(3.0, None), problem.credit([3.0], [], None)) == (decision.name, 3.0, None)


@pytest.mark.parametrize(
    "module", (inlining, regalloc_eviction, regalloc_priority), ids=lambda each: each.DECISION.name
)
def test_workers_get_what_they_need(module: object) -> None:
    problem = module.PROBLEM  # type: ignore[attr-defined]
    task = pickle.loads(pickle.dumps(problem.task))  # noqa: S301 (our own)
    assert (task.decision.name, task.reader) == (problem.name, problem.objective.reader)
