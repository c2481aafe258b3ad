"""Gin at the edge: bindings become frozen dataclasses here, and the libraries never hear of gin.

    settings = gin_settings.read({"network": NetworkConfig, "train_eval": TrainingConfig}, files, bindings)
    settings["network"]  # a NetworkConfig, with what `network.x = y` lines say and defaults elsewhere

Only the dataclasses' own fields can be bound, with values of their types: a misspelt name or a wrong value is an error.
"""

import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

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
    import gin

    # Gin's configuration is the whole process's: what an earlier call has left must not leak into this one.
    gin.clear_config()
    with gin.config.interactive_mode():  # lets a name be registered again
        for name, config_class in classes.items():
            gin.register(name, module=_MODULE)(config_class)
    entry_point.parse_gin(files, bindings)
    return {name: _build(name, config_class, gin.get_bindings(config_class)) for name, config_class in classes.items()}


def _build(name: str, config_class: type, values: Mapping[str, Any]) -> Any:
    hints = typing.get_type_hints(config_class)
    for field, value in values.items():
        if not _has_type(value, hints[field]):
            raise ConfigError(f"gin: {name}.{field}: expected {_type_name(hints[field])}, found {value!r:.80}")
    try:
        # A list in gin is a tuple here: frozen settings hold nothing that can change.
        return config_class(**{field: tuple(v) if isinstance(v, list) else v for field, v in values.items()})
    except ValueError as error:
        raise ConfigError(f"gin: {name}: {error}") from error


def _has_type(value: Any, hint: Any) -> bool:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_has_type(value, argument) for argument in arguments)
    if origin is tuple:
        # Only `tuple[X, ...]` occurs in settings.
        return isinstance(value, (tuple, list)) and all(_has_type(item, arguments[0]) for item in value)
    if origin is Mapping:
        return isinstance(value, dict) and all(
            _has_type(key, arguments[0]) and _has_type(item, arguments[1]) for key, item in value.items()
        )
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, origin or hint)


def _type_name(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)
