"""The interface between the training loop and learning algorithms.

    while not done:
        batch = the rollouts of some modules under algorithm.collection_policy()
        metrics = algorithm.learn(batch.groups, rng, progress)
        keep(algorithm.policy_so_far())
        checkpoint(algorithm.checkpointed(), algorithm.state())
    save(algorithm.policy())

The loop (`rl.training_loop`) owns everything else: sampling of modules, checkpoints, history, stopping.
"""

import abc
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from compiler_opt.collect.groups import CollectionPolicy, Group
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.rl.training_run import TrainingRun


class Algorithm(abc.ABC):
    """Owns what is trained. Each session of a run makes it anew, from `TrainingRun.warm_start_weights()` if any."""

    description: str
    """The method, for the model card."""

    off_policy: bool = False
    """Whether `learn` may get rollouts of an earlier `collection_policy` than the last: by the recorded log
    probabilities, or because it learns from any policy's."""

    log_metrics: Sequence[tuple[str, str, str]] = ()
    """Metrics printed per iteration: key, label, format."""

    @abc.abstractmethod
    def collection_policy(self) -> CollectionPolicy:
        """The policies of the next iteration's rollouts."""

    @abc.abstractmethod
    def learn(self, groups: Sequence[Group], rng: np.random.Generator, progress: float) -> dict[str, float]:
        """Learns from the rollouts of one iteration.

        Args:
          groups: the rollouts of each module; at least one group.
          rng: source of this iteration's random numbers.
          progress: share of the training that was done before it, 0 to 1; more if the last iteration took longer.

        Returns:
          metrics for the history.
        """

    @abc.abstractmethod
    def policy(self) -> NetworkWeights:
        """The policy to save at the end of the training; its metadata is added to the run's."""

    def policy_so_far(self) -> NetworkWeights:
        """The policy to keep after an iteration: as `policy`, but nothing more is learned for it."""
        return self.policy()

    def checkpointed(self) -> dict[str, Any]:
        """TensorFlow objects whose variables survive an interruption, by name."""
        return {}

    def state(self) -> dict[str, Any]:
        """Whatever else must survive an interruption; JSON."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues from `state()`; the variables of `checkpointed()` have been restored before."""
        del state


_Config = TypeVar("_Config")


class AlgorithmConfigs:
    """Hyperparameters of algorithms: at most one object of each class."""

    def __init__(self, configs: Iterable[object] = ()):
        self._by_class = {type(config): config for config in configs}

    def get(self, config_class: type[_Config]) -> _Config:
        """The object of a class; by default one with the class's defaults."""
        config = self._by_class.get(config_class)
        return config if isinstance(config, config_class) else config_class()


@dataclasses.dataclass(frozen=True)
class AlgorithmEntry:
    """Registers an algorithm: the constant `ALGORITHM` of a module or folder in `rl/algorithms/`.

    Attributes:
      configs: frozen dataclasses of its hyperparameters, by their names in gin; algorithms may share them.
      build: creates the algorithm, before it has learned anything. Only this may import TensorFlow. Raises ConfigError
        if the algorithm cannot train in the given run.
      clones_default: whether a pipeline starts it from a clone of the default policy.
      takes_recurrence: whether it can train recurrent networks (`NetworkConfig.lstm_units`).
    """

    configs: Mapping[str, type]
    build: Callable[[TrainingRun, AlgorithmConfigs], Algorithm]
    clones_default: bool = True
    takes_recurrence: bool = False
