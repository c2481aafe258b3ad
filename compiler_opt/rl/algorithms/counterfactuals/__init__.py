"""Counterfactual rollouts: one decision of each function is changed, and the gain learned by regression."""

import dataclasses

from compiler_opt.errors import ConfigError
from compiler_opt.rl.algorithm import Algorithm, AlgorithmConfigs, AlgorithmEntry
from compiler_opt.rl.config import check_range
from compiler_opt.rl.training_context import TrainingContext
from compiler_opt.spaces.masked_categorical import MaskedCategorical


@dataclasses.dataclass(frozen=True)
class CounterfactualsConfig:
    """Hyperparameters of counterfactual rollouts.

    Attributes:
      learning_rate: of Adam.
      minibatch_size: samples per gradient step.
      steps: gradient steps per iteration.
      final_networks: networks trained anew at the end, each on a bootstrap of the samples; their mean is the policy.
      final_steps: gradient steps of each final network, during which its learning rate falls towards a tenth.
      weight_decay: weight of the squared norm of all kernels in the loss.
      averaging: decay per 20 gradient steps of the moving average of the weights, which decides.
      first_margin: expected gain over which the policy departs from the default's choice, at the start of the training.
      last_margin: the same at its end, when estimates are better.
      score_offset: added to scores before their ratio is taken.
      largest_gain: bound of the absolute value of gains.
      first_samples: samples to collect before the network is trained and replaces the warm start.
      uniform_share: share of the counterfactuals drawn uniformly; the others are drawn by their expected gain.
      promise_temperature: of the softmax over expected gains by which those are drawn.
      max_samples: most samples to keep; the oldest are dropped.
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
        check_range(self, "minibatch_size", "steps", "final_networks", "final_steps", "max_samples", at_least=1)
        check_range(self, "learning_rate", "promise_temperature", "score_offset", "largest_gain", over=0)
        check_range(self, "weight_decay", "first_margin", "last_margin", "first_samples", at_least=0)
        check_range(self, "averaging", at_least=0, below=1)
        check_range(self, "uniform_share", over=0, at_most=1)


def build(context: TrainingContext, configs: AlgorithmConfigs) -> Algorithm:
    """Raises ConfigError unless the problem's decisions are choices among candidates."""
    if not isinstance(context.problem.decision.action_space, MaskedCategorical):
        raise ConfigError(f"{context.problem.name}: counterfactuals are for problems that choose among candidates")
    if context.config.rollouts_per_module < 2:
        raise ConfigError("train_eval.rollouts_per_module: expected at least 2, one of which is a counterfactual")
    from compiler_opt.rl.algorithms.counterfactuals.algorithm import Counterfactuals

    return Counterfactuals(context, configs.get(CounterfactualsConfig))


ALGORITHM = AlgorithmEntry({"counterfactuals": CounterfactualsConfig}, build)
