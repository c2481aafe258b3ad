"""Reads gin files and bindings into frozen dataclasses, so that no library depends on gin.

    _GIN = gin_settings.GinFlags()

    settings = _GIN.read(gin_settings.of_training())
    settings["network"]  # a NetworkConfig with the values of `network.NAME = VALUE`, and defaults for other fields

Only fields of the dataclasses can be bound, to values of their types: an unknown name or a wrong value is an error.
"""

import contextlib
import dataclasses
import os
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from absl import flags, logging

from compiler_opt.checked_values import convert
from compiler_opt.collect.rollout import RolloutSettings
from compiler_opt.corpus.command_lines.problem_config import ProblemConfig
from compiler_opt.errors import ConfigError
from compiler_opt.files import one_line
from compiler_opt.llvm.inlining_config import InliningConfig
from compiler_opt.policies.weights import NetworkConfig
from compiler_opt.rl import algorithms
from compiler_opt.rl.config import BehavioralCloningConfig, TrainingConfig, VocabularyConfig

T = TypeVar("T")

flags.disclaim_key_flags()

_SHARED: dict[str, type] = {
    "network": NetworkConfig,
    "problem_config": ProblemConfig,
    "inlining": InliningConfig,
    "vocabulary": VocabularyConfig,
}
"""Name in gin -> dataclass, for all commands; they ignore settings of other steps, so that one file serves all."""

_MODULE = "compiler_opt"

_GIN_ERRORS = (ValueError, SyntaxError, tokenize.TokenError, TypeError, ImportError, RuntimeError, OSError)
"""Raised by gin for a wrong configuration; it has no exception class of its own."""


def of_compilations() -> dict[str, type]:
    """The dataclasses that gin can set in generate_default_trace and evaluate, by their names in gin."""
    return {"rollout": RolloutSettings, **_SHARED}


def of_vocabulary() -> dict[str, type]:
    """The same for generate_vocab."""
    return dict(_SHARED)


def of_cloning() -> dict[str, type]:
    """The same for train_bc."""
    return {"train_eval": BehavioralCloningConfig, **_SHARED}


def of_training() -> dict[str, type]:
    """The same for train_locally and optimize; includes the settings of all algorithms."""
    return {"train_eval": TrainingConfig, **algorithms.config_classes(), **_SHARED}


class GinFlags:
    """The flags `--gin_files` and `--gin_bindings` of the module that makes this."""

    def __init__(self, files: str = "Gin files with settings.") -> None:
        self.files = flags.DEFINE_multi_string("gin_files", [], files)
        self.bindings = flags.DEFINE_multi_string(
            "gin_bindings", [], "Gin bindings NAME.FIELD=VALUE, which override the files."
        )

    def read(self, classes: Mapping[str, type]) -> dict[str, Any]:
        """See the function `read`."""
        return read(classes, self.files.value, self.bindings.value)


def read(classes: Mapping[str, type], files: Sequence[str], bindings: Sequence[str]) -> dict[str, Any]:
    """Reads gin files, then bindings such as `train_eval.num_epochs=10`, which override the files.

    Args:
      classes: name in gin -> dataclass whose fields all have defaults.
      files: paths of gin files.
      bindings: gin bindings.

    Returns:
      an instance of each class, by the same names.

    Raises:
      ConfigError: a file is missing or is not gin, a name is unknown, or a value does not have its field's type.
    """
    if not files and not bindings:
        return {name: config_class() for name, config_class in classes.items()}  # Saves the import of gin.
    import gin

    # Gin's configuration is global: clear what an earlier call has left.
    gin.clear_config()
    with gin.config.interactive_mode():  # Allows a name to be registered again.
        for name, config_class in classes.items():
            gin.register(name, module=_MODULE)(config_class)
    with gin.unlock_config(), _gin_logging_off():
        for file in files:
            if not Path(file).is_file():
                raise ConfigError(f"--gin_files={file}: no such file")
            with _gin_errors(f"--gin_files={file}", "; fix the file"):
                _parse_file(Path(file).resolve())
        for binding in bindings:
            with _gin_errors(f"--gin_bindings={binding}", "; expected name.parameter=value, both of which exist"):
                gin.parse_config(binding)
        with _gin_errors("gin configuration", ""):
            gin.finalize()  # Finds references to unknown names.
    return {name: _build(name, config_class, gin.get_bindings(config_class)) for name, config_class in classes.items()}


@contextlib.contextmanager
def _gin_errors(where: str, remedy: str) -> Iterator[None]:
    try:
        yield
    except _GIN_ERRORS as error:
        raise ConfigError(f"{where}: {one_line(str(error))}{remedy}") from error


def _parse_file(path: Path) -> None:
    """Parses a file, whose includes are relative to its folder or to the working directory."""
    import gin

    working_directory = Path.cwd()
    gin.add_config_file_search_path(str(working_directory))
    # Gin searches the working directory first, and never forgets a path that was added.
    os.chdir(path.parent)
    try:
        gin.parse_config_file(str(path))
    finally:
        os.chdir(working_directory)


@contextlib.contextmanager
def _gin_logging_off() -> Iterator[None]:
    """Gin logs an error for each search path that lacks an included file, even if a later one has it."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.FATAL)
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)


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
