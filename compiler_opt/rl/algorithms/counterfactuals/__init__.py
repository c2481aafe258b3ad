"""Counterfactual rollouts: one decision of each function is changed, and the gain learned by regression."""

import dataclasses

from compiler_opt.errors import ConfigError
from compiler_opt.rl.algorithm import Algorithm, AlgorithmConfigs, AlgorithmEntry
from compiler_opt.rl.config import check_at_least_1, check_over_0
from compiler_opt.rl.training_context import TrainingContext
from compiler_opt.spaces.masked_categorical import MaskedCategorical


@dataclasses.dataclass(frozen=True)
class CounterfactualsConfig:
    """How the policy learns.

    Attributes:
      learning_rate: of Adam.
      minibatch_size: samples per gradient step.
      steps: gradient steps of an iteration.
      final_networks: how many are trained anew at the end, on a bootstrap of the samples; their mean is the policy.
      final_steps: gradient steps of each of them, with a learning rate that falls to a tenth.
      weight_decay: of all kernels.
      averaging: what twenty steps leave of the average of the weights before it; the average decides.
      first_margin: expected gain from which on the policy leaves the compiler's own choice, at the beginning.
      last_margin: and at the end, when estimates are better.
      score_offset: added to scores before their ratio is taken.
      largest_gain: where gains are cut off.
      first_samples: how many are collected before the network is trained and takes over from the warm start.
      uniform_share: share of the counterfactuals that is drawn uniformly; the rest by the gain that is expected.
      promise_temperature: of the softmax over expected gains by which the rest is drawn.
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
        check_at_least_1(self, "minibatch_size", "steps", "final_networks", "final_steps", "max_samples")
        check_over_0(self, "learning_rate", "promise_temperature", "score_offset", "largest_gain")
        for name in ("weight_decay", "first_margin", "last_margin", "first_samples"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}: expected at least 0, found {getattr(self, name)}")
        if not 0 <= self.averaging < 1:
            raise ValueError(f"averaging: expected at least 0 and less than 1, found {self.averaging}")
        if not 0 < self.uniform_share <= 1:
            raise ValueError(f"uniform_share: expected a number over 0 and at most 1, found {self.uniform_share}")


def build(context: TrainingContext, configs: AlgorithmConfigs) -> Algorithm:
    """Raises ConfigError when the problem's decisions are not among candidates."""
    if not isinstance(context.problem.action_space, MaskedCategorical):
        raise ConfigError(f"{context.problem.name}: counterfactuals are for problems that choose among candidates")
    if context.config.rollouts_per_module < 2:
        raise ConfigError("train_eval.rollouts_per_module: expected at least 2, one of which is a counterfactual")
    from compiler_opt.rl.algorithms.counterfactuals.algorithm import Counterfactuals

    return Counterfactuals(context, configs.get(CounterfactualsConfig))


ALGORITHM = AlgorithmEntry({"counterfactuals": CounterfactualsConfig}, build)
