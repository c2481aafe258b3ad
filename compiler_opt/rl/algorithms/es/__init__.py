"""Evolution strategies over the weights of a network (ES): antithetic perturbations, and the ranks of their gains."""

import dataclasses

from compiler_opt.errors import ConfigError
from compiler_opt.rl.algorithm import Algorithm, AlgorithmConfigs, AlgorithmEntry
from compiler_opt.rl.config import check_range
from compiler_opt.rl.training_context import TrainingContext

TRUST_REGION = "trust_region"


@dataclasses.dataclass(frozen=True)
class ESConfig:
    """Hyperparameters of ES.

    Attributes:
      noise: standard deviation of the perturbation of each weight.
      modules_per_direction: modules that are compiled under the same perturbations, whose mean gain counts. With 1,
        each module has perturbations of its own; with at least `train_eval.num_modules`, all modules of an iteration
        have the same.
      optimizer: how the weights follow the estimated gradient: `plain` adds it, times the learning rate; `momentum`
        also adds a share of the previous step; `adam` divides it by its moving root mean square; `trust_region` goes
        along it as far as has proved right, see `trust_region.py`.
      learning_rate: of the optimiser.
      momentum: of `momentum`: that share.
      radius: of `trust_region`: the length of the first step, as a share of that of the perturbations. Each module then
        tries the last step, too, as one of its `train_eval.rollouts_per_module` / 2 directions, of which it needs two.
      averaging: decay per iteration of the moving average of the weights, which is the policy that is saved.

    Raises:
      ValueError: an unknown optimiser, or a number out of range.
    """

    noise: float = 0.02
    modules_per_direction: int = 1
    optimizer: str = "adam"
    learning_rate: float = 3e-3
    momentum: float = 0.9
    radius: float = 0.3
    averaging: float = 0.9

    def __post_init__(self) -> None:
        if self.optimizer not in ("plain", "momentum", "adam", TRUST_REGION):
            expected = f"'plain', 'momentum', 'adam' or '{TRUST_REGION}'"
            raise ValueError(f"optimizer: expected {expected}, found {self.optimizer!r}")
        check_range(self, "modules_per_direction", at_least=1)
        check_range(self, "noise", "learning_rate", "radius", over=0)
        check_range(self, "momentum", "averaging", at_least=0, below=1)


def build(context: TrainingContext, configs: AlgorithmConfigs) -> Algorithm:
    """Raises ConfigError if rollouts do not come in pairs, or the backend keeps too few policies."""
    if context.config.rollouts_per_module % 2:
        raise ConfigError(
            "train_eval.rollouts_per_module: expected an even number, for pairs along a direction and against it, "
            f"found {context.config.rollouts_per_module}"
        )
    config = configs.get(ESConfig)
    if config.optimizer == TRUST_REGION and context.config.rollouts_per_module < 4:
        raise ConfigError(
            f"train_eval.rollouts_per_module: expected at least 4 with es.optimizer = '{TRUST_REGION}', which tries "
            f"its last step as one of the directions, found {context.config.rollouts_per_module}"
        )
    if context.config.backend == "development":
        raise ConfigError(
            "train_eval.backend: expected 'auto', 'plugin' or 'channel', found 'development', for which each of the "
            "many policies of es would be converted to TFLite"
        )
    from compiler_opt.rl.algorithms.es.algorithm import ES

    return ES(context, config)


ALGORITHM = AlgorithmEntry({"es": ESConfig}, build, takes_recurrence=True)
