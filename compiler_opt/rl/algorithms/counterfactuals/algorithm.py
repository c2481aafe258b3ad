"""Counterfactuals in the training loop: which to try, replay, and the final policy.

Legend: N counterfactuals, T decisions, F inputs of a candidate.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from compiler_opt.collect.groups import CollectionPolicy, Group
from compiler_opt.collect.rollout import Rollout
from compiler_opt.corpus.module import Module
from compiler_opt.errors import ConfigError
from compiler_opt.llvm.interactive import FunctionOfDecisions
from compiler_opt.policies.decisions import Advice, Decisions, OverridingPolicy, Site
from compiler_opt.policies.policy import Policy
from compiler_opt.policies.weights import NetworkWeights, mean_network
from compiler_opt.progress_bar import progress_bar
from compiler_opt.rl.algorithm import Algorithm
from compiler_opt.rl.algorithms.counterfactuals import CounterfactualsConfig
from compiler_opt.rl.algorithms.counterfactuals.learner import GainLearner, Samples, log_gain
from compiler_opt.rl.learner import SEEDS_PER_NETWORK
from compiler_opt.rl.replay import Replay
from compiler_opt.rl.training_context import TrainingContext
from compiler_opt.spaces.heads.categorical import MaskedCategoricalHead
from compiler_opt.spaces.heads.networks import RANKS

_FINAL_STAGES = 10
"""Steps of the learning-rate schedule of final networks."""


def draw_counterfactuals(
    head: MaskedCategoricalHead,
    config: CounterfactualsConfig,
    weights: NetworkWeights,
    features: Mapping[str, np.ndarray],
    advice: np.ndarray,
    sites: FunctionOfDecisions,
    count: int,
    rng: np.random.Generator,
) -> list[dict[Site, int]]:
    """Draws the counterfactuals of a module for `count` rollouts, at most one per function and rollout, all different.

    They change the T decisions of the policy with these weights: `features` by name, `advice` `[T]` and `sites`.
    """
    observations = head.observe(features)
    scores = head.logits(weights, observations)
    chosen = np.arange(scores.shape[1]) == advice[:, np.newaxis]
    # How far each other legal candidate scores below the chosen one.
    lag = np.where(head.legal(observations) & ~chosen, (scores[chosen][:, np.newaxis] - scores), np.inf)
    result: list[dict[Site, int]] = [{} for _ in range(count)]
    for index, function in enumerate(sites.functions):
        [decisions] = np.nonzero(sites.indices == index)
        number, candidate = np.nonzero(np.isfinite(lag[decisions]))
        if not len(number):
            continue
        function_lag = lag[decisions][number, candidate]
        # A softmax over negative lags, mixed with the uniform distribution.
        promise = np.exp(-(function_lag - function_lag.min()) / config.promise_temperature)
        uniform = np.full(len(number), 1 / len(number))
        mixed = config.uniform_share * uniform + (1 - config.uniform_share) * promise / promise.sum()
        drawn = rng.choice(len(number), min(count, len(number)), replace=False, p=mixed / mixed.sum())
        for counterfactuals, pair in zip(result, drawn, strict=False):
            counterfactuals[Site.in_function(function, int(number[pair]))] = int(candidate[pair])
    return result


def candidate_pairs(
    counterfactuals: Mapping[Site, Advice],
    observations: Mapping[str, np.ndarray],
    advice: np.ndarray,
    sites: FunctionOfDecisions,
) -> np.ndarray:
    """Quantile ranks `[N, 2, F]` of the chosen and the other candidate of each counterfactual.

    The T decisions that they change have `observations` by name, `advice` `[T]` and `sites`.
    """
    pairs = []
    for site, other in counterfactuals.items():
        [decisions] = np.nonzero(sites.indices == sites.functions.index(site.caller))
        row = decisions[site.ordinal]
        pairs.append(observations[RANKS][row][[advice[row], other]])
    return np.stack(pairs)


class _WithCounterfactuals(CollectionPolicy):
    """One rollout under the policy, and others that each change one decision of every function."""

    def __init__(
        self,
        context: TrainingContext,
        head: MaskedCategoricalHead,
        config: CounterfactualsConfig,
        weights: NetworkWeights,
    ):
        self.settings = context.rollout_settings()
        self._policy = context.problem.decision.policy(weights)
        self._head = head
        self._config = config
        self._weights = weights
        self._num_follow_ups = context.config.rollouts_per_module - 1

    def policies(self, module: Module, rng: np.random.Generator) -> Sequence[Policy]:
        del module, rng
        return (self._policy,)

    def follow_ups(self, rollouts: Sequence[Rollout], rng: np.random.Generator) -> Sequence[Policy]:
        [rollout] = rollouts
        trajectory = rollout.trajectory
        if rollout.failure is not None or trajectory is None or not isinstance(trajectory.sites, FunctionOfDecisions):
            return ()
        drawn = draw_counterfactuals(
            self._head,
            self._config,
            self._weights,
            trajectory.features(),
            trajectory.advice,
            trajectory.sites,
            self._num_follow_ups,
            rng,
        )
        return [OverridingPolicy(self._policy, Decisions(each), "counterfactual") for each in drawn if each]


class Counterfactuals(Algorithm):
    """Learns the gains of counterfactuals, see `learner`."""

    description = "counterfactuals of single decisions, their gains learned by regression"
    log_metrics = (
        ("score_change", "score (log ratio)", "+.4f"),
        ("new_gain_correlation", "correlation with new gains", ".2f"),
        ("samples", "samples", ".0f"),
    )

    def __init__(self, context: TrainingContext, config: CounterfactualsConfig):
        """Raises PolicyError if the policy to start from has other features or another shape."""
        head = context.head
        assert isinstance(head, MaskedCategoricalHead)
        self._context = context
        self._config = config
        self._head = head
        self._learner = self._new_learner(context.config.seed)
        start = context.warm_start_weights()
        if start is not None:
            self._learner.warm_start(start)
        empty = Samples(np.empty((0, 2, len(head.features)), np.float32), np.empty(0, np.float32))
        self._replay = Replay(context.root_dir / "samples", empty.rows(), config.max_samples)
        self._num_updates = 0

    def collection_policy(self) -> CollectionPolicy:
        return _WithCounterfactuals(self._context, self._head, self._config, self._learner.average.weights())

    def learn(self, groups: Sequence[Group], rng: np.random.Generator, progress: float) -> dict[str, float]:
        config = self._config
        new = Samples.concatenate([samples for group in groups for samples in self._samples_of(group)])
        self._num_updates += 1
        if not len(new):
            return {}
        margin = config.first_margin + (config.last_margin - config.first_margin) * min(1.0, progress)
        correlation = self._learner.gain_correlation(new, margin)
        self._replay.add(self._num_updates, new.rows())
        samples = Samples.from_rows(self._replay.rows())
        metrics: dict[str, float] = {}
        if len(samples) >= config.first_samples:
            metrics = self._learner.update(samples, margin, config.steps, rng)
        return {
            **metrics,
            "new_gain_correlation": correlation,
            "samples": float(len(samples)),
            "gain_mean": float(new.gains.mean()),
            "share_better": float((new.gains > 0).mean()),
            "share_worse": float((new.gains < 0).mean()),
            "margin": margin,
            "score_change": float(np.mean([self._score_change(group) for group in groups])),
        }

    def policy(self) -> NetworkWeights:
        """The mean of networks that are trained anew; with too few samples, the policy of the rollouts."""
        config, seed = self._config, self._context.config.seed
        samples = Samples.from_rows(self._replay.rows())
        if len(samples) < max(1, config.first_samples):
            return self._learner.average.weights()
        networks = []
        for index in progress_bar(range(config.final_networks), "final networks", unit="network"):
            rng = np.random.default_rng((seed, index))
            learner = self._new_learner(seed + SEEDS_PER_NETWORK * (index + 1))
            drawn = samples.take(rng.integers(len(samples), size=len(samples)))
            for stage in range(_FINAL_STAGES):
                learner.set_learning_rate(0.1 ** (stage / _FINAL_STAGES))
                learner.update(drawn, config.last_margin, -(-config.final_steps // _FINAL_STAGES), rng)
            networks.append(learner.average.weights())
        return mean_network(networks)

    def checkpointed(self) -> dict[str, Any]:
        return self._learner.checkpointed()

    def state(self) -> dict[str, Any]:
        return {"num_updates": self._num_updates}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._num_updates = state["num_updates"]
        self._replay.restore(self._num_updates)

    def _new_learner(self, seed: int) -> GainLearner:
        return GainLearner(self._head, self._context.action_name, self._context.network, self._config, seed)

    def _samples_of(self, group: Group) -> Iterator[Samples]:
        """The samples of each counterfactual rollout of a module."""
        [own] = group.rollouts
        trajectory, problem = own.trajectory, self._context.problem
        if not group.follow_ups or trajectory is None:
            return
        before = problem.own_costs(own.measurement, group.context)
        observations = self._head.observe(trajectory.features())
        for attempt in group.follow_ups:
            # It is unknown which of its changes made the rollout fail.
            if attempt.rollout.failure is not None:
                continue
            assert isinstance(attempt.policy, OverridingPolicy)
            assert isinstance(trajectory.sites, FunctionOfDecisions)
            numbers = {function: number for number, function in enumerate(trajectory.sites.functions)}
            changed = dict(sorted(attempt.policy.decisions.items(), key=lambda item: numbers[item[0].caller]))
            after = problem.own_costs(attempt.rollout.measurement, group.context)
            if before is None or after is None:
                raise ConfigError(f"{problem.name}: has no score by function, which counterfactuals need")
            offset, largest = self._config.score_offset, self._config.largest_gain
            functions = [site.caller for site in changed]
            gains = [log_gain(before.get(name, 0.0), after.get(name, 0.0), offset, largest) for name in functions]
            pairs = candidate_pairs(changed, observations, trajectory.advice, trajectory.sites)
            yield Samples(pairs, np.array(gains, np.float32))

    def _score_change(self, group: Group) -> float:
        """Logarithm of the ratio of a module's score to the default's."""
        [rollout] = group.rollouts
        score = self._context.problem.score(rollout.measurement, group.context)
        return -log_gain(group.baseline, score, self._config.score_offset, self._config.largest_gain)
