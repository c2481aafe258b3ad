"""Gin at the edge: bindings become frozen dataclasses here, and the libraries never hear of gin.

    settings = gin_settings.read({"network": NetworkConfig, "train_eval": TrainingConfig}, files, bindings)
    settings["network"]  # a NetworkConfig, with what `network.x = y` lines say and defaults elsewhere

Only the dataclasses' own fields can be bound, with values of their types: a misspelt name or a wrong value is an error.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from compiler_opt.checked_values import convert
from compiler_opt.errors import ConfigError
from compiler_opt.tools import entry_point

_MODULE = "compiler_opt"


def read(classes: Mapping[str, type], files: Sequence[str], bindings: Sequence[str]) -> dict[str, Any]:
    """Reads gin files, then bindings, which win.

    Args:
      classes: dataclasses whose fields have defaults, by the name that they have in gin.
      files: paths of gin files.
      bindings: such as `train_eval.num_epochs=10`.

    Returns:
      an instance of each class, by the same names.

    Raises:
      ConfigError: a file is missing or is not gin, a name is unknown, or a value is not of its field's type.
    """
    if not files and not bindings:
        return {name: config_class() for name, config_class in classes.items()}  # Without waiting for gin.
    import gin

    # Gin's configuration is the whole process's: what an earlier call has left must not leak into this one.
    gin.clear_config()
    with gin.config.interactive_mode():  # lets a name be registered again
        for name, config_class in classes.items():
            gin.register(name, module=_MODULE)(config_class)
    entry_point.parse_gin(files, bindings)
    return {name: _build(name, config_class, gin.get_bindings(config_class)) for name, config_class in classes.items()}


def _build(name: str, config_class: type, values: Mapping[str, Any]) -> Any:
    try:
        return convert(values, config_class)
    except ValueError as error:
        # A field by its name in gin; what a class says of several fields begins with its own.
        dot = "." if str(error).partition(":")[0].partition(".")[0] in values else ": "
        raise ConfigError(f"gin: {name}{dot}{error}") from error
