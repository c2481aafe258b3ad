"""Advantages of decisions, computed from the rollouts of a module.

Legend: G rollouts of a group, T decisions of a rollout.

The reward of a rollout is `1 - score / baseline`, the share of the default's bytes that it saved. An *advantage* is how
much better than expected a decision was. The classes here differ in what they expect.
"""

import abc
import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from compiler_opt.checked_values import Json
from compiler_opt.collect.groups import Group
from compiler_opt.problems.problem import Context, Measurement, Problem, reward


class Advantages(abc.ABC):
    """Turns groups of rollouts into an advantage per decision."""

    uses_value_network: bool = False
    """Whether the learner subtracts the value network's prediction."""

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
      decay: of the moving average.

    Raises:
      ValueError: an unknown kind or credit.
    """

    kind: str = "group_relative"
    credit: str = "function"
    module_weight: float = 0.1
    decay: float = 0.9

    def __post_init__(self) -> None:
        if self.kind not in ("group_relative", "moving_average"):
            raise ValueError(f"kind: expected 'group_relative' or 'moving_average', found {self.kind!r}")
        if self.credit not in ("function", "module"):
            raise ValueError(f"credit: expected 'function' or 'module', found {self.credit!r}")

    def build(self) -> Advantages:
        return MovingAverage(self) if self.kind == "moving_average" else GroupRelative(self)


class GroupRelative(Advantages):
    """Compares each decision with the mean of its group.

    With `credit="function"`, the advantage is the decision's credit (`Problem.credit`): its signed logarithm, because a
    few decisions are worth a thousand others, scaled to unit variance over the iteration, plus `module_weight` times
    the module's group-relative reward. With `credit="module"`, it is that reward, the same for all decisions.
    """

    def __init__(self, config: AdvantagesConfig):
        self._config = config

    def __call__(
        self, groups: Sequence[Group[Measurement, Context]], problem: Problem[Measurement, Context]
    ) -> list[list[np.ndarray]]:
        by_decision = [self._credit(group, problem) for group in groups]
        known = [credit for group_credit in by_decision if group_credit is not None for credit in group_credit]
        root_mean_square = float(np.sqrt(np.mean(np.square(np.concatenate(known))))) if known else 0.0
        scale = root_mean_square or 1.0
        advantages = []
        for group, group_credit in zip(groups, by_decision, strict=True):
            by_module = zip(group.trajectories(), standardised(group.rewards(problem)), strict=True)
            combined = [np.full(len(trajectory), value) for trajectory, value in by_module]
            if group_credit is not None:
                combined = [
                    credit / scale + self._config.module_weight * values
                    for credit, values in zip(group_credit, combined, strict=True)
                ]
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
        group_credit = problem.credit(group.measurements, known, group.context)
        if group_credit is None:
            return None
        return [np.sign(credit) * np.log1p(np.abs(credit)) for credit in group_credit]


class MovingAverage(Advantages):
    """The classical reward: compares a module's score with the moving average of its own past scores.

    All decisions of a rollout get the same; the learner subtracts the value network's prediction.
    """

    uses_value_network = True

    def __init__(self, config: AdvantagesConfig):
        self._decay = config.decay
        self._average: dict[str, float] = {}

    def __call__(
        self, groups: Sequence[Group[Measurement, Context]], problem: Problem[Measurement, Context]
    ) -> list[list[np.ndarray]]:
        advantages = []
        for group in groups:
            scores = [problem.score(measurement, group.context) for measurement in group.measurements]
            average = self._average.get(group.module, group.baseline)
            advantages.append(
                [
                    np.full(len(trajectory), reward(score, average), np.float32)
                    for score, trajectory in zip(scores, group.trajectories(), strict=True)
                ]
            )
            for score in scores:
                average = self._decay * average + (1 - self._decay) * score
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
