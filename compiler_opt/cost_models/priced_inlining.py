"""Inlining, scored by what programs that ran would cost, and by the text that this takes.

    problem = priced(problem, block_costs.load("instructions", toolchain), toolchain, CompiledProfile(path, toolchain))

All modules are compiled with the profile, so their objects say how often each block would run: no program is linked or
run. A function has the bytes of its code plus those that its cost is worth; the rest is as in inlining for size: COMDAT
copies, credit, decisions. As in `priced_regalloc`, workers only read, and the host prices.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from compiler_opt.cost_models.block_costs import BlockCosts
from compiler_opt.cost_models.function_costs import CompiledProfile, ObjectCode, costs_by_function
from compiler_opt.cost_models.throughput.address_map import FLAGS
from compiler_opt.errors import CorpusError
from compiler_opt.llvm.object_file import ObjectSizes, read_object_sizes
from compiler_opt.llvm.profile import use_options
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.problems.inlining import InliningForSize
from compiler_opt.problems.inlining.comdats import function_weights, weighted_text_bytes
from compiler_opt.problems.problem import Problem, Sites

_COPIES, _PRICE = "copies", "bytes_per_cost"


@dataclasses.dataclass(frozen=True)
class ProfiledObject:
    """An object that was compiled with a profile.

    Attributes:
      sizes: of its functions.
      code: their blocks.
    """

    sizes: ObjectSizes
    code: ObjectCode


class PricedInlining(Problem[ProfiledObject, Mapping[str, Any]]):
    """The score is COMDAT-weighted text plus cost, in bytes.

    A project's context has the copies of each COMDAT group, and the bytes that a unit of cost is worth: as many as make
    one percent of the default's cost worth `text_percent` percent of its text.
    """

    def __init__(
        self,
        decisions: InliningForSize,
        costs: BlockCosts,
        toolchain: Toolchain,
        profile: CompiledProfile,
        text_percent: float,
    ):
        """See `priced`."""
        self.decide_as(decisions)
        self.score_name = f"text and cost by {costs.name}"
        self.scored_by = f"{costs.name}, {profile.identity}, 1% of the cost worth {text_percent:g}% of the text"
        self.object_options = (*FLAGS, *use_options(profile.path, toolchain.version))
        self._decisions = decisions
        self._toolchain = toolchain
        self._text_percent = text_percent
        self._costs: BlockCosts | None = costs
        self._profile = profile

    def __getstate__(self) -> dict[str, Any]:
        """What workers get, who price nothing: a network cannot leave the process."""
        return {**self.__dict__, "_costs": None}

    def measure(self, object_path: Path, remarks: bytes) -> ProfiledObject:
        del remarks
        return ProfiledObject(read_object_sizes(object_path), ObjectCode.read(object_path, self._toolchain))

    def project_context(
        self, measurements: Iterable[ProfiledObject], others: Iterable[ProfiledObject] = ()
    ) -> Mapping[str, Any]:
        found = list(measurements)
        copies = self._decisions.project_context([each.sizes for each in found], [each.sizes for each in others])
        text = math.fsum(weighted_text_bytes(each.sizes, copies) for each in found)
        cost = math.fsum(self._cost(each, copies) for each in found)
        if not cost:
            raise CorpusError(
                f"{self._profile.path}: expected functions of each project that ran, found none of one; make the "
                "profile from the same sources with the same LLVM, or leave the project out (--module_filter)"
            )
        return {_COPIES: dict(copies), _PRICE: self._text_percent * text / cost}

    def shared_parts(self, measurement: ProfiledObject) -> Iterable[str]:
        return self._decisions.shared_parts(measurement.sizes)

    def with_copies(self, context: Mapping[str, Any], copies: Mapping[str, float]) -> Mapping[str, Any]:
        return {**context, _COPIES: {**context[_COPIES], **copies}}

    def score(self, measurement: ProfiledObject, context: Mapping[str, Any]) -> float:
        return weighted_text_bytes(self.priced_sizes(measurement, context), context[_COPIES])

    def credit(
        self, measurements: Sequence[ProfiledObject], sites: Sequence[Sites], context: Mapping[str, Any]
    ) -> list[np.ndarray]:
        return self._decisions.credit(
            [self.priced_sizes(each, context) for each in measurements], sites, context[_COPIES]
        )

    def priced_sizes(self, measurement: ProfiledObject, context: Mapping[str, Any]) -> ObjectSizes:
        """The sizes of an object in which each function also has the bytes that its cost is worth, rounded."""
        costs = self._costs_of(measurement)
        return measurement.sizes.with_worth({name: round(context[_PRICE] * cost) for name, cost in costs.items()})

    def _cost(self, measurement: ProfiledObject, copies: Mapping[str, float]) -> float:
        weights = function_weights(measurement.sizes, copies)
        return math.fsum(weights.get(name, 1.0) * cost for name, cost in self._costs_of(measurement).items())

    def _costs_of(self, measurement: ProfiledObject) -> dict[str, float]:
        assert self._costs is not None, "workers price nothing"
        return costs_by_function(measurement.code, self._costs, self._profile)


def priced(
    decisions: InliningForSize,
    costs: BlockCosts,
    toolchain: Toolchain,
    profile: CompiledProfile,
    text_percent: float,
) -> PricedInlining:
    """Inlining with the same decisions, scored by a cost model.

    Args:
      decisions: inlining for size.
      costs: of blocks.
      toolchain: compiles with the profile; its llvm-readobj reads the objects.
      profile: of programs that ran.
      text_percent: percent of a project's text that one percent of its cost is worth.

    Raises:
      ToolchainError: llvm-readobj is not installed.
    """
    toolchain.tool("llvm-readobj")
    return PricedInlining(decisions, costs, toolchain, profile, text_percent)
