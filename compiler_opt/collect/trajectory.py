"""The decisions of one compilation."""

import dataclasses

import numpy as np

from compiler_opt.decisions.decision import Sites
from compiler_opt.llvm.training_log import Header


@dataclasses.dataclass(frozen=True)
class Trajectory:
    """The decisions of one compilation, T of them.

    Attributes:
      header: the features of an observation.
      observations: T observations as raw bytes.
      advice: `[T]`, int64 or float32 as the problem has it.
      log_probs: `[T]` float32 log probability of each advice (for continuous actions, density of the sampled action);
        None unless the policy sampled.
      sites: where the decisions were made; None if the compiler does not say, or was not asked.
      sampled_actions: `[T]` float32 continuous actions before quantization; None unless the policy sampled them.
      outcomes: `[T]` float64 that the compiler logged as the outcome of each decision, NaN where it did not; None if it
        logs none (only training logs have them). In LLVM's logs of register allocation, the last decision of a function
        has the function's score, the others 0.
      default_advice: `[T]` as `advice`, what the compiler's heuristic would decide in the same place; None unless the
        inliner's plugin was asked (`RolloutSettings.record_default`), or the base policy is the default.
    """

    header: Header
    observations: bytes
    advice: np.ndarray
    log_probs: np.ndarray | None
    sites: Sites | None
    sampled_actions: np.ndarray | None = None
    outcomes: np.ndarray | None = None
    default_advice: np.ndarray | None = None

    def __repr__(self) -> str:
        return f"Trajectory({len(self)} decisions, {len(self.header.features)} features)"

    def __len__(self) -> int:
        return len(self.advice)

    def features(self) -> dict[str, np.ndarray]:
        """Arrays `[T, *shape]` by name; views."""
        return self.header.decode(self.observations)
