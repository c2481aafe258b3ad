"""The decisions of one compilation, as whoever learns from them gets them."""

import dataclasses

import numpy as np

from compiler_opt.llvm import remarks
from compiler_opt.llvm.interactive import FunctionOfDecisions
from compiler_opt.llvm.training_log import Header


@dataclasses.dataclass(frozen=True)
class Trajectory:
    """The decisions of one compilation, T of them.

    Attributes:
      header: what an observation consists of.
      observations: T observations as raw bytes.
      advice: `[T]`, int64 or float32 as the problem has it.
      log_probs: `[T]` float32 log probability of each advice, None unless the policy sampled.
      sites: where the decisions were made, see `Problem.credit`; None when the compiler does not tell, or was not
        asked to.
    """

    header: Header
    observations: bytes
    advice: np.ndarray
    log_probs: np.ndarray | None
    sites: remarks.CallSites | FunctionOfDecisions | None

    def __len__(self) -> int:
        return len(self.advice)

    def features(self) -> dict[str, np.ndarray]:
        """Arrays `[T, *shape]` by name; views."""
        return self.header.decode(self.observations)
