"""Evolution strategies over the parameters of a rule, with one perturbation per module, which a network then clones.

Legend: P parameters, N pairs of rollouts.

    draw a direction for each module; compile the module with the parameters moved along it, and against it
    the difference of the two scores estimates the gradient along that direction
    move each parameter by its mean gradient, in units of its standard error

Evolution strategies with mirrored sampling (Salimans et al., 2017, after Rechenberg, 1973). Each module has its own
direction, so every pair of rollouts explores another one. A parameter moves by the significance of its gradient: at
most by one step, and hardly at all if the pairs contradict each other.
"""

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from compiler_opt.collect.groups import CollectionPolicy, Group, rollouts_in_order
from compiler_opt.collect.rollout import RolloutSettings
from compiler_opt.collect.workers import Job
from compiler_opt.corpus.module import Module
from compiler_opt.errors import ConfigError, CorpusError, PolicyError
from compiler_opt.policies.policy import Policy
from compiler_opt.policies.rule import RULE, Rule, RulePolicy
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.progress_bar import progress_bar
from compiler_opt.rl.algorithm import Algorithm
from compiler_opt.rl.algorithms.evolution import EvolutionConfig
from compiler_opt.rl.behavioral_cloning import Cloner, split_by_module
from compiler_opt.rl.training_context import TrainingContext

_LOG = logging.getLogger(__name__)


