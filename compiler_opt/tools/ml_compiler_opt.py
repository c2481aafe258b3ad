"""Spellings of google/ml-compiler-opt: those that commands accept here, and the new names of the others.

Its commands work as they are written: the paths of its gin files stand for ours, some of its gin names for our
settings, and each is reported once with its name here. Its other names are refused, with what takes their place.
docs/coming_from_ml_compiler_opt.md has the whole map.
"""

from collections.abc import Collection
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

PAGE = "docs/coming_from_ml_compiler_opt.md"

GIN_FOLDERS = MappingProxyType(
    {
        "compiler_opt/rl/inlining/gin_configs": "gin_configs/inlining",
        "compiler_opt/rl/regalloc/gin_configs": "gin_configs/regalloc_eviction",
        "compiler_opt/rl/regalloc_priority/gin_configs": "gin_configs/regalloc_priority",
        "compiler_opt/rl/gin_configs": "gin_configs/inlining",
    }
)
"""Folders of its gin files -> ours, from the root of the repository."""

CONFIGURATIONS = MappingProxyType(
    {
        "configs.InliningConfig": "inlining",
        "configs.RegallocEvictionConfig": "regalloc_eviction",
        "configs.RegallocPriorityConfig": "regalloc_priority",
    }
)
"""Its classes of problems -> our problems."""

_IMPLEMENTATION = "config_registry.get_configuration.implementation"

SETTINGS = MappingProxyType(
    {
        "clang_path": "command.clang_path",
        _IMPLEMENTATION: "command.compile_task",
        "problem_config.flags_to_add.add_flags": "problem_config.flags_to_add",
        "problem_config.flags_to_delete.delete_flags": "problem_config.flags_to_delete",
        "problem_config.flags_to_replace.replace_flags": "problem_config.flags_to_replace",
    }
)
"""Its gin names that are accepted -> our settings."""

UNNEEDED = MappingProxyType({"llvm_size_path": "sizes are read from the objects"})
"""Its gin names, also flags, that are accepted and have nothing to do here -> why."""

_IN_FLAGS_TO = "problem_config.flags_to_"

GIN_NAMES = MappingProxyType(
    {
        "launcher_path": "",
        "train_eval.num_policy_iterations": "train_eval.num_iterations",
        "train_eval.num_iterations": "train_eval.num_epochs",
        "train_eval.batch_size": "ppo.minibatch_size",
        "train_eval.agent_name": "train_eval.algorithm",
        "train_eval.agent_config_type": "train_eval.algorithm",
        "train_eval.moving_average_decay_rate": "advantages.decay, with advantages.kind = 'moving_average'",
        "train_eval.additional_compilation_flags": f"{_IN_FLAGS_TO}add",
        "train_eval.additional_flags": f"{_IN_FLAGS_TO}add",
        "train_eval.flags_to_add": f"{_IN_FLAGS_TO}add",
        "train_eval.delete_compilation_flags": f"{_IN_FLAGS_TO}delete",
        "train_eval.deploy_policy_name": "",
        "train_eval.train_sequence_length": "",
        "train_eval.use_random_network_distillation": "novelty.weight",
        "train_eval.dump_best_trajectory": "",
        "get_observation_processing_layer_creator.quantile_file_dir": "--vocab_path",
        "get_observation_processing_layer_creator": "",
        "create_agent": "",
        "ActorDistributionNetwork.fc_layer_params": "network.fc_layer_params",
        "QNetwork.fc_layer_params": "network.fc_layer_params",
        "RegAllocNetwork.fc_layer_params": "network.fc_layer_params",
        "ActorDistributionNetwork": "",
        "QNetwork": "",
        "QRnnNetwork": "",
        "RegAllocNetwork": "",
        "AdamOptimizer.learning_rate": "ppo.learning_rate, and train_eval.learning_rate of train_bc",
        "AdamOptimizer": "",
        "PPOAgent.importance_ratio_clipping": "ppo.importance_ratio_clipping",
        "PPOAgent.entropy_regularization": "ppo.entropy_regularization",
        "PPOAgent.value_pred_loss_coef": "ppo.value_pred_loss_coef",
        "PPOAgent.num_epochs": "ppo.num_epochs",
        "PPOAgent.gradient_clipping": "ppo.gradient_clipping",
        "PPOAgent": "",
        "BehavioralCloningAgent": "",
        "DqnAgent": "",
        "RandomNetworkDistillation": "",
        "ConstantValueNetwork": "",
        "InliningRunner.clang_path": "--clang_path",
        "RegAllocRunner.clang_path": "--clang_path",
        "RegAllocPriorityRunner.clang_path": "--clang_path",
        "InliningRunner": "",
        "RegAllocRunner": "",
        "RegAllocPriorityRunner": "",
    }
)
"""Its gin names, without modules, that are refused -> what takes their place; empty if nothing does. A name without a
parameter stands for its other parameters."""

FLAGS = MappingProxyType(
    {
        "num_buckets": "num_quantiles",
        "parallelism": "num_workers",
        "sample_rate": "sampling_rate",
        "llvm_size_path": "",
        "launcher_path": "",
        "key_filter": "module_filter",
        "keys_file": "",
        "explicit_temps_dir": "",
    }
)
"""Its flags that are refused -> what takes their place; empty if nothing does."""


class Setting(NamedTuple):
    """What a binding of google/ml-compiler-opt sets here: the name of our setting, or None, its value, and a note."""

    name: str | None
    value: Any
    note: str


def gin_path(path: Path) -> Path | None:
    """Our path of the gin file that is meant by a path of google/ml-compiler-opt's; None for other paths."""
    parent = path.parent.as_posix()
    for theirs, ours in GIN_FOLDERS.items():
        if parent.endswith(theirs):
            return Path(parent.removesuffix(theirs)) / ours / path.name
    return None


def setting(name: str, value: object, reference: str) -> Setting | None:
    """What a binding sets here; None if it is not one of those that are accepted.

    Args:
      name: with modules, such as `problem_config.flags_to_add.add_flags`.
      value: what it is bound to.
      reference: the name in a value `@NAME`; empty for other values.

    Raises:
      ValueError: it names a problem that is not available.
    """
    if name in UNNEEDED:
        return Setting(None, value, f"{name} has no use here: {UNNEEDED[name]}")
    if name not in SETTINGS:
        return None
    if name == _IMPLEMENTATION:
        if reference not in CONFIGURATIONS:
            expected = ", ".join(f"@{known}" for known in CONFIGURATIONS)
            raise ValueError(f"expected one of {expected}, found {f'@{reference}' if reference else value!r}")
        value = CONFIGURATIONS[reference]
        return Setting(SETTINGS[name], value, f"{name} = @{reference} is --compile_task={value} here")
    flag = "--clang_path" if name == "clang_path" else SETTINGS[name]
    return Setting(SETTINGS[name], value, f"{name} is {flag} here")


def refusal(name: str) -> str | None:
    """What takes the place of a gin name that is refused, for a message; None for other names."""
    parts = name.split(".")
    for start in range(len(parts)):
        for key in (".".join(parts[start:]), ".".join(parts[start:-1])):
            if key in GIN_NAMES:
                return _replacement(GIN_NAMES[key])
    return None


def flag_refusal(name: str, flags: Collection[str]) -> str | None:
    """The same for a flag that a command with these flags does not have."""
    ours = FLAGS.get(name)
    if ours is None or (ours and ours not in flags):
        return None
    return _replacement(f"--{ours}" if ours else "")


def _replacement(ours: str) -> str:
    return f"{f'is {ours}' if ours else 'has no counterpart'} here, see {PAGE}"
