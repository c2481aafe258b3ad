"""Deep Q-learning (DQN) and double DQN: the value of each action is learned, and the best action chosen."""

import dataclasses

from compiler_opt.collect.advantages import AdvantagesConfig
from compiler_opt.errors import ConfigError
from compiler_opt.rl.algorithm import Algorithm, AlgorithmConfigs, AlgorithmEntry
from compiler_opt.rl.config import LearnerConfig, check_range, check_rollouts
from compiler_opt.rl.training_run import TrainingRun
from compiler_opt.spaces.binary import Binary
from compiler_opt.spaces.masked_categorical import MaskedCategorical


@dataclasses.dataclass(frozen=True)
class DQNConfig(LearnerConfig):
    """Hyperparameters of DQN, beside those of `LearnerConfig`.

    Attributes:
      discount: with 0, each decision is an episode of one step, whose reward is its advantage; nothing follows that the
        target network could value. Over 0, the decisions of a rollout are the steps of one episode, and the value of an
        action is its advantage plus this share of the value of the next decision.
      double: whether the next action is chosen by the network that learns, and valued by the target network (double
        DQN); otherwise the target network does both. For a discount over 0.
      first_temperature: of exploration at the start of the training: actions are sampled from the softmax of their
        values, divided by it. The unit of values is the standard deviation of advantages. The policy to start from
        keeps its probabilities at this temperature.
      last_temperature: the same at its end; between them, it falls exponentially.
      target_update_period: gradient steps from one copy of the network to the target network to the next.
      steps: gradient steps per iteration.
      minibatch_size: decisions per gradient step, drawn from those that are remembered.
      max_decisions: the latest decisions that are remembered.
    """

    discount: float = 0.0
    double: bool = False
    first_temperature: float = 1.0
    last_temperature: float = 0.1
    target_update_period: int = 100
    steps: int = 100
    minibatch_size: int = 512

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "target_update_period", "steps", at_least=1)
        check_range(self, "discount", at_least=0, at_most=1)
        check_range(self, "first_temperature", "last_temperature", over=0)


def build(run: TrainingRun, configs: AlgorithmConfigs) -> Algorithm:
    """Raises ConfigError if the problem's actions cannot be listed, or settings do not fit together."""
    config, advantages = configs.get(DQNConfig), configs.get(AdvantagesConfig).build()
    if not isinstance(run.problem.decision.action_space, Binary | MaskedCategorical):
        raise ConfigError(
            f"{run.problem.name}: dqn learns a value for each action; expected a problem that chooses among a few, "
            "found one whose actions are numbers; use ppo, reinforce or es"
        )
    if config.double and not config.discount:
        raise ConfigError(
            "dqn.double: concerns the value of the next decision; expected dqn.discount over 0, found 0, with which "
            "that value does not count"
        )
    check_rollouts(run.config, advantages)
    from compiler_opt.rl.algorithms.dqn.algorithm import DQN

    return DQN(run, config, advantages)


ALGORITHM = AlgorithmEntry({"dqn": DQNConfig, "advantages": AdvantagesConfig}, build, takes_recurrence=True)
