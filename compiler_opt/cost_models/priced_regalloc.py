"""Register allocation, scored by what a cost model says that the code costs.

    problem = priced(problem, block_costs.load("llvm-mca", toolchain), toolchain)
    problem = priced(problem, costs, toolchain, BlockProfile(load_blocks(path)))     # by what runs

The decisions are those of the problem that is priced, and so are the policies. Workers only read the blocks of each
object; the host prices them, since a model may be a network, and most blocks are the same in all rollouts of a module.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from compiler_opt.cost_models.block_costs import BlockCosts
from compiler_opt.cost_models.function_costs import BlockProfile, ObjectCode, costs_by_function
from compiler_opt.cost_models.throughput.address_map import FLAGS
from compiler_opt.errors import ConfigError
from compiler_opt.llvm.interactive import FunctionOfDecisions
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.problems.problem import AnyProblem, Problem, Sites
from compiler_opt.problems.regalloc import RegallocProblem, function_credit


class PricedRegalloc(Problem[ObjectCode, None]):
    """The score is the sum of the functions' costs; each decision is credited with its own function's."""

    object_options = FLAGS

    def __init__(
        self, decisions: RegallocProblem, costs: BlockCosts, toolchain: Toolchain, profile: BlockProfile | None = None
    ):
        """See `priced`."""
        self.decide_as(decisions)
        self.score_name = f"cost by {costs.name}"
        self.scored_by = costs.name
        if profile is not None:
            self.score_name += ", of what ran"
            self.scored_by += f", executions of {profile.identity}"
        self._toolchain = toolchain
        self._costs: BlockCosts | None = costs
        self._profile = profile

    def __getstate__(self) -> dict[str, Any]:
        """What workers get, who price nothing: a network cannot leave the process."""
        return {**self.__dict__, "_costs": None, "_profile": None}

    def measure(self, object_path: Path, remarks: bytes) -> ObjectCode:
        del remarks
        return ObjectCode.read(object_path, self._toolchain)

    def project_context(self, measurements: Iterable[ObjectCode], others: Iterable[ObjectCode] = ()) -> None:
        return None

    def by_function(self, measurement: ObjectCode) -> Mapping[str, float]:
        assert self._costs is not None, "workers price nothing"
        return costs_by_function(measurement, self._costs, self._profile)

    def score(self, measurement: ObjectCode, context: None) -> float:
        return math.fsum(self.by_function(measurement).values())

    def credit(self, measurements: Sequence[ObjectCode], sites: Sequence[Sites], context: None) -> list[np.ndarray]:
        decisions = [each for each in sites if isinstance(each, FunctionOfDecisions)]
        return function_credit([self.by_function(each) for each in measurements], decisions)


def priced(
    problem: AnyProblem, costs: BlockCosts, toolchain: Toolchain, profile: BlockProfile | None = None
) -> PricedRegalloc:
    """A problem with the same decisions, scored by a cost model.

    Args:
      problem: eviction or priority.
      costs: of blocks.
      toolchain: whose llvm-readobj reads the objects.
      profile: of programs that ran, whose executions count; without one, those that the compiler estimates.

    Raises:
      ConfigError: it is another problem.
      ToolchainError: llvm-readobj is not installed.
    """
    if not isinstance(problem, RegallocProblem):
        raise ConfigError(f"--cost_model: expected inlining or register allocation, found {problem.name}; leave it out")
    toolchain.tool("llvm-readobj")
    return PricedRegalloc(problem, costs, toolchain, profile)
