"""Reads gin files and bindings into frozen dataclasses, so that no library depends on gin.

    _GIN = gin_settings.GinFlags()

    settings = _GIN.read(gin_settings.of_training())
    settings["network"]  # a NetworkConfig with the values of `network.NAME = VALUE`, and defaults for other fields

Only fields of the dataclasses can be bound, to values of their types: an unknown name or a wrong value is an error.
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

from absl import flags

from compiler_opt.checked_values import convert
from compiler_opt.collect.rollout import RolloutSettings
from compiler_opt.corpus.command_lines.problem_config import ProblemConfig
from compiler_opt.errors import ConfigError
from compiler_opt.llvm.inlining_config import InliningConfig
from compiler_opt.policies.weights import NetworkConfig
from compiler_opt.rl import algorithms
from compiler_opt.rl.config import BehavioralCloningConfig, TrainingConfig, VocabularyConfig
from compiler_opt.tools import entry_point

T = TypeVar("T")

flags.disclaim_key_flags()

_SHARED: dict[str, type] = {
    "network": NetworkConfig,
    "problem_config": ProblemConfig,
    "inlining": InliningConfig,
    "vocabulary": VocabularyConfig,
}
"""Name in gin -> dataclass, for all commands. One file serves all: what a command does not use, it ignores in a file,
and warns of in a binding."""


@dataclasses.dataclass(frozen=True)
class TraceCommandConfig:
    """Flags of a command that reads a trace, as far as gin can set them.

    Attributes:
      compile_task: the problem that the settings are for, as `--compile_task`; empty if they do not say.
    """

    compile_task: str = ""


@dataclasses.dataclass(frozen=True)
class CommandConfig(TraceCommandConfig):
    """Flags of a command that compiles, as far as gin can set them.

    Attributes:
      clang_path: the compiler, as `--clang_path`; None if they do not say.
    """

    clang_path: str | None = None


def of_compilations() -> dict[str, type]:
    """The dataclasses that gin can set in generate_default_trace and evaluate, by their names in gin."""
    return {"command": CommandConfig, "rollout": RolloutSettings, **_SHARED}


def of_vocabulary() -> dict[str, type]:
    """The same for generate_vocab."""
    return {"command": TraceCommandConfig, **_SHARED}


def of_cloning() -> dict[str, type]:
    """The same for train_bc."""
    return {"command": TraceCommandConfig, "train_eval": BehavioralCloningConfig, **_SHARED}


def of_training() -> dict[str, type]:
    """The same for train_locally and optimize; includes the settings of all algorithms."""
    return {"command": CommandConfig, "train_eval": TrainingConfig, **algorithms.config_classes(), **_SHARED}


class GinFlags:
    """The flags `--gin_files` and `--gin_bindings` of the module that makes this."""

    def __init__(self, files: str = "Gin files with settings.") -> None:
        self.files = flags.DEFINE_multi_string("gin_files", [], files)
        self.bindings = flags.DEFINE_multi_string(
            "gin_bindings", [], "Gin bindings NAME.FIELD=VALUE, which override the files."
        )

    def read(self, classes: Mapping[str, type], unused: Collection[str] = ()) -> dict[str, Any]:
        """See the function `read`."""
        return read(classes, self.files.value, self.bindings.value, unused)


def read(
    classes: Mapping[str, type], files: Sequence[str], bindings: Sequence[str], unused: Collection[str] = ()
) -> dict[str, Any]:
    """Reads gin files, then bindings such as `train_eval.num_epochs=10`, which override the files.

    Prints a warning for each binding that has no effect: of a class that the command does not use, or of an algorithm
    other than that of the training.

    Args:
      classes: name in gin -> dataclass whose fields all have defaults.
      files: paths of gin files.
      bindings: gin bindings.
      unused: names of the classes that the command does not use.

    Returns:
      an instance of each class, by the same names.

    Raises:
      ConfigError: a file is missing or is not gin, a name is unknown, or a value does not have its field's type.
    """
    if not files and not bindings:
        return {name: config_class() for name, config_class in classes.items()}  # Saves the import of gin.
    from compiler_opt.tools.gin_reader import GinReader

    elsewhere: dict[str, set[str]] = {}
    for others in (of_compilations(), of_cloning(), of_training()):
        for name, parameters in _parameters(others).items():
            elsewhere.setdefault(name, set()).update(parameters)
    reader = GinReader(_parameters(classes), elsewhere)
    for file in files:
        reader.read_file(file)
    for binding in bindings:
        reader.read_binding(binding)
    values = reader.values()
    for note in dict.fromkeys(reader.notes):
        entry_point.note(note)
    settings = {name: _build(name, config_class, values[name]) for name, config_class in classes.items()}
    for (name, parameter), binding in reader.bindings.items():
        if name in unused:
            entry_point.warn(
                f"--gin_bindings={binding}: has no effect, as this command does not use {name}.{parameter}"
            )
        elif name in (other := _of_other_algorithms(settings)):
            entry_point.warn(f"--gin_bindings={binding}: has no effect, as train_eval.algorithm is {other[name]!r}")
    return settings


def _parameters(classes: Mapping[str, type]) -> dict[str, list[str]]:
    return {name: [field.name for field in dataclasses.fields(each)] for name, each in classes.items()}


def _of_other_algorithms(settings: Mapping[str, Any]) -> dict[str, str]:
    """The algorithm of a training, by the names of settings that only other algorithms have."""
    config = settings.get("train_eval")
    if not isinstance(config, TrainingConfig):
        return {}
    used = algorithms.load(config.algorithm).configs
    return {name: config.algorithm for name in algorithms.config_classes() if name not in used}


def override(config: T, **values: Any) -> T:
    """Replaces fields of a dataclass by the values of flags; None for a flag that was not given."""
    return dataclasses.replace(config, **{name: value for name, value in values.items() if value is not None})  # type: ignore[type-var]


def _build(name: str, config_class: type, values: Mapping[str, Any]) -> Any:
    try:
        return convert(values, config_class)
    except ValueError as error:
        # The message starts with the field's name, unless it is about several fields.
        dot = "." if str(error).partition(":")[0].partition(".")[0] in values else ": "
        raise ConfigError(f"gin: {name}{dot}{error}") from error
