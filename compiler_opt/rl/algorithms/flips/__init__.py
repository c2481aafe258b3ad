"""Flips: single decisions are changed, many in each compile, and what each of them saves is learned by regression."""

import dataclasses

from compiler_opt.errors import ConfigError
from compiler_opt.rl.algorithm import Algorithm, AlgorithmConfigs, AlgorithmEntry
from compiler_opt.rl.config import check_range
from compiler_opt.rl.training_run import TrainingRun
from compiler_opt.spaces.binary import Binary


@dataclasses.dataclass(frozen=True)
class FlipsConfig:
    """Hyperparameters of flips.

    Attributes:
      groups: whether calls of a callee are flipped together where that decides if its body remains; only where the
        rollouts record the plugin's features. Single calls otherwise.
      max_flips: most decisions to change in one compile.
      first_samples: until there are so many, all decisions are the default's, or those of the policy to start from.
      stores: folders with flips of earlier runs or of others, from which is learned, too; see `collect.flip_store`.
      learning_rate: of Adam; it falls towards 0 during the training of a network.
      minibatch_size: flips per gradient step.
      num_epochs: passes over all flips.
      networks: networks that are trained, from different seeds; one network learns the mean of their estimates, and is
        the policy.
      largest_gain_bytes: bound of the absolute value of gains.
      bytes_per_logit: the expected gain for which two logits differ by 1.
      weight_decay: weight of the squared norm of all kernels in the loss.
      project_balance: 0 to count all flips alike, 1 all projects alike; between them, a project of n flips counts
        n ** (1 - project_balance).
      learn_every: iterations from one training of the networks, and so of the policy of the rollouts, to the next.
    """

    groups: bool = True
    max_flips: int = 200
    first_samples: int = 20_000
    stores: tuple[str, ...] = ()
    learning_rate: float = 2e-3
    minibatch_size: int = 512
    num_epochs: int = 25
    networks: int = 3
    largest_gain_bytes: float = 150.0
    bytes_per_logit: float = 10.0
    weight_decay: float = 1e-5
    project_balance: float = 0.5
    learn_every: int = 10

    def __post_init__(self) -> None:
        check_range(self, "max_flips", "minibatch_size", "num_epochs", "networks", "learn_every", at_least=1)
        check_range(self, "learning_rate", "largest_gain_bytes", "bytes_per_logit", over=0)
        check_range(self, "first_samples", "weight_decay", at_least=0)
        check_range(self, "project_balance", at_least=0, at_most=1)


def build(run: TrainingRun, configs: AlgorithmConfigs) -> Algorithm:
    """Raises ConfigError unless the problem is inlining for size."""
    if not (isinstance(run.problem.decision.action_space, Binary) and run.problem.objective.is_size):
        raise ConfigError(f"{run.problem.name}: flips are for inlining for size, whose functions' sizes add up")
    if run.config.rollouts_per_module < 2:
        raise ConfigError("train_eval.rollouts_per_module: expected at least 2, one of which has flips")
    from compiler_opt.rl.algorithms.flips.algorithm import Flips

    return Flips(run, configs.get(FlipsConfig))


ALGORITHM = AlgorithmEntry({"flips": FlipsConfig}, build, clones_default=False)
