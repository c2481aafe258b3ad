"""REINFORCE: the policy gradient, each decision learned from once."""

import dataclasses

from compiler_opt.collect.advantages import AdvantagesConfig
from compiler_opt.rl.algorithm import Algorithm, AlgorithmConfigs, AlgorithmEntry
from compiler_opt.rl.config import LearnerConfig, check_range, check_rollouts, check_value_network
from compiler_opt.rl.training_run import TrainingRun


@dataclasses.dataclass(frozen=True)
class ReinforceConfig(LearnerConfig):
    """Hyperparameters of REINFORCE, beside those of `LearnerConfig`.

    Attributes:
      minibatch_size: decisions per gradient step; an iteration's decisions are learned from once. Only with all of them
        in one step is the gradient exactly that of the policy that decided.
      entropy_regularization: weight of the policy's entropy in the objective; draws it towards equal probabilities, and
        so keeps it exploring.
      value_pred_loss_coef: weight of the squared error of the value network, whose predictions are subtracted from the
        returns of `advantages.kind = 'moving_average'`; other advantages use none.
      max_decisions: most decisions of an iteration to learn from; more are sampled.
    """

    learning_rate: float = 1e-4
    entropy_regularization: float = 0.1
    value_pred_loss_coef: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "entropy_regularization", "value_pred_loss_coef", at_least=0)


def build(run: TrainingRun, configs: AlgorithmConfigs) -> Algorithm:
    """Raises ConfigError if advantages, rollouts and value network do not fit together."""
    config, advantages = configs.get(ReinforceConfig), configs.get(AdvantagesConfig).build()
    check_value_network(advantages, "reinforce.value_pred_loss_coef", config.value_pred_loss_coef)
    check_rollouts(run.config, advantages)
    from compiler_opt.rl.algorithms.reinforce.algorithm import Reinforce

    return Reinforce(run, config, advantages)


ALGORITHM = AlgorithmEntry({"reinforce": ReinforceConfig, "advantages": AdvantagesConfig}, build, takes_recurrence=True)
