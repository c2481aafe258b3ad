"""What gin can set of learning, as plain dataclasses: read, and found wrong, before TensorFlow has been waited for."""

import dataclasses

from compiler_opt.collect.compilation import check_backend
from compiler_opt.corpus.sampling import check_sampling


@dataclasses.dataclass(frozen=True)
class BehavioralCloningConfig:
    """How the policy learns.

    Attributes:
      vocab_path: folder of the vocabulary.
      learning_rate: of Adam, at the start; falls to a tenth over `num_epochs`.
      num_epochs: how often each example is looked at, at most.
      patience: epochs without a better loss on the held-out modules before it stops.
      batch_size: examples per gradient step.
      label_smoothing: probability that is given to what was *not* decided, or the deviation that is put around a
        number; 0 for as little as can be.
      holdout_fraction: share of the modules that only measure how good it is.
      max_decisions: of a longer trace, so many decisions are drawn at random; each takes 8 bytes per feature in memory.
      seed: of weights, split and order.
    """

    vocab_path: str = ""
    learning_rate: float = 2e-3
    num_epochs: int = 30
    patience: int = 5
    batch_size: int = 1024
    label_smoothing: float = 0.03
    holdout_fraction: float = 0.1
    max_decisions: int = 2_000_000
    seed: int = 1

    def __post_init__(self) -> None:
        _check_at_least_1(self, "num_epochs", "patience", "batch_size", "max_decisions")
        _check_over_0(self, "learning_rate")
        if not 0 <= self.label_smoothing < 0.5:
            raise ValueError(f"label_smoothing: expected at least 0 and less than 0.5, found {self.label_smoothing}")
        if not 0 < self.holdout_fraction < 1:
            raise ValueError(f"holdout_fraction: expected a number between 0 and 1, found {self.holdout_fraction}")


METHODS = ("ppo", "deviations", "evolution")
"""How training learns."""


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """How long and on what.

    Attributes:
      num_iterations: policy updates.
      max_minutes: stop after so much training, over all sessions of the run; 0 for no limit.
      num_modules: modules of an iteration.
      sampling: which: `uniform`, each as often as any other; `size`, in proportion to the bytes of its bitcode;
        `decisions`, to the number of decisions in it, which are counted first.
      rollouts_per_module: compilations of each, under the same policy.
      compile_timeout_s: wall-clock seconds of one compilation.
      backend: how decisions get into the compiler, see `RolloutSettings`.
      learning_rate_decay: of `ppo`, what is left of the learning rate at the end, as a share of the first.
      warmstart_policy_dir: folder of the policy to start from, such as one from behavioural cloning.
      seed: of everything that is drawn.
      method: `ppo` (see `rl.ppo`), `deviations` (see `rl.deviations`) or `evolution` (see `rl.evolution`).
    """

    num_iterations: int = 1000
    max_minutes: float = 0.0
    num_modules: int = 16
    sampling: str = "uniform"
    rollouts_per_module: int = 8
    compile_timeout_s: float = 60.0
    backend: str = "auto"
    learning_rate_decay: float = 0.2
    warmstart_policy_dir: str = ""
    seed: int = 1
    method: str = "ppo"

    def __post_init__(self) -> None:
        _check_at_least_1(self, "num_iterations", "num_modules", "rollouts_per_module")
        _check_over_0(self, "compile_timeout_s", "learning_rate_decay")
        check_backend(self.backend)
        check_sampling(self.sampling)
        if self.method not in METHODS:
            raise ValueError(f"method: expected one of {', '.join(METHODS)}, found {self.method!r}")
        if self.max_minutes < 0:
            raise ValueError(f"max_minutes: expected at least 0, found {self.max_minutes}")


@dataclasses.dataclass(frozen=True)
class PPOConfig:
    """How the policy learns.

    Attributes:
      learning_rate: of Adam.
      num_epochs: how often each decision is looked at.
      minibatch_size: decisions per gradient step.
      importance_ratio_clipping: how far the policy may move from the one that decided, as a ratio of probabilities.
      entropy_regularization: weight of the policy's entropy; keeps it exploring.
      value_pred_loss_coef: weight of the value network's error; 0 when advantages do not use it.
      gradient_clipping: largest norm of a gradient.
      max_decisions: a larger iteration is sampled down to so many decisions.
      averaging: what an iteration leaves of the average of the weights before it; the policy saved is the average.
    """

    learning_rate: float = 1e-3
    num_epochs: int = 3
    minibatch_size: int = 4096
    importance_ratio_clipping: float = 0.2
    entropy_regularization: float = 0.1
    value_pred_loss_coef: float = 0.0
    gradient_clipping: float = 1.0
    max_decisions: int = 100_000
    averaging: float = 0.9

    def __post_init__(self) -> None:
        _check_at_least_1(self, "num_epochs", "minibatch_size", "max_decisions")
        if not 0 <= self.averaging < 1:
            raise ValueError(f"averaging: expected at least 0 and less than 1, found {self.averaging}")
        _check_over_0(self, "learning_rate", "importance_ratio_clipping", "gradient_clipping")


