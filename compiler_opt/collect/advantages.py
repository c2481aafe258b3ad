"""Advantages of decisions, computed from the rollouts of a module.

Legend: G rollouts of a group, T decisions of a rollout.

The reward of a rollout is `1 - score / baseline`, the share of the default's bytes that it saved. An *advantage* is how
much better than expected a decision was. The classes here differ in what they expect.
"""

import abc
import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from compiler_opt.checked_values import Json
from compiler_opt.collect.groups import Group
from compiler_opt.objectives.objective import Context, Measurement
from compiler_opt.problem import Problem, reward


class Advantages(abc.ABC):
    """Turns groups of rollouts into an advantage per decision."""

    uses_value_network: bool = False
    """Whether the learner subtracts the value network's prediction."""

    min_rollouts: int = 1
    """Rollouts of a module, including those that fail, without which there is nothing to compare."""

    @abc.abstractmethod
    def __call__(
        self, groups: Sequence[Group[Measurement, Context]], problem: Problem[Measurement, Context]
    ) -> list[list[np.ndarray]]:
        """Returns `[T]` float32 for each rollout of each group."""

    def state(self) -> dict[str, Json]:
        """The state to save in a checkpoint."""
        return {}

    def restore(self, state: Mapping[str, Json]) -> None:
        """Restores what `state` returned."""
        del state


@dataclasses.dataclass(frozen=True)
class AdvantagesConfig:
    """Which advantages, and their parameters.

    Attributes:
      kind: `group_relative`, or `moving_average` for the classical module reward.
      credit: with `group_relative`, whose score a decision is credited with: `function` or `module`.
      module_weight: with `function` credit, the weight of the module's reward.
      squash: how the `function` credits of an iteration are kept from being dominated by a few: `clip` bounds them by
        a quantile, and keeps their proportions below it; `log` takes their signed logarithm, which reverses
        preferences: +100 bytes with probability 0.1 and -10 with 0.9 is a gain, but the logarithms' mean is a loss;
        `none` leaves them as they are.
      clip_quantile: for `clip`, the share of the credits other than 0 that are not bounded.
      failure_penalty: reward lost, against the default's object, by a rollout that fails or times out: 1 is as bad as
        an object of twice the default's score. Only the rollouts that it is compared with are left to learn from.
      decay: of the moving average.

    Raises:
      ValueError: an unknown kind, credit or squash, or a number out of range.
    """

    kind: str = "group_relative"
    credit: str = "function"
    module_weight: float = 0.1
    squash: str = "clip"
    clip_quantile: float = 0.8
    failure_penalty: float = 1.0
    decay: float = 0.9

    def __post_init__(self) -> None:
        if self.kind not in ("group_relative", "moving_average"):
            raise ValueError(f"kind: expected 'group_relative' or 'moving_average', found {self.kind!r}")
        if self.credit not in ("function", "module"):
            raise ValueError(f"credit: expected 'function' or 'module', found {self.credit!r}")
        if self.squash not in ("clip", "log", "none"):
            raise ValueError(f"squash: expected 'clip', 'log' or 'none', found {self.squash!r}")
        if not 0 < self.clip_quantile <= 1:
            raise ValueError(f"clip_quantile: expected a number over 0 and at most 1, found {self.clip_quantile}")
        if not 0 <= self.failure_penalty < math.inf:
            raise ValueError(f"failure_penalty: expected a number of at least 0, found {self.failure_penalty}")

    def squashed(self, credits: np.ndarray) -> np.ndarray:
        """Credits `[N]` of an iteration, by `squash`."""
        if self.squash == "log":
            logarithms: np.ndarray = np.sign(credits) * np.log1p(np.abs(credits))
            return logarithms
        sizes = np.abs(credits[credits != 0])
        if self.squash == "none" or not len(sizes):
            return credits
        bound = np.quantile(sizes, self.clip_quantile, method="inverted_cdf")
        return np.clip(credits, -bound, bound)

    def build(self) -> Advantages:
        return MovingAverage(self) if self.kind == "moving_average" else GroupRelative(self)


