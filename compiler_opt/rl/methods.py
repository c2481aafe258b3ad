"""The ways to train, by the name in `train_eval.method`."""

from compiler_opt.collect.advantages import AdvantagesConfig
from compiler_opt.policies.network import NetworkWeights
from compiler_opt.rl.config import DeviationsConfig, PPOConfig
from compiler_opt.rl.deviation_training import DeviationTraining
from compiler_opt.rl.ppo_training import PPOTraining
from compiler_opt.rl.training import Run


def train(run: Run, ppo: PPOConfig, advantages: AdvantagesConfig, deviations: DeviationsConfig) -> NetworkWeights:
    """Trains to the end and saves the policy, or goes on where it was interrupted.

    Args:
      run: what and where; says which method.
      ppo: for `ppo`, how the policy learns.
      advantages: for `ppo`, what decisions are worth.
      deviations: for `deviations`, how the policy learns.

    Raises:
      CorpusError, PolicyError, OutputError, ConfigError: something does not fit, or fails on the way.
    """
    if run.config.method == "deviations":
        return DeviationTraining(run, deviations).run()
    return PPOTraining(run, ppo, advantages.build()).run()