@dataclasses.dataclass(frozen=True)
class DeviationsConfig:
    """How the policy learns from single deviations, see `rl.deviations`.

    Attributes:
      learning_rate: of Adam.
      minibatch_size: samples per gradient step.
      steps: gradient steps of an iteration.
      final_networks: how many are trained anew at the end, each on a draw of the samples; their mean is the policy.
      final_steps: gradient steps of each of them, with a learning rate that falls to a tenth.
      weight_decay: of all kernels.
      averaging: what twenty steps leave of the average of the weights before it; the average decides.
      first_margin: what leaving the compiler's own choice must promise at the beginning, as a gain.
      last_margin: and at the end, when more is known.
      score_offset: added to scores before their ratio is taken.
      largest_gain: where gains are cut off.
      first_samples: how many are collected before the policy to start from is left.
      uniform_share: share of the deviations that is drawn evenly; the rest by how promising they are.
      promise_temperature: how far behind the chosen candidate others still promise something, as a gain.
      max_samples: the oldest beyond so many are forgotten.
    """

    learning_rate: float = 1e-3
    minibatch_size: int = 512
    steps: int = 300
    final_networks: int = 4
    final_steps: int = 2000
    weight_decay: float = 1e-5
    averaging: float = 0.9
    first_margin: float = 0.3
    last_margin: float = 0.2
    score_offset: float = 1.0
    largest_gain: float = 3.0
    first_samples: int = 15_000
    uniform_share: float = 0.4
    promise_temperature: float = 0.03
    max_samples: int = 500_000

    def __post_init__(self) -> None:
        _check_at_least_1(self, "minibatch_size", "steps", "final_networks", "final_steps", "max_samples")
        _check_over_0(self, "learning_rate", "promise_temperature", "score_offset", "largest_gain")
        for name in ("weight_decay", "first_margin", "last_margin", "first_samples"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}: expected at least 0, found {getattr(self, name)}")
        if not 0 <= self.averaging < 1:
            raise ValueError(f"averaging: expected at least 0 and less than 1, found {self.averaging}")
        if not 0 < self.uniform_share <= 1:
            raise ValueError(f"uniform_share: expected a number over 0 and at most 1, found {self.uniform_share}")


@dataclasses.dataclass(frozen=True)
class EvolutionConfig:
    """How the parameters of a rule are searched for, see `rl.evolution`, and how the rule is then cloned.

    Attributes:
      exploration: standard deviation of the directions, in scales of each parameter.
      step: how far an iteration moves a parameter whose gradient is sure, in scales.
      sure: how many standard errors make it sure.
      momentum: what an iteration leaves of the gradients before it.
      averaging: what an iteration leaves of the average of the parameters before it; the average is cloned.
      hotness: what makes a function count, as a power of its score: with 0 all count alike and what is better is better
        by a share of the function's score, with 1 what is better is the total.
      score_offset: added to scores that are divided by: of a function that costs next to nothing even half is not much.
      cloned_modules: modules whose decisions under the rule the network learns.
      num_epochs: of cloning, see `BehavioralCloningConfig`.
      learning_rate: of cloning.
    """

    exploration: float = 0.6
    step: float = 0.5
    sure: float = 3.0
    momentum: float = 0.75
    averaging: float = 0.85
    hotness: float = 0.3
    score_offset: float = 5.0
    cloned_modules: int = 300
    num_epochs: int = 50
    learning_rate: float = 2e-3

    def __post_init__(self) -> None:
        _check_at_least_1(self, "cloned_modules", "num_epochs")
        _check_over_0(self, "exploration", "step", "sure", "score_offset", "learning_rate")
        if not 0 <= self.hotness <= 1:
            raise ValueError(f"hotness: expected a number from 0 to 1, found {self.hotness}")
        for name in ("momentum", "averaging"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name}: expected at least 0 and less than 1, found {getattr(self, name)}")

    def cloning(self, seed: int) -> BehavioralCloningConfig:
        """How the rule is cloned: more exactly than what is to be a mere beginning."""
        return BehavioralCloningConfig(
            learning_rate=self.learning_rate,
            num_epochs=self.num_epochs,
            batch_size=512,
            label_smoothing=0.01,
            seed=seed,
        )


def _check_at_least_1(config: object, *names: str) -> None:
    for name in names:
        if getattr(config, name) < 1:
            raise ValueError(f"{name}: expected at least 1, found {getattr(config, name)}")


def _check_over_0(config: object, *names: str) -> None:
    for name in names:
        if not getattr(config, name) > 0:
            raise ValueError(f"{name}: expected a number over 0, found {getattr(config, name)}")
