"""Proximal policy optimisation (PPO): policy gradients from sampled rollouts, clipped or with a KL penalty."""

import dataclasses

from compiler_opt.collect.advantages import AdvantagesConfig
from compiler_opt.errors import ConfigError
from compiler_opt.rl.algorithm import Algorithm, AlgorithmConfigs, AlgorithmEntry
from compiler_opt.rl.config import (
    LearnerConfig,
    RandomNetworkDistillationConfig,
    check_bonus,
    check_range,
    check_rollouts,
    check_value_network,
)
from compiler_opt.rl.training_run import TrainingRun


@dataclasses.dataclass(frozen=True)
class PPOConfig(LearnerConfig):
    """Hyperparameters of PPO, beside those of `LearnerConfig`.

    Attributes:
      num_epochs: passes over the decisions of an iteration.
      importance_ratio_clipping: bound of the change of an action's probability, as a ratio over 1.
      kl_target: 0 to clip the ratio. Otherwise the loss has a penalty instead: the KL divergence from the policy that
        decided to the new one, with a weight that rises while an iteration's divergence is more than 1.5 times this
        target, and falls while it is less than half of it; `importance_ratio_clipping` then only defines the metric
        `clip_fraction`.
      entropy_regularization: weight of the policy's entropy in the objective; draws it towards equal probabilities, and
        so keeps it exploring.
      kl_to_start: weight, in the loss, of the KL divergence from the policy to the one that the training starts from;
        draws it towards that one, and so keeps what it did not learn otherwise. 0 for none.
      value_pred_loss_coef: weight of the value network's squared error; 0 if the advantages do not use it.
      max_decisions: most decisions of an iteration that one pass visits. If there are more, each pass visits others:
        all are learned from, in fewer passes, as long as they are at most `num_epochs` times as many.
    """

    num_epochs: int = 3
    importance_ratio_clipping: float = 0.2
    kl_target: float = 0.0
    entropy_regularization: float = 0.1
    kl_to_start: float = 0.0
    value_pred_loss_coef: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "num_epochs", at_least=1)
        check_range(self, "kl_target", "entropy_regularization", "kl_to_start", "value_pred_loss_coef", at_least=0)
        check_range(self, "importance_ratio_clipping", over=0)


def build(run: TrainingRun, configs: AlgorithmConfigs) -> Algorithm:
    """Raises ConfigError if advantages, rollouts and value network do not fit together."""
    config, advantages = configs.get(PPOConfig), configs.get(AdvantagesConfig).build()
    check_value_network(advantages, "ppo.value_pred_loss_coef", config.value_pred_loss_coef)
    check_rollouts(run.config, advantages)
    if config.kl_to_start and run.network.lstm_units:
        raise ConfigError(
            f"ppo.kl_to_start: expected 0 with network.lstm_units = {run.network.lstm_units}, found "
            f"{config.kl_to_start:g}: the policy to start from remembers other things than the one that learns"
        )
    novelty = configs.get(RandomNetworkDistillationConfig)
    check_bonus(novelty, advantages)
    from compiler_opt.rl.algorithms.ppo.algorithm import PPO

    return PPO(run, config, advantages, novelty)


ALGORITHM = AlgorithmEntry(
    {"ppo": PPOConfig, "advantages": AdvantagesConfig, "novelty": RandomNetworkDistillationConfig},
    build,
    takes_recurrence=True,
)
