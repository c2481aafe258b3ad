"""Behavioural cloning: supervised learning of another policy's decisions, such as those of the default heuristic."""

import dataclasses

from compiler_opt.rl.config import check_range


@dataclasses.dataclass(frozen=True)
class BehavioralCloningConfig:
    """Hyperparameters of behavioural cloning.

    Attributes:
      vocab_path: the vocabulary's folder.
      learning_rate: of Adam, in the first epoch; decays exponentially towards a tenth over `num_epochs`.
      num_epochs: most passes over the examples.
      patience: epochs without a lower loss on the held-out modules after which learning stops.
      batch_size: examples per gradient step.
      label_smoothing: probability of the actions that were *not* taken or, for a real number, the standard deviation
        around it; 0 for the least possible.
      holdout_fraction: share of the modules that are held out to measure the loss.
      max_decisions: most decisions to read; a longer trace is sampled. Each takes 8 bytes of memory per feature.
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
        check_range(self, "num_epochs", "patience", "batch_size", "max_decisions", at_least=1)
        check_range(self, "learning_rate", over=0)
        check_range(self, "label_smoothing", at_least=0, below=0.5)
        check_range(self, "holdout_fraction", over=0, below=1)
