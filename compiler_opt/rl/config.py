"""Settings of training and cloning, checked without TensorFlow, so that a mistake in a gin file shows at once."""

import dataclasses
import math
import operator

from compiler_opt.collect import rollout_settings
from compiler_opt.collect.advantages import Advantages
from compiler_opt.corpus.sampling import check_sampling
from compiler_opt.errors import ConfigError

POLICY_DIR = "policy"
"""The policy's folder in that of a warm start or training."""
_MAX_STALENESS = 4
"""Fewer than `policy_folder.MAX_POLICIES`: those that collect are kept."""
SAVED_POLICY = "saved_policy"
"""A link to it, by the name that google/ml-compiler-opt gives it."""


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """Settings of the training loop, whatever the algorithm.

    Attributes:
      num_iterations: iterations to train for; each collects rollouts and updates the policy. With 0, the policy is what
        the algorithm has without any: of `flips`, what it learns from stores.
      max_minutes: minutes to train for, over all sessions of the run; 0 for no limit.
      max_compiles: compilations to train for; the last iteration may exceed it. 0 for no limit.
      num_modules: modules per iteration.
      rollouts_per_worker: rollouts per worker and iteration that there are at least: with more workers than
        `num_modules` keeps busy, an iteration has more modules. 0: `num_modules`, whatever the number of workers.
      max_staleness: iterations that are collected ahead, so that workers wait neither for the learner nor for the last
        compilation of an iteration: the policy that collects has not learned from as many iterations. 0: collecting
        and learning take turns, and the same seed gives the same training. Over 0 only with algorithms that take into
        account which policy decided (`ppo`, `dqn`).
      late_share: with `max_staleness` over 0, share of an iteration's modules that the learner does not wait for once
        workers are idle. They come again in a later iteration, which then waits for them.
      sampling: how modules are drawn: `uniform`, all equally often; `project`, all projects equally often, whatever
        their numbers of modules; `size`, in proportion to the bytes of their bitcode; `decisions`, in proportion to
        their decisions, which are counted first.
      rollouts_per_module: compilations of each module per iteration.
      compile_timeout_s: wall-clock seconds that one compilation may take.
      backend: how decisions get into the compiler, see `RolloutSettings`.
      counts_copies: whether what a part that a linker keeps one copy of costs follows the policy: it is divided by the
        number of modules that emit it in their latest rollouts. Otherwise, by the number under the default.
      learning_rate_decay: the learning rate at the end of the training, as a share of the first; for `ppo`, `reinforce`
        and `dqn`.
      warmstart_policy_dir: folder of the policy to start from, such as one from behavioural cloning, or
        `pretrained:NAME`.
      seed: of all random choices.
      algorithm: name of a module or folder in `rl/algorithms/`.
      validation_iterations: with a validation corpus, iterations from one validation to the next.
      validation_compiles: compilations from one validation to the next, instead of iterations; 0 to count iterations.
    """

    num_iterations: int = 1000
    max_minutes: float = 0.0
    max_compiles: int = 0
    num_modules: int = 16
    rollouts_per_worker: int = 0
    max_staleness: int = 0
    late_share: float = 0.05
    sampling: str = "uniform"
    rollouts_per_module: int = 8
    compile_timeout_s: float = 60.0
    backend: str = "auto"
    counts_copies: bool = True
    learning_rate_decay: float = 0.2
    warmstart_policy_dir: str = ""
    seed: int = 1
    algorithm: str = "ppo"
    validation_iterations: int = 25
    validation_compiles: int = 0

    def __post_init__(self) -> None:
        check_range(self, "num_modules", "rollouts_per_module", "validation_iterations", at_least=1)
        check_range(self, "compile_timeout_s", "learning_rate_decay", over=0)
        check_range(self, "num_iterations", "max_minutes", "max_compiles", at_least=0)
        check_range(self, "validation_compiles", "rollouts_per_worker", at_least=0)
        check_range(self, "max_staleness", at_least=0, at_most=_MAX_STALENESS)
        check_range(self, "late_share", at_least=0, at_most=0.5)
        rollout_settings.check_name(self.backend)
        check_sampling(self.sampling)

    def modules_per_iteration(self, num_workers: int) -> int:
        """How many modules to draw for an iteration."""
        return max(self.num_modules, math.ceil(self.rollouts_per_worker * num_workers / self.rollouts_per_module))


@dataclasses.dataclass(frozen=True)
class VocabularyConfig:
    """Which quantiles of a trace's features make a vocabulary.

    Attributes:
      num_quantiles: quantiles of each feature.
      project_balance: 0 to count all decisions alike, 1 to count all projects alike; between them, a project of n
        decisions counts n ** (1 - project_balance).
      distinct_share: share of the ranks that are spread evenly over a feature's distinct values instead of over the
        decisions, so that values that are rare, but far from the others, get quantiles of their own.
    """

    num_quantiles: int = 64
    project_balance: float = 0.0
    distinct_share: float = 0.0

    def __post_init__(self) -> None:
        check_range(self, "num_quantiles", at_least=2, at_most=1 << 16)
        check_range(self, "project_balance", "distinct_share", at_least=0, at_most=1)


