"""Evolution strategies over the parameters of a rule, which a network then clones.

Legend: P parameters, N directions.

A parameter moves by the significance of its gradient: by its mean over the directions, in units of its standard
error, at most by one step, and hardly at all if the pairs contradict each other.
"""

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from compiler_opt.collect.groups import Group, rollouts_in_order
from compiler_opt.collect.rollout import Rollout
from compiler_opt.collect.workers import Job
from compiler_opt.errors import ConfigError, CorpusError
from compiler_opt.policies.policy import Policy
from compiler_opt.policies.rule import RULE, Rule, RulePolicy
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.progress_bar import progress_bar
from compiler_opt.rl.algorithms.es import ESConfig
from compiler_opt.rl.algorithms.es.algorithm import EvolutionStrategies
from compiler_opt.rl.behavioral_cloning import Cloner, split_by_module
from compiler_opt.rl.config import BehavioralCloningConfig
from compiler_opt.rl.training_run import TrainingRun

_Z_THRESHOLD = 3.0
"""Ratio of gradient to standard error at which a parameter moves by a whole step."""

_LOG = logging.getLogger(__name__)


def weighted_gain(
    along: Mapping[str, float], against: Mapping[str, float], *, score_exponent: float, offset: float
) -> float:
    """Gain of one rollout of a module over another, from the scores of its functions.

    The difference of a function's scores is divided by their mean plus `offset` to the power of `1 - score_exponent`:
    with 0, relative gains count, with 1, absolute ones. A few functions cost far more than all others, whose gains
    would drown in a total score.
    """
    names = sorted(along.keys() | against.keys())
    scores = np.array([[side.get(name, 0.0) for name in names] for side in (along, against)]).reshape(2, -1)
    return float(((scores[1] - scores[0]) / (scores.mean(axis=0) + offset) ** (1 - score_exponent)).sum())


