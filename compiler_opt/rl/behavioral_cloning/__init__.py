"""Behavioural cloning: a policy that decides as another one does, such as the compiler's own heuristic."""

import dataclasses

from compiler_opt.rl.config import check_at_least_1, check_over_0


@dataclasses.dataclass(frozen=True)
class BehavioralCloningConfig:
    """How the policy learns.

    Attributes:
      vocab_path: folder of the vocabulary.
      learning_rate: of Adam, at the start; falls to a tenth over `num_epochs`.
      num_epochs: how often each example is looked at, at most.
      patience: epochs without a better loss on the held-out modules before it stops.
      batch_size: examples per gradient step.
      label_smoothing: probability that is given to what was *not* decided, or the deviation that is put around a
        number; 0 for as little as can be.
      holdout_fraction: share of the modules that only measure how good it is.
      max_decisions: of a longer trace, so many decisions are drawn at random; each takes 8 bytes per feature in memory.
      seed: of weights, split and order.
    """

    vocab_path: str = ""
    learning_rate: float = 2e-3
    num_epochs: int = 30
    patience: int = 5
    batch_size: int = 1024
    label_smoothing: float = 0.03
    holdout_fraction: float = 0.1
    max_decisions: int = 2_000_000
    seed: int = 1

    def __post_init__(self) -> None:
        check_at_least_1(self, "num_epochs", "patience", "batch_size", "max_decisions")
        check_over_0(self, "learning_rate")
        if not 0 <= self.label_smoothing < 0.5:
            raise ValueError(f"label_smoothing: expected at least 0 and less than 0.5, found {self.label_smoothing}")
        if not 0 < self.holdout_fraction < 1:
            raise ValueError(f"holdout_fraction: expected a number between 0 and 1, found {self.holdout_fraction}")
