"""Text bytes of an object as the linked program will have them.

Many objects of a C++ project have the same COMDAT functions, and the linker keeps one copy of each. So a byte of a
group that `n` objects of the project emit costs `1/n` here. Object size alone is the wrong objective: policies that
reduced it by 6% reduced the linked program by 2%.

The copies are counted among the modules that are linked together, as the default or no inlining emits them, and in
training as the latest rollouts of the other modules do.
"""

import collections
from collections.abc import Iterable, Mapping
from pathlib import Path

from compiler_opt.llvm.object_file import ObjectSizes, read_object_sizes
from compiler_opt.objectives.objective import Objective, Reader


def comdat_copies(objects: Iterable[ObjectSizes]) -> dict[str, int]:
    """How many objects of a project emit each COMDAT group, by signature; at least 1."""
    copies: collections.Counter[str] = collections.Counter()
    for sizes in objects:
        copies.update(sizes.comdats.keys())
    return dict(copies)


def larger_copies(default: Iterable[ObjectSizes], others: Iterable[ObjectSizes]) -> dict[str, int]:
    """The copies of each COMDAT group in two compilations of a project's objects, whichever are more."""
    first, second = comdat_copies(default), comdat_copies(others)
    return {signature: max(first.get(signature, 0), second.get(signature, 0)) for signature in {**second, **first}}


def weighted_text_bytes(sizes: ObjectSizes, copies: Mapping[str, float]) -> float:
    """The score of one object: its text bytes, those of a COMDAT group divided by its copies in the project.

    A group that is not in `copies`, because the default emits it nowhere, counts fully. Summed over the objects in
    which copies were counted, a group whose copies are equal counts exactly once.
    """
    return sizes.text_bytes - sum(
        group_bytes * (1 - 1 / copies[signature])
        for signature, group_bytes in sizes.comdats.items()
        if copies.get(signature, 1) > 1
    )


def function_weights(sizes: ObjectSizes, copies: Mapping[str, float]) -> dict[str, float]:
    """The cost of a byte of each function of the object: 1 / copies in a COMDAT group, otherwise 1."""
    return {
        function: 1 / max(1, copies.get(sizes.function_comdats.get(function, ""), 1)) for function in sizes.functions
    }


def weighted_functions(sizes: ObjectSizes, copies: Mapping[str, float]) -> dict[str, float]:
    """The bytes of each function of the object, times `function_weights`."""
    weights = function_weights(sizes, copies)
    return {function: num_bytes * weights[function] for function, num_bytes in sizes.functions.items()}


def _read(object_path: Path, remarks: bytes) -> ObjectSizes:
    del remarks
    return read_object_sizes(object_path)


class LinkedText(Objective[ObjectSizes, Mapping[str, float]]):
    """The score is COMDAT-weighted text bytes; a project's context is the number of copies of each COMDAT group."""

    score_name = "COMDAT-weighted text"
    reader = Reader(_read)
    is_size = True
    has_copies = True

    def project_context(
        self, measurements: Iterable[ObjectSizes], others: Iterable[ObjectSizes] = ()
    ) -> Mapping[str, float]:
        # The default emits no copy of what it always inlines; without inlining, all copies show that may be emitted.
        return {group: count for group, count in larger_copies(measurements, others).items() if count > 1}

    def shared_parts(self, measurement: ObjectSizes) -> Iterable[str]:
        return measurement.comdats.keys()

    def with_copies(self, context: Mapping[str, float], copies: Mapping[str, float]) -> Mapping[str, float]:
        return {**context, **copies}

    def score(self, measurement: ObjectSizes, context: Mapping[str, float]) -> float:
        return weighted_text_bytes(measurement, context)

    def by_function(self, measurement: ObjectSizes, context: Mapping[str, float]) -> Mapping[str, float]:
        return weighted_functions(measurement, context)
