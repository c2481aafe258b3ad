"""What PPO refuses before it learns; without TensorFlow."""

import types
from typing import cast

import pytest

from compiler_opt.collect.advantages import AdvantagesConfig
from compiler_opt.errors import ConfigError
from compiler_opt.rl.algorithm import AlgorithmConfigs
from compiler_opt.rl.algorithms.ppo import ALGORITHM
from compiler_opt.rl.config import TrainingConfig
from compiler_opt.rl.training_run import TrainingRun


def test_a_single_rollout_has_nothing_to_be_compared_with() -> None:
    run = cast(TrainingRun, types.SimpleNamespace(config=TrainingConfig(rollouts_per_module=1)))
    with pytest.raises(ConfigError, match=r"rollouts_per_module: expected at least 2, .*, found 1; use more"):
        ALGORITHM.build(run, AlgorithmConfigs([AdvantagesConfig()]))
