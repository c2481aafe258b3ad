"""Proximal policy optimisation (PPO): clipped policy gradients from sampled rollouts."""

import dataclasses

from compiler_opt.collect.advantages import AdvantagesConfig
from compiler_opt.errors import ConfigError
from compiler_opt.rl.algorithm import Algorithm, AlgorithmConfigs, AlgorithmEntry
from compiler_opt.rl.config import check_range
from compiler_opt.rl.training_context import TrainingContext


@dataclasses.dataclass(frozen=True)
class PPOConfig:
    """Hyperparameters of PPO.

    Attributes:
      learning_rate: of Adam.
      num_epochs: passes over the decisions of an iteration.
      minibatch_size: decisions per gradient step.
      importance_ratio_clipping: bound of the change of an action's probability, as a ratio over 1.
      entropy_regularization: weight of the policy's entropy in the objective; keeps it exploring.
      value_pred_loss_coef: weight of the value network's squared error; 0 if the advantages do not use it.
      gradient_clipping: largest norm of a gradient.
      max_decisions: most decisions of an iteration to learn from; more are sampled.
      averaging: decay per iteration of the moving average of the weights, which is the policy that is saved.
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
        check_range(self, "num_epochs", "minibatch_size", "max_decisions", at_least=1)
        check_range(self, "averaging", at_least=0, below=1)
        check_range(self, "learning_rate", "importance_ratio_clipping", "gradient_clipping", over=0)


def build(context: TrainingContext, configs: AlgorithmConfigs) -> Algorithm:
    """Raises ConfigError if a module has too few rollouts for the kind of advantages."""
    advantages = configs.get(AdvantagesConfig).build()
    if context.config.rollouts_per_module < advantages.min_rollouts:
        raise ConfigError(
            f"train_eval.rollouts_per_module: expected at least {advantages.min_rollouts}, which these advantages "
            f"compare with each other, found {context.config.rollouts_per_module}; use more, or "
            "advantages.kind = 'moving_average'"
        )
    from compiler_opt.rl.algorithms.ppo.algorithm import PPO

    return PPO(context, configs.get(PPOConfig), advantages)


ALGORITHM = AlgorithmEntry({"ppo": PPOConfig, "advantages": AdvantagesConfig}, build)
