"""What the output of an inlining policy costs: text bytes as the linked program will see them.

Many objects of a C++ project carry the same COMDAT functions, and the linker keeps one copy of each. So the byte of a
COMDAT group that `n` objects of the project emit costs `1/n` here. Object size alone is the wrong thing to minimise:
policies that won 6% of it were seen to win 2% of the linked program.

The copies are counted once, in the objects that the compiler's default heuristic makes, among the modules that are
linked together: so a module's score depends on its own compile only.
"""

import collections
from collections.abc import Iterable, Mapping

from compiler_opt.llvm.object_file import ObjectSizes


def comdat_copies(objects: Iterable[ObjectSizes]) -> dict[str, int]:
    """How many of `objects`, those of one project, emit each COMDAT group.

    Returns:
      signature -> number of objects, at least 1.
    """
    copies: collections.Counter[str] = collections.Counter()
    for sizes in objects:
        copies.update(sizes.comdats.keys())
    return dict(copies)


def weighted_text_bytes(sizes: ObjectSizes, copies: Mapping[str, int]) -> float:
    """The score of one object: its text bytes, a COMDAT group's divided by the copies that the project has of it.

    A group that is not in `copies`, which the default heuristic emits nowhere, is this object's alone. Summed over the
    objects that `copies` was counted in, a group whose copies are equal counts exactly once.
    """
    return sizes.text_bytes - sum(
        group_bytes * (1 - 1 / copies[signature])
        for signature, group_bytes in sizes.comdats.items()
        if copies.get(signature, 1) > 1
    )


def function_weights(sizes: ObjectSizes, copies: Mapping[str, int]) -> dict[str, float]:
    """What a byte of each function of the object counts in the score.

    Returns:
      function -> 1 / copies for a function in a COMDAT group, else 1.
    """
    return {function: 1 / copies.get(sizes.function_comdats.get(function, ""), 1) for function in sizes.functions}
