"""How far predicted cycles are from the labels."""

import dataclasses
from collections.abc import Sequence

import numpy as np


@dataclasses.dataclass(frozen=True)
class PercentageErrors:
    """Errors of predictions of `N` blocks.

    Attributes:
      num_blocks: N.
      mean: mean absolute percentage error, as a fraction.
      median: of the absolute percentage errors.
    """

    num_blocks: int
    mean: float
    median: float


def percentage_errors(predicted: np.ndarray, cycles: np.ndarray) -> PercentageErrors:
    """Of predictions `[N]` for labels `[N]`, both in cycles."""
    errors = np.abs(predicted - cycles) / cycles
    return PercentageErrors(len(cycles), float(errors.mean()), float(np.median(errors)))


def by_group(predicted: np.ndarray, cycles: np.ndarray, groups: Sequence[str]) -> dict[str, PercentageErrors]:
    """The errors in each group of blocks, by its name, e.g. the project; groups are `[N]`."""
    names = np.array(groups)
    return {str(name): percentage_errors(predicted[names == name], cycles[names == name]) for name in np.unique(names)}