class GroupRelative(Advantages):
    """Compares each decision with the mean of its group.

    Rewards are standardised by group as in GRPO (Shao et al., *DeepSeekMath*, 2024). Up to a factor, which the scaling
    removes, the mean of the group is the leave-one-out baseline of RLOO (Kool et al., *Buy 4 REINFORCE Samples, Get a
    Baseline for Free!*, 2019).

    With `credit="function"`, the advantage is the decision's credit (`Problem.credit`): squashed, because a few
    decisions are worth a thousand others, and scaled to unit variance over the iteration, plus `module_weight` times
    the module's group-relative reward. With `credit="module"`, it is that reward, the same for all decisions.

    A failed rollout has no decisions to learn from, but counts in the reward that the others are compared with. So the
    only one of a group that succeeds has no credit by function, and the advantage of not having failed.
    """

    min_rollouts = 2

    def __init__(self, config: AdvantagesConfig):
        self._config = config

    def __call__(
        self, groups: Sequence[Group[Measurement, Context]], problem: Problem[Measurement, Context]
    ) -> list[list[np.ndarray]]:
        by_decision = [self._credit(group, problem) for group in groups]
        known = [credit for group_credit in by_decision if group_credit is not None for credit in group_credit]
        scaled = iter(self._scaled(known))
        advantages = []
        for group, group_credit in zip(groups, by_decision, strict=True):
            failures = np.full(group.num_failures, -self._config.failure_penalty)
            rewards = standardised(np.concatenate([group.rewards(problem), failures]))
            by_module = zip(group.trajectories(), rewards[: len(group.attempts)], strict=True)
            combined = [np.full(len(trajectory), value) for trajectory, value in by_module]
            if group_credit is not None:
                combined = [next(scaled) + self._config.module_weight * values for values in combined]
            advantages.append([values.astype(np.float32) for values in combined])
        return advantages

    def _credit(
        self, group: Group[Measurement, Context], problem: Problem[Measurement, Context]
    ) -> list[np.ndarray] | None:
        if self._config.credit == "module":
            return None
        sites = [trajectory.sites for trajectory in group.trajectories()]
        known = [site for site in sites if site is not None]
        if len(known) < len(sites):
            return None
        return problem.credit(group.measurements, known, group.context)

    def _scaled(self, credits: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Credits `[T]` of all rollouts of an iteration, squashed and of unit variance."""
        if not credits:
            return []
        squashed = self._config.squashed(np.concatenate(credits))
        scale = float(np.sqrt(np.mean(np.square(squashed)))) if len(squashed) else 0.0
        return np.split(squashed / (scale or 1.0), np.cumsum([len(credit) for credit in credits])[:-1])


class MovingAverage(Advantages):
    """The classical reward: compares a module's score with the moving average of its own past scores.

    All decisions of a rollout get the same; the learner subtracts the value network's prediction.
    """

    uses_value_network = True

    def __init__(self, config: AdvantagesConfig):
        self._config = config
        self._average: dict[str, float] = {}

    def __call__(
        self, groups: Sequence[Group[Measurement, Context]], problem: Problem[Measurement, Context]
    ) -> list[list[np.ndarray]]:
        advantages = []
        decay = self._config.decay
        for group in groups:
            scores = [problem.score(measurement, group.context) for measurement in group.measurements]
            average = self._average.get(group.module, group.baseline)
            advantages.append(
                [
                    np.full(len(trajectory), reward(score, average), np.float32)
                    for score, trajectory in zip(scores, group.trajectories(), strict=True)
                ]
            )
            for score in (*scores, *[(1 + self._config.failure_penalty) * group.baseline] * group.num_failures):
                average = decay * average + (1 - decay) * score
            self._average[group.module] = average
        return advantages

    def state(self) -> dict[str, Json]:
        return {"average": self._average}

    def restore(self, state: Mapping[str, Json]) -> None:
        self._average = dict(state["average"])


def standardised(values: np.ndarray) -> np.ndarray:
    """Scales values to mean 0 and deviation 1; zeros if all are equal."""
    centred = values - values.mean()
    deviation = centred.std()
    return centred / deviation if deviation > 1e-9 else np.zeros_like(centred)
