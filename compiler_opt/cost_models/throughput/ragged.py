"""Rows of unequal length, one after the other in flat arrays."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np


@dataclasses.dataclass(frozen=True)
class Ragged:
    """`R` rows of elements, each with the same named values.

    Attributes:
      values: by name, `[E]`: the values of all elements, row after row.
      ends: `[R]` int64: where each row ends.
    """

    values: Mapping[str, np.ndarray]
    ends: np.ndarray

    @classmethod
    def of_lengths(cls, lengths: Sequence[int] | np.ndarray, values: Mapping[str, np.ndarray]) -> "Ragged":
        return cls(values, np.cumsum(np.asarray(lengths, np.int64)))

    @property
    def lengths(self) -> np.ndarray:
        """`[R]` elements of each row."""
        return np.diff(self.ends, prepend=0)

    def take(self, rows: np.ndarray) -> "Ragged":
        """The rows of these numbers, in this order."""
        lengths = self.lengths[rows]
        ends = np.cumsum(lengths)
        first = (self.ends[rows] - lengths) - (ends - lengths)
        elements = np.repeat(first, lengths) + np.arange(ends[-1] if len(ends) else 0)
        return Ragged({name: array[elements] for name, array in self.values.items()}, ends)

    @classmethod
    def joined(cls, *parts: "Ragged") -> "Ragged":
        """The rows of parts with the same number of rows and the same names, each after that of the part before."""
        ends = np.sum([part.ends for part in parts], axis=0)
        first = ends - np.sum([part.lengths for part in parts], axis=0)
        values = {
            name: np.empty(sum(len(part.values[name]) for part in parts), array.dtype)
            for name, array in parts[0].values.items()
        }
        for part in parts:
            own_first = part.ends - part.lengths
            elements = np.repeat(first - own_first, part.lengths) + np.arange(len(part.owners))
            for name, array in values.items():
                array[elements] = part.values[name]
            first = first + part.lengths
        return cls(values, ends)

    @property
    def owners(self) -> np.ndarray:
        """`[E]` int32: the row of each element."""
        return np.repeat(np.arange(len(self.ends), dtype=np.int32), self.lengths)
