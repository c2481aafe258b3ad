"""Evolution strategies over the parameters of a rule, which a network then clones."""

import dataclasses

from compiler_opt.errors import ConfigError
from compiler_opt.rl.algorithm import Algorithm, AlgorithmConfigs, AlgorithmEntry
from compiler_opt.rl.config import BehavioralCloningConfig, check_range
from compiler_opt.rl.training_context import TrainingContext


@dataclasses.dataclass(frozen=True)
class EvolutionConfig:
    """Hyperparameters of the search for a rule's parameters (see `algorithm.py`), and of cloning the rule.

    Attributes:
      exploration: standard deviation of the directions, in units of each parameter's scale.
      step: largest change of a parameter per iteration, in units of its scale.
      z_threshold: ratio of gradient to standard error at which a parameter moves by a whole step.
      momentum: decay per iteration of the average of the gradients.
      averaging: decay per iteration of the average of the parameters, which is cloned.
      score_exponent: exponent of a function's score in its weight: with 0, the relative change of each function counts
        alike; with 1, the total score counts.
      score_offset: added to scores before dividing by them, so that functions with tiny scores do not dominate.
      cloned_modules: modules whose decisions under the rule the network learns.
      num_epochs: most epochs of cloning, see `BehavioralCloningConfig`.
      learning_rate: of cloning.
    """

    exploration: float = 0.6
    step: float = 0.5
    z_threshold: float = 3.0
    momentum: float = 0.75
    averaging: float = 0.85
    score_exponent: float = 0.3
    score_offset: float = 5.0
    cloned_modules: int = 300
    num_epochs: int = 50
    learning_rate: float = 2e-3

    def __post_init__(self) -> None:
        check_range(self, "cloned_modules", "num_epochs", at_least=1)
        check_range(self, "exploration", "step", "z_threshold", "score_offset", "learning_rate", over=0)
        check_range(self, "score_exponent", at_least=0, at_most=1)
        check_range(self, "momentum", "averaging", at_least=0, below=1)

    def cloning(self, seed: int) -> BehavioralCloningConfig:
        """Settings of cloning: more exact than a warm start, because the clone is the final policy."""
        return BehavioralCloningConfig(
            learning_rate=self.learning_rate,
            num_epochs=self.num_epochs,
            batch_size=512,
            label_smoothing=0.01,
            seed=seed,
        )


def build(context: TrainingContext, configs: AlgorithmConfigs) -> Algorithm:
    """Raises ConfigError if the problem has no rule."""
    problem = context.problem
    if problem.decision.rule is None:
        raise ConfigError(f"{problem.name}: has no rule whose parameters could be searched for")
    if context.config.rollouts_per_module != 2:
        raise ConfigError("train_eval.rollouts_per_module: expected 2, along a direction and against it")
    from compiler_opt.rl.algorithms.evolution.algorithm import Evolution

    return Evolution(context, problem.decision.rule, configs.get(EvolutionConfig))


ALGORITHM = AlgorithmEntry({"evolution": EvolutionConfig}, build, clones_default=False)
