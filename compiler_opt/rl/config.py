"""What gin can set of learning, as plain dataclasses: read, and found wrong, before TensorFlow has been waited for."""

import dataclasses

from compiler_opt.collect import backends
from compiler_opt.corpus.sampling import check_sampling

POLICY_DIR = "policy"
"""Where the policy is in the folder of a warm start or of a training."""


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
      algorithm: a module or folder of `rl/algorithms/`.
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
    algorithm: str = "ppo"

    def __post_init__(self) -> None:
        check_at_least_1(self, "num_iterations", "num_modules", "rollouts_per_module")
        check_over_0(self, "compile_timeout_s", "learning_rate_decay")
        backends.check_name(self.backend)
        check_sampling(self.sampling)
        if self.max_minutes < 0:
            raise ValueError(f"max_minutes: expected at least 0, found {self.max_minutes}")


def check_at_least_1(config: object, *names: str) -> None:
    """Raises ValueError when one of the fields is less."""
    for name in names:
        if getattr(config, name) < 1:
            raise ValueError(f"{name}: expected at least 1, found {getattr(config, name)}")


def check_over_0(config: object, *names: str) -> None:
    """Raises ValueError when one of the fields is not."""
    for name in names:
        if not getattr(config, name) > 0:
            raise ValueError(f"{name}: expected a number over 0, found {getattr(config, name)}")
