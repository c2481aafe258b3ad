"""The dataclasses that gin can set in each command, by their names in gin.

Commands also accept settings that they do not use, so that one gin file serves all steps of a pipeline.
"""

from compiler_opt.collect.rollout import RolloutSettings
from compiler_opt.corpus.command_lines.problem_config import ProblemConfig
from compiler_opt.llvm.ir2vec import InliningConfig
from compiler_opt.policies.weights import NetworkConfig
from compiler_opt.rl import algorithms
from compiler_opt.rl.config import BehavioralCloningConfig, TrainingConfig

_SHARED: dict[str, type] = {"network": NetworkConfig, "problem_config": ProblemConfig, "inlining": InliningConfig}


def of_compilations() -> dict[str, type]:
    """The classes of generate_default_trace and evaluate."""
    return {"rollout": RolloutSettings, **_SHARED}


def of_cloning() -> dict[str, type]:
    """The classes of train_bc."""
    return {"train_eval": BehavioralCloningConfig, **_SHARED}


def of_training() -> dict[str, type]:
    """The classes of train_locally and optimize, including those of all algorithms."""
    return {"train_eval": TrainingConfig, **algorithms.config_classes(), **_SHARED}
