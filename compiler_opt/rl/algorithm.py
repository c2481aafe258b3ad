"""What a learning algorithm is to the training loop.

    while not done:
        batch = collect_groups(modules, algorithm.collection_policy(), ...)
        metrics = algorithm.learn(batch.groups, rng, progress)
        checkpoint(algorithm.checkpointed(), algorithm.state())
    save(algorithm.policy())

The loop (`rl.training_loop`) owns everything else: which modules, checkpoints, history, when to stop.
"""

import abc
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from compiler_opt.collect.groups import CollectionPolicy, Group
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.rl.training_context import TrainingContext


class Algorithm(abc.ABC):
    """Owns what is trained; made anew in every session of a run, from `TrainingContext.warm_start_weights()` if any."""

    description: str
    """How it learns, for the model card."""

    log_metrics: Sequence[tuple[str, str, str]] = ()
    """Metrics printed per iteration: key, label, format."""

    @abc.abstractmethod
    def collection_policy(self) -> CollectionPolicy:
        """Decides the next iteration's rollouts."""

    @abc.abstractmethod
    def learn(self, groups: Sequence[Group], rng: np.random.Generator, progress: float) -> dict[str, float]:
        """Learns from an iteration.

        Args:
          groups: at least one.
          rng: of this iteration.
          progress: how much of the training is done before it, 0 to 1.

        Returns:
          metrics for the history.
        """

    @abc.abstractmethod
    def policy(self) -> NetworkWeights:
        """What is saved at the end; its metadata are added to the run's."""

    def checkpointed(self) -> dict[str, Any]:
        """TensorFlow objects whose variables survive an interruption, by name."""
        return {}

    def state(self) -> dict[str, Any]:
        """What else must survive an interruption; JSON."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues from `state()`, when the variables of `checkpointed()` are restored."""
        del state


_Config = TypeVar("_Config")


class AlgorithmConfigs:
    """The settings of algorithms: one object of each class, the class's defaults where none is given."""

    def __init__(self, configs: Iterable[object] = ()):
        self._by_class = {type(config): config for config in configs}

    def get(self, config_class: type[_Config]) -> _Config:
        config = self._by_class.get(config_class)
        return config if isinstance(config, config_class) else config_class()


@dataclasses.dataclass(frozen=True)
class AlgorithmEntry:
    """How an algorithm is registered: `ALGORITHM` of a module or folder in `rl/algorithms/`, which is its name.

    Attributes:
      configs: frozen dataclasses of its settings by the name that they have in gin; several algorithms may share one.
      build: makes it, before it has learned anything. Only this may import TensorFlow. Raises ConfigError when the
        algorithm cannot train what the context says.
      clones_default: whether a pipeline starts it from a clone of the default policy.
    """

    configs: Mapping[str, type]
    build: Callable[[TrainingContext, AlgorithmConfigs], Algorithm]
    clones_default: bool = True
