"""Inlining for size: whether to inline each call, to make the linked program small."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from compiler_opt.llvm.advisors import INLINING
from compiler_opt.llvm.object_file import ObjectSizes, read_object_sizes
from compiler_opt.llvm.remarks import CallSites
from compiler_opt.policies.policy import ConstantPolicy
from compiler_opt.problems.inlining import signature
from compiler_opt.problems.inlining.score import comdat_copies, function_credit, weighted_text_bytes
from compiler_opt.problems.problem import Problem, Sites
from compiler_opt.spaces.binary import Binary


class InliningForSize(Problem[ObjectSizes, Mapping[str, int]]):
    """The score is COMDAT-weighted text bytes; a project's context is the number of copies of each COMDAT group."""

    name = "inlining"
    advisor = INLINING
    score_name = "COMDAT-weighted text"
    is_size = True
    feature_names = signature.FEATURES
    action_space = Binary()
    context_policies = (ConstantPolicy(0, name="never"),)

    def measure(self, object_path: Path, remarks: bytes) -> ObjectSizes:
        del remarks
        return read_object_sizes(object_path)

    def project_context(
        self, measurements: Iterable[ObjectSizes], others: Iterable[ObjectSizes] = ()
    ) -> dict[str, int]:
        # The default emits no copy of what it always inlines; without inlining, the number of copies shows.
        copies = {**comdat_copies(others), **comdat_copies(measurements)}
        return {signature: count for signature, count in copies.items() if count > 1}

    def score(self, measurement: ObjectSizes, context: Mapping[str, int]) -> float:
        return weighted_text_bytes(measurement, context)

    def credit(
        self, measurements: Sequence[ObjectSizes], sites: Sequence[Sites], context: Mapping[str, int]
    ) -> list[np.ndarray]:
        return function_credit(measurements, [each for each in sites if isinstance(each, CallSites)], context)


PROBLEM = InliningForSize()
