"""Proximal policy optimisation (PPO): clipped policy gradients from sampled rollouts."""

import dataclasses

from compiler_opt.collect.advantages import AdvantagesConfig
from compiler_opt.rl.algorithm import Algorithm, AlgorithmConfigs, AlgorithmEntry
from compiler_opt.rl.config import check_at_least_1, check_over_0
from compiler_opt.rl.training_context import TrainingContext


@dataclasses.dataclass(frozen=True)
class PPOConfig:
    """How the policy learns.

    Attributes:
      learning_rate: of Adam.
      num_epochs: how often each decision is looked at.
      minibatch_size: decisions per gradient step.
      importance_ratio_clipping: how far the policy may move from the one that decided, as a ratio of probabilities.
      entropy_regularization: weight of the policy's entropy; keeps it exploring.
      value_pred_loss_coef: weight of the value network's error; 0 when advantages do not use it.
      gradient_clipping: largest norm of a gradient.
      max_decisions: a larger iteration is sampled down to so many decisions.
      averaging: what an iteration leaves of the average of the weights before it; the policy saved is the average.
    """

    learning_rate: float = 1e-3
    num_epochs: int = 3
    minibatch_size: int = 4096
    importance_ratio_clipping: float = 0.2
    entropy_regularization: float = 0.1
    value_pred_loss_coef: float = 0.0
    gradient_clipping: float = 1.0
    max_decisions: int = 100_000
    averaging: float = 0.9

    def __post_init__(self) -> None:
        check_at_least_1(self, "num_epochs", "minibatch_size", "max_decisions")
        if not 0 <= self.averaging < 1:
            raise ValueError(f"averaging: expected at least 0 and less than 1, found {self.averaging}")
        check_over_0(self, "learning_rate", "importance_ratio_clipping", "gradient_clipping")


def build(context: TrainingContext, configs: AlgorithmConfigs) -> Algorithm:
    from compiler_opt.rl.algorithms.ppo.algorithm import PPO

    return PPO(context, configs.get(PPOConfig), configs.get(AdvantagesConfig).build())


ALGORITHM = AlgorithmEntry({"ppo": PPOConfig, "advantages": AdvantagesConfig}, build)