@dataclasses.dataclass(frozen=True)
class BehavioralCloningConfig:
    """Hyperparameters of behavioural cloning.

    Attributes:
      vocab_path: the vocabulary's folder.
      learning_rate: of Adam, in the first epoch; decays exponentially towards a tenth over `num_epochs`.
      num_epochs: most passes over the examples.
      patience: epochs without a lower loss on the held-out modules after which learning stops.
      batch_size: examples per gradient step.
      label_smoothing: probability of the actions that were *not* taken or, for a real number, the standard deviation
        around it; 0 for the least possible. A teacher's probabilities are not smoothed.
      holdout_fraction: share of the modules that are held out to measure the loss: whole projects, as far as the share
        allows, otherwise modules of all projects.
      project_balance: 0 to count all decisions alike, 1 to count all projects alike; between them, a project of n
        decisions counts n ** (1 - project_balance). Metrics of the held-out modules count decisions alike.
      max_decisions: most decisions to read; a longer trace is sampled. Each takes 8 bytes of memory per feature.
      seed: of weights, split and order.
    """

    vocab_path: str = ""
    learning_rate: float = 2e-3
    num_epochs: int = 30
    patience: int = 5
    batch_size: int = 1024
    label_smoothing: float = 0.03
    holdout_fraction: float = 0.1
    project_balance: float = 0.0
    max_decisions: int = 2_000_000
    seed: int = 1

    def __post_init__(self) -> None:
        check_range(self, "num_epochs", "patience", "batch_size", "max_decisions", at_least=1)
        check_range(self, "learning_rate", over=0)
        check_range(self, "label_smoothing", at_least=0, below=0.5)
        check_range(self, "holdout_fraction", over=0, below=1)
        check_range(self, "project_balance", at_least=0, at_most=1)


@dataclasses.dataclass(frozen=True)
class LearnerConfig:
    """Hyperparameters that `ppo`, `reinforce` and `dqn` share.

    Attributes:
      learning_rate: of Adam.
      minibatch_size: decisions per gradient step.
      gradient_clipping: largest norm of a gradient: of all variables together (`ppo`), or of each one.
      project_balance: 0 to count all decisions of an iteration alike, 1 to count all projects alike; between them, a
        project of n decisions counts n ** (1 - project_balance), in all terms of the loss.
      max_decisions: most decisions that an update learns from; of which, each algorithm says.
      averaging: decay per iteration of the moving average of the weights, which is the policy that is saved.
    """

    learning_rate: float = 1e-3
    minibatch_size: int = 4096
    gradient_clipping: float = 1.0
    project_balance: float = 0.0
    max_decisions: int = 100_000
    averaging: float = 0.9

    def __post_init__(self) -> None:
        check_range(self, "minibatch_size", "max_decisions", at_least=1)
        check_range(self, "averaging", at_least=0, below=1)
        check_range(self, "project_balance", at_least=0, at_most=1)
        check_range(self, "learning_rate", "gradient_clipping", over=0)


@dataclasses.dataclass(frozen=True)
class RandomNetworkDistillationConfig:
    """An exploration bonus for decisions that lead to new observations, see `rl.random_network_distillation`.

    Gin files and histories call it `novelty`.

    Attributes:
      weight: of the bonus in the advantages, which have unit variance: 1 counts a step from what is known to what is as
        new as everything was in the first iteration like one standard deviation. 0 for no bonus.
      discount: how much less each further decision of the rollout counts.
      learning_rate: of Adam, for the network that learns what is known.
    """

    weight: float = 0.0
    discount: float = 0.9
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        check_range(self, "weight", at_least=0)
        check_range(self, "discount", at_least=0, below=1)
        check_range(self, "learning_rate", over=0)


def check_bonus(config: RandomNetworkDistillationConfig, advantages: Advantages) -> None:
    """Raises ConfigError if these advantages have no place for a bonus."""
    if config.weight and advantages.uses_value_network:
        raise ConfigError(
            "novelty.weight: expected 0 with advantages.kind = 'moving_average', whose value network does not predict "
            "the bonus; use advantages.kind = 'group_relative'"
        )


def check_rollouts(config: TrainingConfig, advantages: Advantages) -> None:
    """Raises ConfigError if modules have too few rollouts for these advantages."""
    if config.rollouts_per_module < advantages.min_rollouts:
        raise ConfigError(
            f"train_eval.rollouts_per_module: expected at least {advantages.min_rollouts}, which these advantages "
            f"compare with each other, found {config.rollouts_per_module}; use more, or "
            "advantages.kind = 'moving_average'"
        )


def check_value_network(advantages: Advantages, name: str, coefficient: float) -> None:
    """Raises ConfigError if these advantages need a value network that would learn nothing.

    Args:
      advantages: the advantages.
      name: of the setting that says how much the value network's error counts in the loss.
      coefficient: its value.
    """
    if advantages.uses_value_network and not coefficient:
        raise ConfigError(
            f"advantages.kind = 'moving_average' subtracts the value network's predictions: expected {name} over 0, "
            "found 0, with which that network learns nothing; 0.5 is usual"
        )


_BOUNDS = {
    "at_least": ("at least", operator.ge),
    "over": ("a number over", operator.gt),
    "at_most": ("at most", operator.le),
    "below": ("less than", operator.lt),
}


def check_range(config: object, *names: str, **bounds: float) -> None:
    """Raises ValueError unless the named fields are within bounds: `at_least`, `over`, `at_most`, `below`."""
    expected = " and ".join(f"{_BOUNDS[key][0]} {bound:g}" for key, bound in bounds.items())
    for name in names:
        found = getattr(config, name)
        if not all(_BOUNDS[key][1](found, bound) for key, bound in bounds.items()):
            raise ValueError(f"{name}: expected {expected}, found {found}")
