"""Real numbers, rounded to what a compiler takes as advice.

Legend: T decisions.
"""

import dataclasses

import numpy as np

from compiler_opt.errors import PolicyError

LARGEST_ADVICE = (1 << 24) - 1
"""Up to here float32 represents all whole numbers, so the compiler's conversion to an unsigned number is exact."""


@dataclasses.dataclass(frozen=True)
class ActionQuantizer:
    """Rounds actions to advice: whole steps above the lowest action, monotonically.

    Attributes:
      lowest: this action and all below have advice 0.
      highest: this action and all above have the largest advice.
      steps: of advice per unit of actions.

    Raises:
      ValueError: there are no steps, or more than advice can represent.
    """

    lowest: float
    highest: float
    steps: int

    def __post_init__(self) -> None:
        if not (self.lowest < self.highest and 1 <= self.largest_advice <= LARGEST_ADVICE):
            raise ValueError(f"action quantizer: expected 1 to {LARGEST_ADVICE} steps, found {self}")

    @property
    def largest_advice(self) -> int:
        return round((self.highest - self.lowest) * self.steps)

    def to_advice(self, actions: np.ndarray) -> np.ndarray:
        """`[T]` to `[T]` float32: whole numbers from 0 to `largest_advice`."""
        steps = np.rint((np.asarray(actions, np.float64) - self.lowest) * self.steps)
        return np.clip(steps, 0, self.largest_advice).astype(np.float32)

    def to_actions(self, advice: np.ndarray) -> np.ndarray:
        """`[T]` to `[T]` float32: the middle of the actions with each advice.

        Raises:
          PolicyError: a value is not the advice of any action.
        """
        steps = np.asarray(advice, np.float64)
        odd = steps[(steps != np.rint(steps)) | (steps < 0) | (steps > self.largest_advice)]
        if len(odd):
            raise PolicyError(
                f"expected decisions that are whole numbers from 0 to {self.largest_advice}, found {odd[0]}; "
                "make the trace again with compiler_opt generate_default_trace"
            )
        return (self.lowest + steps / self.steps).astype(np.float32)
