"""Evolution strategies in the training loop, whatever the parameters.

Legend: D parameters, N directions.

    for each module, or for a few together: draw directions
    compile each module under the parameters moved along each direction, and under those moved against it
    gain of a direction: how much better it is along it than against it, in the mean of its modules
    the parameters follow the gains

All these policies decide greedily.
"""

import abc
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from compiler_opt.collect.groups import CollectionPolicy, Group, Tagged
from compiler_opt.collect.rollout import Rollout, RolloutSettings
from compiler_opt.corpus.module import Module
from compiler_opt.policies.policy import Policy
from compiler_opt.rl.algorithm import Algorithm
from compiler_opt.rl.algorithms.es import ESConfig
from compiler_opt.rl.training_run import TrainingRun


class EvolutionStrategies(Algorithm):
    """Owns the parameters, and compares pairs of policies."""

    def __init__(self, run: TrainingRun, config: ESConfig):
        self._run = run
        self._config = config

    @abc.abstractmethod
    def direction(self, rng: np.random.Generator) -> np.ndarray:
        """A random direction, `[D]`."""

    @abc.abstractmethod
    def moved(self, direction: np.ndarray) -> Policy:
        """The policy whose parameters are moved along a direction `[D]`."""

    @abc.abstractmethod
    def gain(self, group: Group, along: Rollout, against: Rollout) -> float:
        """How much better the former of two rollouts of a module is."""

    @abc.abstractmethod
    def update(self, directions: np.ndarray, gains: np.ndarray) -> dict[str, float]:
        """Follows the `gains` `[N]` of `directions` `[N, D]`, if any; returns metrics."""

    def probe(self) -> np.ndarray | None:
        """A direction `[D]` that all modules try, if its gain shall be judged."""
        return None

    def judge(self, gain: float) -> dict[str, float]:
        """Learns from the gain of the `probe`; returns metrics."""
        del gain
        return {}

    def collection_policy(self) -> CollectionPolicy:
        settings, num_rollouts = self._run.rollout_settings(), self._run.config.rollouts_per_module
        self._pairs = AntitheticPairs(self, settings, num_rollouts, self._config.modules_per_direction)
        return self._pairs

    def learn(self, groups: Sequence[Group], rng: np.random.Generator, progress: float) -> dict[str, float]:
        del rng, progress
        gains = self._pairs.gains(groups)
        metrics: dict[str, float] = {}
        if self._pairs.has_probe and 0 in gains:
            metrics = self.judge(gains.pop(0))
        if not gains:
            return {**metrics, "directions": 0.0}
        found = np.array(list(gains.values()))
        metrics |= self.update(np.stack([self._pairs.directions[place] for place in gains]), found)
        return {**metrics, "gain_size": float(np.abs(found).mean()), "directions": float(len(found))}


class AntitheticPairs(CollectionPolicy):
    """For each module, pairs of rollouts: along a direction, and against it.

    Tags are the place of the direction in `directions`, and 1 for along or -1 for against.

    Attributes:
      directions: those drawn so far, `[D]` each.
      has_probe: whether the first of them is not random, but the `probe`, which all modules try.
    """

    min_decided = 2

    def __init__(
        self, owner: EvolutionStrategies, settings: RolloutSettings, num_rollouts: int, modules_per_direction: int
    ):
        """`num_rollouts`: of each module, two of a direction."""
        self.settings = settings
        self.directions: list[np.ndarray] = []
        self._owner = owner
        self._num_rollouts = num_rollouts
        self._modules_per_direction = modules_per_direction
        self._num_modules = 0
        self._policies: list[Tagged] = []
        probe = owner.probe()
        self.has_probe = probe is not None
        self._probing = [] if probe is None else self._pair(probe)

    def policies(self, module: Module, rng: np.random.Generator) -> Sequence[Tagged]:
        del module
        if self._num_modules % self._modules_per_direction == 0:
            self._policies = list(self._probing)
            while len(self._policies) < self._num_rollouts:
                self._policies += self._pair(self._owner.direction(rng))
        self._num_modules += 1
        return self._policies

    def gains(self, groups: Sequence[Group]) -> dict[int, float]:
        """The gains of directions, by their places in `directions`.

        Those of which no pair is complete, because a rollout failed or had no decisions, are absent.
        """
        found: defaultdict[int, list[float]] = defaultdict(list)
        for group in groups:
            rollouts: defaultdict[int, dict[int, Rollout]] = defaultdict(dict)
            for attempt in group.attempts:
                place, sign = attempt.tag
                rollouts[place][sign] = attempt.rollout
            for place, by_sign in rollouts.items():
                if len(by_sign) == 2:
                    found[place].append(self._owner.gain(group, by_sign[1], by_sign[-1]))
        return {place: float(np.mean(each)) for place, each in sorted(found.items())}

    def _pair(self, direction: np.ndarray) -> list[Tagged]:
        """The policies along a direction and against it."""
        place = len(self.directions)
        self.directions.append(direction)
        return [Tagged(self._owner.moved(sign * direction), tag=(place, sign)) for sign in (1, -1)]
