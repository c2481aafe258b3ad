"""Objectives by what a cost model says that code costs.

    objective = BlockCost(block_costs.load("llvm-mca", toolchain), toolchain)
    objective = BlockCost(costs, toolchain, BlockProfile(load_blocks(path)))     # by what runs
    objective = TextAndCost(costs, toolchain, CompiledProfile(path, toolchain), text_percent=5.0)
    problem = dataclasses.replace(problem, objective=objective)

Workers only read the blocks of each object; the host weighs them, since a model may be a network, and most blocks are
the same in all rollouts of a module.
"""

import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from compiler_opt.cost_models.block_costs import BlockCosts
from compiler_opt.cost_models.function_costs import BlockProfile, CompiledProfile, ObjectCode, costs_by_function
from compiler_opt.cost_models.throughput.address_map import FLAGS
from compiler_opt.errors import CorpusError
from compiler_opt.llvm.object_file import ObjectSizes, read_object_sizes
from compiler_opt.llvm.profile import use_options
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.objectives.linked_text import LinkedText, function_weights, weighted_text_bytes
from compiler_opt.objectives.objective import Objective, Reader

_COPIES, _BYTES_PER_COST = "copies", "bytes_per_cost"


def _read_code(toolchain: Toolchain, object_path: Path, remarks: bytes) -> ObjectCode:
    del remarks
    return ObjectCode.read(object_path, toolchain)


class BlockCost(Objective[ObjectCode, None]):
    """The score is the sum of the functions' costs: of one call each or, with a profile, of what has run."""

    per_call = True

    def __init__(self, costs: BlockCosts, toolchain: Toolchain, profile: BlockProfile | None = None):
        """Takes the costs of blocks.

        Args:
          costs: of blocks.
          toolchain: whose llvm-readobj reads the objects.
          profile: of programs that ran, whose executions count; without one, those that the compiler estimates.

        Raises:
          ToolchainError: llvm-readobj is not installed.
        """
        toolchain.tool("llvm-readobj")
        self.score_name = f"cost by {costs.name}"
        self.identity = costs.name
        if profile is not None:
            self.score_name += ", of what ran"
            self.identity += f", executions of {profile.identity}"
        self.reader = Reader(functools.partial(_read_code, toolchain), FLAGS)
        self._costs = costs
        self._profile = profile

    def score(self, measurement: ObjectCode, context: None) -> float:
        return math.fsum(self.by_function(measurement, context).values())

    def by_function(self, measurement: ObjectCode, context: None) -> Mapping[str, float]:
        return costs_by_function(measurement, self._costs, self._profile)


@dataclasses.dataclass(frozen=True)
class ProfiledObject:
    """An object that was compiled with a profile.

    Attributes:
      sizes: of its functions.
      code: their blocks.
    """

    sizes: ObjectSizes
    code: ObjectCode


def _read_profiled(toolchain: Toolchain, object_path: Path, remarks: bytes) -> ProfiledObject:
    return ProfiledObject(read_object_sizes(object_path), _read_code(toolchain, object_path, remarks))


def profiled_reader(toolchain: Toolchain, profile: CompiledProfile) -> Reader[ProfiledObject]:
    """Reads objects that are compiled with a profile. Raises ToolchainError if llvm-readobj is not installed."""
    toolchain.tool("llvm-readobj")
    options = (*FLAGS, *use_options(profile.path, toolchain.version))
    return Reader(functools.partial(_read_profiled, toolchain), options)


class TextAndCost(Objective[ProfiledObject, Mapping[str, Any]]):
    """The score is COMDAT-weighted text plus cost, in bytes.

    All modules are compiled with a profile, so their objects say how often each block would run: no program is linked
    or run. A function has the bytes of its code plus those that its cost counts as.

    A project's context has the copies of each COMDAT group, and the bytes that a unit of cost counts as: one percent of
    the default's cost as much as `text_percent` percent of its text.
    """

    has_copies = True

    def __init__(self, costs: BlockCosts, toolchain: Toolchain, profile: CompiledProfile, text_percent: float):
        """Takes the costs of blocks.

        Args:
          costs: of blocks.
          toolchain: compiles with the profile; its llvm-readobj reads the objects.
          profile: of programs that ran.
          text_percent: percent of a project's text that one percent of its cost counts as.

        Raises:
          ToolchainError: llvm-readobj is not installed.
        """
        self.reader = profiled_reader(toolchain, profile)
        self.score_name = f"text and cost by {costs.name}"
        self.identity = f"{costs.name}, {profile.identity}, 1% of the cost worth {text_percent:g}% of the text"
        self._text = LinkedText()
        self._text_percent = text_percent
        self._costs = costs
        self._profile = profile

    def project_context(
        self, measurements: Iterable[ProfiledObject], others: Iterable[ProfiledObject] = ()
    ) -> Mapping[str, Any]:
        found = list(measurements)
        copies = self._text.project_context([each.sizes for each in found], [each.sizes for each in others])
        text = math.fsum(weighted_text_bytes(each.sizes, copies) for each in found)
        cost = math.fsum(self._cost(each, copies) for each in found)
        if not cost:
            raise CorpusError(
                f"{self._profile.path}: expected functions of each project that ran, found none of one; make the "
                "profile from the same sources with the same LLVM, or leave the project out (--module_filter)"
            )
        return {_COPIES: dict(copies), _BYTES_PER_COST: self._text_percent * text / cost}

    def shared_parts(self, measurement: ProfiledObject) -> Iterable[str]:
        return self._text.shared_parts(measurement.sizes)

    def with_copies(self, context: Mapping[str, Any], copies: Mapping[str, float]) -> Mapping[str, Any]:
        return {**context, _COPIES: {**context[_COPIES], **copies}}

    def score(self, measurement: ProfiledObject, context: Mapping[str, Any]) -> float:
        return self._text.score(self.sizes_with_cost(measurement, context), context[_COPIES])

    def by_function(self, measurement: ProfiledObject, context: Mapping[str, Any]) -> Mapping[str, float]:
        return self._text.by_function(self.sizes_with_cost(measurement, context), context[_COPIES])

    def sizes_with_cost(self, measurement: ProfiledObject, context: Mapping[str, Any]) -> ObjectSizes:
        """The sizes of an object in which each function also has the bytes that its cost counts as, rounded."""
        costs = self._costs_of(measurement)
        bytes_per_cost = context[_BYTES_PER_COST]
        return measurement.sizes.with_added({name: round(bytes_per_cost * cost) for name, cost in costs.items()})

    def _cost(self, measurement: ProfiledObject, copies: Mapping[str, float]) -> float:
        weights = function_weights(measurement.sizes, copies)
        return math.fsum(weights.get(name, 1.0) * cost for name, cost in self._costs_of(measurement).items())

    def _costs_of(self, measurement: ProfiledObject) -> dict[str, float]:
        return costs_by_function(measurement.code, self._costs, self._profile)