class ParameterSearch:
    """Owns the parameters and the estimate of their gradient.

    Attributes:
      current: the current parameters, `[P]`.
    """

    def __init__(self, start: np.ndarray, scale: np.ndarray, config: EvolutionConfig):
        """Starts from parameters `[P]`, whose scales are `[P]`, see `RuleParameter.scale`."""
        self._scale = scale
        self._config = config
        self.current = start.astype(np.float64)
        self._sum, self._gradient, self._variance = np.zeros((3, len(start)))
        self._weight = 0.0

    @property
    def averaged(self) -> np.ndarray:
        """The moving average of the parameters, which is less noisy, `[P]`."""
        result: np.ndarray = self._sum / self._weight if self._weight else self.current
        return result

    def directions(self, number: int, rng: np.random.Generator) -> np.ndarray:
        """Random offsets of the current parameters, `[N, P]`."""
        return self._config.exploration * self._scale * rng.standard_normal((number, len(self.current)))

    def update(self, directions: np.ndarray, gains: np.ndarray) -> np.ndarray:
        """Moves the parameters.

        Args:
          directions: `[N, P]`, N > 1.
          gains: `[N]`, gain of the rollout along each direction over the one against it.

        Returns:
          `[P]`, the moving average of the gradient, divided by its standard error.
        """
        config = self._config
        each = gains[:, np.newaxis] * directions / (2 * config.exploration**2 * self._scale)
        kept = config.momentum
        self._gradient = kept * self._gradient + (1 - kept) * each.mean(axis=0)
        self._variance = kept**2 * self._variance + (1 - kept) ** 2 * each.var(axis=0, ddof=1) / len(each)
        deviation = np.sqrt(self._variance)
        z_scores: np.ndarray = np.divide(self._gradient, deviation, out=np.zeros_like(deviation), where=deviation > 0)
        self.current = self.current + config.step * self._scale * np.clip(z_scores / config.z_threshold, -1, 1)
        self._sum = config.averaging * self._sum + self.current
        self._weight = config.averaging * self._weight + 1
        return z_scores

    def state(self) -> dict[str, Any]:
        """State to resume from; JSON."""
        return {
            "current": self.current.tolist(),
            "sum": self._sum.tolist(),
            "weight": self._weight,
            "gradient": self._gradient.tolist(),
            "variance": self._variance.tolist(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Resumes from `state()`."""
        self._weight = state["weight"]
        self.current, self._sum, self._gradient, self._variance = (
            np.array(state[key]) for key in ("current", "sum", "gradient", "variance")
        )


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


class _PerturbedRule(RulePolicy):
    """A rule whose parameters are moved along a direction `[P]`."""

    def __init__(self, rule: Rule, values: np.ndarray, direction: np.ndarray):
        super().__init__(rule, values + direction)
        self.direction = direction


class _MirroredPairs(CollectionPolicy):
    """For each module, one rollout along a random direction and one against it."""

    min_decided = 2

    def __init__(self, rule: Rule, search: ParameterSearch, settings: RolloutSettings):
        self.settings = settings
        self._rule = rule
        self._search = search

    def policies(self, module: Module, rng: np.random.Generator) -> Sequence[Policy]:
        del module
        [direction] = self._search.directions(1, rng)
        return [_PerturbedRule(self._rule, self._search.current, sign * direction) for sign in (1, -1)]


class Evolution(Algorithm):
    """Searches for the parameters of a rule in the training loop."""

    description = "evolution strategies over the parameters of a rule, cloned"
    log_metrics = (("max_z", "largest gradient by standard errors", ".1f"),)

    def __init__(self, context: TrainingContext, rule: Rule, config: EvolutionConfig):
        """Starts from the compiler's own rule, or from the parameters of an earlier search.

        Raises:
          PolicyError: the policy to start from was not cloned from this rule.
        """
        self._context = context
        self._rule = rule
        self._config = config
        start = context.warm_start_weights()
        parameters = rule.start() if start is None else cloned_parameters(rule, start)
        self._search = ParameterSearch(parameters, rule.scale(), config)

    def collection_policy(self) -> CollectionPolicy:
        return _MirroredPairs(self._rule, self._search, self._context.rollout_settings())

    def learn(self, groups: Sequence[Group], rng: np.random.Generator, progress: float) -> dict[str, float]:
        del rng, progress
        metrics: dict[str, float] = {}
        if len(groups) > 1:
            policies = [group.attempts[0].policy for group in groups]
            directions = np.stack([policy.direction for policy in policies if isinstance(policy, _PerturbedRule)])
            gains = np.array([self._gain(group) for group in groups])
            metrics["max_z"] = float(np.abs(self._search.update(directions, gains)).max())
        return metrics | {f"rule/{name}": value for name, value in self._rule.named(self._search.current).items()}

    def policy(self) -> NetworkWeights:
        """A network that clones the rule, from its decisions over modules of the corpus.

        Raises:
          CorpusError: too few modules have decisions.
        """
        context, found = self._context, self._search.averaged
        rule, settings = RulePolicy(self._rule, found), context.rollout_settings()
        jobs = [Job(module, rule, 0, settings) for module in context.sampler().draw(0, self._config.cloned_modules)]
        with progress_bar(total=len(jobs), description="rollouts to clone", unit="compile") as progress:
            rollouts = rollouts_in_order(jobs, context.pool, progress)
        decided = [
            (rollout, rollout.trajectory)
            for rollout in rollouts
            if rollout.failure is None and rollout.trajectory is not None
        ]
        if len(decided) < 2:
            raise CorpusError("expected at least 2 modules with decisions to learn the rule from, found fewer")
        observed = [context.head.observe(trajectory.features()) for _, trajectory in decided]
        cloning = self._config.cloning(context.config.seed)
        training, held_out = split_by_module(
            {name: [part[name] for part in observed] for name in observed[0]},
            context.head.actions(np.concatenate([trajectory.advice for _, trajectory in decided])),
            [rollout.module for rollout, _ in decided],
            [len(trajectory) for _, trajectory in decided],
            {rollout.module: rollout.project for rollout, _ in decided},
            cloning,
        )
        cloned = Cloner(context.head, context.action_name, context.network, cloning).clone(training, held_out)
        accuracy = cloned.best["accuracy"]
        _LOG.info("the clone agrees with the rule on %.2f%% of %d held-out decisions", 100 * accuracy, len(held_out))
        return dataclasses.replace(cloned.weights, metadata={RULE: self._rule.named(found), "accuracy": accuracy})

    def state(self) -> dict[str, Any]:
        return {"search": self._search.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._search.restore(state["search"])

    def _gain(self, group: Group) -> float:
        """Gain of the rollout along the direction over the one against it."""
        problem = self._context.problem
        along, against = (problem.own_costs(rollout.measurement, group.context) for rollout in group.rollouts)
        if along is None or against is None:
            raise ConfigError(f"{problem.name}: has no score by function, which evolution needs")
        config = self._config
        return weighted_gain(along, against, score_exponent=config.score_exponent, offset=config.score_offset)


def cloned_parameters(rule: Rule, weights: NetworkWeights) -> np.ndarray:
    """Parameters `[P]` of the rule that a policy was cloned from.

    Raises:
      PolicyError: it was not cloned from this rule.
    """
    found = weights.metadata.get(RULE)
    if not isinstance(found, Mapping):
        raise PolicyError(
            "evolution starts from the compiler's own rule, or from a policy that evolution made: expected the "
            f"parameters of a rule in its metadata ({RULE!r}), found none; give --vocab_path and no warm start"
        )
    return rule.values(found)
