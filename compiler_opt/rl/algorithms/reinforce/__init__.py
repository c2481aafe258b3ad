"""REINFORCE: the policy gradient, each decision learned from once."""

import dataclasses

from compiler_opt.collect.advantages import AdvantagesConfig
from compiler_opt.rl.algorithm import Algorithm, AlgorithmConfigs, AlgorithmEntry
from compiler_opt.rl.config import check_range, check_rollouts, check_value_network
from compiler_opt.rl.training_context import TrainingContext


@dataclasses.dataclass(frozen=True)
class ReinforceConfig:
    """Hyperparameters of REINFORCE.

    Attributes:
      learning_rate: of Adam.
      minibatch_size: decisions per gradient step; an iteration's decisions are learned from once. Only with all of them
        in one step is the gradient exactly that of the policy that decided.
      entropy_regularization: weight of the policy's entropy in the objective; draws it towards equal probabilities, and
        so keeps it exploring.
      value_pred_loss_coef: weight of the squared error of the value network, whose predictions are subtracted from the
        returns of `advantages.kind = 'moving_average'`; other advantages use none.
      gradient_clipping: largest norm of each variable's gradient.
      project_balance: 0 to count all decisions of an iteration alike, 1 to count all projects alike; between them, a
        project of n decisions counts n ** (1 - project_balance), in all terms of the loss.
      max_decisions: most decisions of an iteration to learn from; more are sampled.
      averaging: decay per iteration of the moving average of the weights, which is the policy that is saved.
    """

    learning_rate: float = 1e-4
    minibatch_size: int = 4096
    entropy_regularization: float = 0.1
    value_pred_loss_coef: float = 0.5
    gradient_clipping: float = 1.0
    project_balance: float = 0.0
    max_decisions: int = 100_000
    averaging: float = 0.9

    def __post_init__(self) -> None:
        check_range(self, "minibatch_size", "max_decisions", at_least=1)
        check_range(self, "averaging", at_least=0, below=1)
        check_range(self, "project_balance", at_least=0, at_most=1)
        check_range(self, "entropy_regularization", "value_pred_loss_coef", at_least=0)
        check_range(self, "learning_rate", "gradient_clipping", over=0)


def build(context: TrainingContext, configs: AlgorithmConfigs) -> Algorithm:
    """Raises ConfigError if advantages, rollouts and value network do not fit together."""
    config, advantages = configs.get(ReinforceConfig), configs.get(AdvantagesConfig).build()
    check_value_network(advantages, "reinforce.value_pred_loss_coef", config.value_pred_loss_coef)
    check_rollouts(context.config, advantages)
    from compiler_opt.rl.algorithms.reinforce.algorithm import Reinforce

    return Reinforce(context, config, advantages)


ALGORITHM = AlgorithmEntry({"reinforce": ReinforceConfig, "advantages": AdvantagesConfig}, build, takes_recurrence=True)
