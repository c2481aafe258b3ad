"""What gin can bind of training: the one place where configuration files meet the code.

    train_eval   TrainingConfig
    ppo          PPOConfig
    network      NetworkConfig
    advantages   which advantages, and their parameters
"""

import gin

from compiler_opt.collect.advantages import Advantages, GroupRelative, MovingAverage
from compiler_opt.errors import ConfigError
from compiler_opt.rl import networks, ppo, training

TrainingConfig = gin.external_configurable(training.TrainingConfig, "train_eval")
PPOConfig = gin.external_configurable(ppo.PPOConfig, "ppo")
NetworkConfig = gin.external_configurable(networks.NetworkConfig, "network")


@gin.configurable
def advantages(
    kind: str = "group_relative", credit: str = "function", module_weight: float = 0.1, decay: float = 0.9
) -> Advantages:
    """What decisions are worth.

    Args:
      kind: `group_relative`, or `moving_average` for the classical module reward (set `ppo.value_pred_loss_coef` too).
      credit: with `group_relative`, `function` or `module`.
      module_weight: with `function` credit, the share of the module's own advantage that is added.
      decay: of the moving average.

    Raises:
      ConfigError: an unknown kind or credit.
    """
    if kind == "moving_average":
        return MovingAverage(decay)
    if kind != "group_relative" or credit not in ("function", "module"):
        raise ConfigError(
            f"advantages: expected kind 'group_relative' or 'moving_average' and credit 'function' or 'module', "
            f"found {kind!r} and {credit!r}"
        )
    return GroupRelative(credit, module_weight)
