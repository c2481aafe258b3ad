"""BC-Max: imitation of the best of several policies in each module.

Source: Marinov et al., *Offline Imitation Learning from Multiple Baselines with Applications to Compiler Optimization*,
2024.
"""

import dataclasses

from compiler_opt.errors import ConfigError
from compiler_opt.rl.algorithm import Algorithm, AlgorithmConfigs, AlgorithmEntry
from compiler_opt.rl.config import BehavioralCloningConfig, check_range
from compiler_opt.rl.training_run import TrainingRun

MAX_POLICIES = 16


@dataclasses.dataclass(frozen=True)
class BCMaxConfig:
    """Hyperparameters of BC-Max.

    Attributes:
      policies: whom to imitate: `default`, baselines of the problem such as `never`, folders of policies or
        `pretrained:NAME`, and `decisions:FILE` for the decisions that a search has found. Each decides every module
        once.
      exploration: probability that an exploring rollout takes a decision against one of these policies; for binary
        actions. 0: only clones explore.
      temperature: of an exploring rollout that samples from the clone.
      stores: folders with the best trajectories of earlier runs or of others, from which is learned, too; see
        `collect.best_trajectories`.
      clone_every: iterations from one cloning to the next; the clone then takes part in the exploration.
      gain_weight: 0 to count all decisions alike. Over 0, the decisions of a module count 1 more for each multiple of
        the mean reward, times this, that its best trajectory gains over the default.
      learning_rate: of Adam, in the first epoch of cloning; decays exponentially towards a tenth over `num_epochs`.
      num_epochs: most passes over the trajectories.
      minibatch_size: decisions per gradient step.
      label_smoothing: see `BehavioralCloningConfig`.
      project_balance: 0 to count all decisions alike, 1 to count all projects alike; between them, a project of n
        decisions counts n ** (1 - project_balance).
      holdout_fraction: share of the modules that are held out to end the cloning.
    """

    policies: tuple[str, ...] = ("default",)
    exploration: float = 0.05
    temperature: float = 1.0
    stores: tuple[str, ...] = ()
    clone_every: int = 10
    gain_weight: float = 1.0
    learning_rate: float = 2e-3
    num_epochs: int = 30
    minibatch_size: int = 512
    label_smoothing: float = 0.02
    project_balance: float = 0.5
    holdout_fraction: float = 0.1

    def __post_init__(self) -> None:
        if not 1 <= len(self.policies) <= MAX_POLICIES or len(set(self.policies)) < len(self.policies):
            raise ValueError(f"policies: expected 1 to {MAX_POLICIES} different ones, found {self.policies}")
        check_range(self, "exploration", at_least=0, below=1)
        check_range(self, "clone_every", at_least=1)
        check_range(self, "temperature", over=0)
        check_range(self, "gain_weight", at_least=0)
        self.cloning(0)

    def cloning(self, seed: int) -> BehavioralCloningConfig:
        """Settings of cloning."""
        return BehavioralCloningConfig(
            learning_rate=self.learning_rate,
            num_epochs=self.num_epochs,
            batch_size=self.minibatch_size,
            label_smoothing=self.label_smoothing,
            project_balance=self.project_balance,
            holdout_fraction=self.holdout_fraction,
            seed=seed,
        )


def build(run: TrainingRun, configs: AlgorithmConfigs) -> Algorithm:
    """Raises ConfigError or PolicyError if scores cannot be compared or a policy cannot be imitated."""
    if run.config.counts_copies:
        raise ConfigError(
            "train_eval.counts_copies: expected False for bc_max, which compares scores of different iterations, found "
            "True, under which they mean something else in each"
        )
    from compiler_opt.rl.algorithms.bc_max.algorithm import BCMax

    return BCMax(run, configs.get(BCMaxConfig))


ALGORITHM = AlgorithmEntry({"bc_max": BCMaxConfig}, build, clones_default=False)
