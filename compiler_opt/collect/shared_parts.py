"""Which modules of a project emit the same parts, such as COMDAT functions."""

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np


@dataclasses.dataclass(frozen=True)
class SharedParts:
    """What the default emits of the parts that several modules of a project share.

    Attributes:
      names: of the parts.
      emitted: by module, indices of the parts.
    """

    names: Sequence[str]
    emitted: Mapping[str, Sequence[int]]

    def copies(self) -> dict[str, float]:
        """How many modules emit each part."""
        return dict(zip(self.names, self.counts().tolist(), strict=True))

    def counts(self) -> np.ndarray:
        """The same as `[P]` float64, in the order of the names."""
        counts = np.zeros(len(self.names))
        for own in self.emitted.values():
            counts[list(own)] += 1
        return counts


def find_shared_parts(parts: Mapping[str, Iterable[str]]) -> SharedParts:
    """The parts that more than one module has, given the parts of each module."""
    owners: defaultdict[str, list[str]] = defaultdict(list)
    for module, own in parts.items():
        for part in own:
            owners[part].append(module)
    names = sorted(part for part, modules in owners.items() if len(modules) > 1)
    emitted: dict[str, list[int]] = {module: [] for module in parts}
    for index, name in enumerate(names):
        for module in owners[name]:
            emitted[module].append(index)
    return SharedParts(names, emitted)
