"""The learning algorithms: each module or folder here is one, found by its name.

Its `ALGORITHM` is an `AlgorithmEntry`, see `docs/new_algorithm.md`. Importing one does not import TensorFlow.
"""

import importlib
import pkgutil

from compiler_opt.errors import ConfigError
from compiler_opt.rl.algorithm import AlgorithmEntry


def names() -> tuple[str, ...]:
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def load(name: str) -> AlgorithmEntry:
    """The algorithm of a name. Raises ConfigError if there is none."""
    if name not in names():
        raise ConfigError(f"unknown algorithm {name!r}; expected one of {', '.join(names())}")
    entry: AlgorithmEntry = importlib.import_module(f"{__name__}.{name}").ALGORITHM
    return entry


def config_classes() -> dict[str, type]:
    """The hyperparameter classes of all algorithms, by their names in gin."""
    return {name: config for algorithm in names() for name, config in load(algorithm).configs.items()}
