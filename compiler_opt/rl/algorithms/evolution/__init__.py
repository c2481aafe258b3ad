"""Evolution strategies over the parameters of a rule, which a network then clones."""

import dataclasses

from compiler_opt.errors import ConfigError
from compiler_opt.rl.algorithm import Algorithm, AlgorithmConfigs, AlgorithmEntry
from compiler_opt.rl.behavioral_cloning import BehavioralCloningConfig
from compiler_opt.rl.config import check_at_least_1, check_over_0
from compiler_opt.rl.training_context import TrainingContext


@dataclasses.dataclass(frozen=True)
class EvolutionConfig:
    """How the parameters of a rule are searched for, see `search`, and how the rule is then cloned.

    Attributes:
      exploration: standard deviation of the directions, in scales of each parameter.
      step: how far an iteration moves a parameter whose gradient is significant, in scales.
      z_threshold: gradient over standard error from which on a parameter moves by a whole step.
      momentum: what an iteration leaves of the gradients before it.
      averaging: what an iteration leaves of the average of the parameters before it; the average is cloned.
      score_exponent: functions are weighted by this power of their score: with 0 all count alike, by the share of the
        score that is saved; with 1 the total score counts.
      score_offset: added to scores before dividing by them, so that functions of tiny scores do not dominate.
      cloned_modules: modules whose decisions under the rule the network learns.
      num_epochs: of cloning, see `BehavioralCloningConfig`.
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
        check_at_least_1(self, "cloned_modules", "num_epochs")
        check_over_0(self, "exploration", "step", "z_threshold", "score_offset", "learning_rate")
        if not 0 <= self.score_exponent <= 1:
            raise ValueError(f"score_exponent: expected a number from 0 to 1, found {self.score_exponent}")
        for name in ("momentum", "averaging"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name}: expected at least 0 and less than 1, found {getattr(self, name)}")

    def cloning(self, seed: int) -> BehavioralCloningConfig:
        """How the rule is cloned: more exactly than a warm start, as the clone is the final policy."""
        return BehavioralCloningConfig(
            learning_rate=self.learning_rate,
            num_epochs=self.num_epochs,
            batch_size=512,
            label_smoothing=0.01,
            seed=seed,
        )


def build(context: TrainingContext, configs: AlgorithmConfigs) -> Algorithm:
    """Raises ConfigError when the problem has no rule."""
    problem = context.problem
    if problem.rule is None:
        raise ConfigError(f"{problem.name}: has no rule whose parameters could be searched for")
    if context.config.rollouts_per_module != 2:
        raise ConfigError("train_eval.rollouts_per_module: expected 2, along a direction and against it")
    from compiler_opt.rl.algorithms.evolution.algorithm import Evolution

    return Evolution(context, problem.rule, configs.get(EvolutionConfig))


ALGORITHM = AlgorithmEntry({"evolution": EvolutionConfig}, build, clones_default=False)
