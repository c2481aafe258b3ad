"""The ways to train, by the name in `train_eval.method`."""

import dataclasses

from compiler_opt.collect.advantages import AdvantagesConfig
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.rl import run_settings
from compiler_opt.rl.config import DeviationsConfig, EvolutionConfig, PPOConfig
from compiler_opt.rl.deviation_training import DeviationTraining
from compiler_opt.rl.evolution_training import EvolutionTraining
from compiler_opt.rl.ppo_training import PPOTraining
from compiler_opt.rl.training import Run


@dataclasses.dataclass(frozen=True)
class Methods:
    """How each of them learns.

    Attributes:
      ppo: the policy, by `ppo`.
      advantages: for `ppo`, what decisions are worth.
      deviations: by `deviations`.
      evolution: by `evolution`.
    """

    ppo: PPOConfig = dataclasses.field(default_factory=PPOConfig)
    advantages: AdvantagesConfig = dataclasses.field(default_factory=AdvantagesConfig)
    deviations: DeviationsConfig = dataclasses.field(default_factory=DeviationsConfig)
    evolution: EvolutionConfig = dataclasses.field(default_factory=EvolutionConfig)


_CONFIGS = {"ppo": ("ppo", "advantages"), "deviations": ("deviations",), "evolution": ("evolution",)}
"""What each method is configured by, of `Methods`."""


def train(run: Run, methods: Methods) -> NetworkWeights:
    """Trains to the end and saves the policy, or goes on where it was interrupted.

    Args:
      run: what and where; says which method.
      methods: how that learns.

    Raises:
      CorpusError, PolicyError, OutputError, ConfigError: something does not fit, or fails on the way.
    """
    learns = {name: getattr(methods, name) for name in _CONFIGS[run.config.method]}
    configs = {"train_eval": run.config, "network": run.network, **learns}
    settings = run_settings.describe(run.problem.name, run.corpus, run.toolchain, configs)
    run = dataclasses.replace(run, settings=settings)
    if run.config.method == "deviations":
        return DeviationTraining(run, methods.deviations).run()
    if run.config.method == "evolution":
        return EvolutionTraining(run, methods.evolution).run()
    return PPOTraining(run, methods.ppo, methods.advantages.build()).run()
