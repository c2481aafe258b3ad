"""The decisions of one compilation, as whoever learns from them gets them."""

import dataclasses

import numpy as np

from compiler_opt.llvm.training_log import Header
from compiler_opt.problems.problem import Sites


@dataclasses.dataclass(frozen=True)
class Trajectory:
    """The decisions of one compilation, T of them.

    Attributes:
      header: what an observation consists of.
      observations: T observations as raw bytes.
      advice: `[T]`, int64 or float32 as the problem has it.
      log_probs: `[T]` float32 log probability of each advice (of a number: density of the sampled action), None unless
        the policy sampled.
      sites: where the decisions were made, see `Problem.credit`; None when the compiler does not tell, or was not
        asked to.
      sampled_actions: `[T]` float32, the real numbers that the advice was made of; None unless the policy sampled such.
      outcomes: `[T]` float64, what the compiler itself logged as the outcome of each decision, not a number where it
        did not; None when it logs none (only a training log may have them). In LLVM's logs of register allocation the
        last decision of a function has the function's score, the others 0.
    """

    header: Header
    observations: bytes
    advice: np.ndarray
    log_probs: np.ndarray | None
    sites: Sites | None
    sampled_actions: np.ndarray | None = None
    outcomes: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.advice)

    def features(self) -> dict[str, np.ndarray]:
        """Arrays `[T, *shape]` by name; views."""
        return self.header.decode(self.observations)