class RuleES(EvolutionStrategies):
    """Owns the parameters and the estimate of their gradient.

    Attributes:
      current: the current parameters, `[P]`.
    """

    description = "evolution strategies over the parameters of a rule, cloned"
    log_metrics = (("max_z", "largest gradient by standard errors", ".1f"),)

    def __init__(self, run: TrainingRun, rule: Rule, config: ESConfig):
        """Starts from the compiler's own rule, or from the parameters of an earlier search."""
        super().__init__(run, config)
        self._rule, self._scale = rule, rule.scale()
        start = run.warm_start_weights()
        self.current = rule.start() if start is None else cloned_parameters(rule, start)
        self._sum, self._gradient, self._variance = np.zeros((3, len(self.current)))
        self._weight = 0.0

    @property
    def averaged(self) -> np.ndarray:
        """The moving average of the parameters, which is less noisy, `[P]`."""
        result: np.ndarray = self._sum / self._weight if self._weight else self.current
        return result

    def direction(self, rng: np.random.Generator) -> np.ndarray:
        return self._config.noise * self._scale * rng.standard_normal(len(self.current))

    def update(self, directions: np.ndarray, gains: np.ndarray) -> dict[str, float]:
        """Follows the `gains` `[N]` of `directions` `[N, P]`.

        Returns:
          `max_z`: the largest moving average of a gradient in units of its standard error; nothing for one direction.
        """
        if len(gains) < 2:
            return {}
        config = self._config
        each = gains[:, np.newaxis] * directions / (2 * config.noise**2 * self._scale)
        kept = config.momentum
        self._gradient = kept * self._gradient + (1 - kept) * each.mean(axis=0)
        self._variance = kept**2 * self._variance + (1 - kept) ** 2 * each.var(axis=0, ddof=1) / len(each)
        deviation = np.sqrt(self._variance)
        z_scores: np.ndarray = np.divide(self._gradient, deviation, out=np.zeros_like(deviation), where=deviation > 0)
        self.current = self.current + config.learning_rate * self._scale * np.clip(z_scores / _Z_THRESHOLD, -1, 1)
        self._sum = config.averaging * self._sum + self.current
        self._weight = config.averaging * self._weight + 1
        return {"max_z": float(np.abs(z_scores).max())}

    def moved(self, direction: np.ndarray) -> Policy:
        return RulePolicy(self._rule, self.current + direction)

    def gain(self, group: Group, along: Rollout, against: Rollout) -> float:
        problem, config = self._run.problem, self._config
        costs, others = (problem.own_costs(each.measurement, group.context) for each in (along, against))
        if costs is None or others is None:
            raise ConfigError(f"{problem.name}: has no score by function, which es.parameters = 'rule' needs")
        return weighted_gain(costs, others, score_exponent=config.score_exponent, offset=config.score_offset)

    def learn(self, groups: Sequence[Group], rng: np.random.Generator, progress: float) -> dict[str, float]:
        metrics = super().learn(groups, rng, progress)
        return metrics | {f"rule/{name}": value for name, value in self._rule.named(self.current).items()}

    def policy(self) -> NetworkWeights:
        """A network that clones the rule, from its decisions over modules of the corpus.

        Raises:
          CorpusError: too few modules have decisions.
        """
        run, found = self._run, self.averaged
        rule, settings = RulePolicy(self._rule, found), run.rollout_settings()
        jobs = [Job(module, rule, 0, settings) for module in run.sampler().draw(0, self._config.cloned_modules)]
        with progress_bar(total=len(jobs), description="rollouts to clone", unit="compile") as progress:
            rollouts = rollouts_in_order(jobs, run.pool, progress)
        decided = [
            (rollout, rollout.trajectory)
            for rollout in rollouts
            if rollout.failure is None and rollout.trajectory is not None
        ]
        if len(decided) < 2:
            raise CorpusError("expected at least 2 modules with decisions to learn the rule from, found fewer")
        observed = [run.head.observe(trajectory.features()) for _, trajectory in decided]
        # More exact than a warm start, because the clone is the final policy.
        cloning = BehavioralCloningConfig(
            learning_rate=2e-3,
            num_epochs=self._config.cloning_epochs,
            batch_size=512,
            label_smoothing=0.01,
            seed=run.config.seed,
        )
        training, held_out = split_by_module(
            {name: [part[name] for part in observed] for name in observed[0]},
            run.head.actions(np.concatenate([trajectory.advice for _, trajectory in decided])),
            [rollout.module for rollout, _ in decided],
            [len(trajectory) for _, trajectory in decided],
            {rollout.module: rollout.project for rollout, _ in decided},
            cloning,
        )
        cloned = Cloner(run.head, run.action_name, run.network, cloning).clone(training, held_out)
        accuracy = cloned.best["accuracy"]
        _LOG.info("the clone agrees with the rule on %.2f%% of %d held-out decisions", 100 * accuracy, len(held_out))
        return dataclasses.replace(cloned.weights, metadata={RULE: self._rule.named(found), "accuracy": accuracy})

    def state(self) -> dict[str, Any]:
        return {
            "current": self.current.tolist(),
            "sum": self._sum.tolist(),
            "weight": self._weight,
            "gradient": self._gradient.tolist(),
            "variance": self._variance.tolist(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._weight = state["weight"]
        self.current, self._sum, self._gradient, self._variance = (
            np.array(state[key]) for key in ("current", "sum", "gradient", "variance")
        )


def cloned_parameters(rule: Rule, weights: NetworkWeights) -> np.ndarray:
    """Parameters `[P]` of the rule that a policy was cloned from; the compiler's own, with a warning, if from none.

    Raises PolicyError if it was cloned from another rule.
    """
    found = weights.metadata.get(RULE)
    if not isinstance(found, Mapping):
        _LOG.warning("the warm start has no parameters of a rule; starts from the compiler's own rule")
        return rule.start()
    return rule.values(found)
