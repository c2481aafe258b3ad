"""Training by evolution of a rule: its parameters are searched for by compilations, then a network learns the rule."""

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tqdm import tqdm

from compiler_opt.collect.advantages import Group
from compiler_opt.collect.groups import Collection
from compiler_opt.collect.rollout import Rollout, RolloutSettings
from compiler_opt.collect.workers import Job
from compiler_opt.corpus.description import Module
from compiler_opt.errors import ConfigError, CorpusError, PolicyError
from compiler_opt.policies.rule import RULE, Rule, RulePolicy
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.rl.behavioral_cloning import Cloner, split_by_module
from compiler_opt.rl.config import EvolutionConfig
from compiler_opt.rl.evolution import ParameterSearch, weighted_gain
from compiler_opt.rl.training import Run, Training
from compiler_opt.spaces.network_config import NetworkConfig

_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Perturbed(Collection):
    """An iteration whose groups are pairs of rollouts.

    Attributes:
      directions: `[N, P]`; the first rollout of each group went along it, the second against it.
    """

    directions: np.ndarray


class RuleLearner:
    """Owns the search; what is learned are the rule's parameters."""

    def __init__(self, rule: Rule, config: EvolutionConfig):
        self._rule = rule
        self._config = config
        self.search = ParameterSearch(rule.start(), rule.scale(), config)

    def checkpointed(self) -> dict[str, Any]:
        # No TensorFlow object; the search's state is JSON.
        return {}

    def warm_start(self, weights: NetworkWeights) -> None:
        """Goes on from the parameters that an earlier search found.

        Raises:
          PolicyError: the policy does not come from one.
        """
        found = weights.metadata.get(RULE)
        if not isinstance(found, Mapping):
            raise PolicyError(
                "evolution begins with the compiler's own rule, or with a policy that it has made: expected the "
                f"parameters of a rule in its metadata ({RULE!r}), found none; give --vocab_path and no warm start"
            )
        self.search = ParameterSearch(self._rule.values(found), self._rule.scale(), self._config)


class EvolutionTraining(Training[Perturbed]):
    """See `rl.evolution`."""

    method = "evolution strategies over the parameters of a rule, cloned"
    told = (("surest", "surest parameter by standard errors", ".1f"),)

    def __init__(self, run: Run, evolution: EvolutionConfig):
        """Prepares a run, or continues the one in its folder.

        Args:
          run: see there; of a module's rollouts one goes along a direction, the other against it.
          evolution: how to search, and how to clone.

        Raises:
          ConfigError: the problem has no rule.
          CorpusError, PolicyError, OutputError: something does not fit.
        """
        if run.problem.rule is None:
            raise ConfigError(f"{run.problem.name}: has no rule whose parameters could be searched for")
        if run.config.rollouts_per_module != 2:
            raise ConfigError("train_eval.rollouts_per_module: expected 2, along a direction and against it")
        self._rule = run.problem.rule
        self._evolution = evolution
        super().__init__(run)

    def _make_learner(self, network: NetworkConfig) -> RuleLearner:
        self._network = network
        self._rule_learner = RuleLearner(self._rule, self._evolution)
        return self._rule_learner

    def _method_state(self) -> dict[str, Any]:
        return {"search": self._rule_learner.search.state()}

    def _restore_method(self, state: Mapping[str, Any]) -> None:
        self._rule_learner.search.restore(state["search"])

    def _collect(self) -> Perturbed:
        search, title = self._rule_learner.search, f"iteration {self._iteration + 1}"
        modules = sorted(self._draw_modules(), key=lambda module: -self._baseline.scores[module.name])
        directions = search.directions(len(modules), self._rng())
        jobs = [
            self._job(module, RulePolicy(self._rule, search.current + sign * direction))
            for module, direction in zip(modules, directions, strict=True)
            for sign in (1, -1)
        ]
        with tqdm(total=len(jobs), desc=title, unit="compile", leave=False, disable=None) as progress:
            results = self._rollouts(jobs, progress)
        pairs = list(zip(results[0::2], results[1::2], strict=True))
        good = [pair for pair in pairs if all(rollout.failure is None for rollout in pair)]
        is_decided = [_all_decide(pair) for pair in pairs]
        scores, contexts = self._baseline.scores, self._baseline.contexts
        return Perturbed(
            [
                Group(pair[0].module, pair, scores[pair[0].module], contexts[pair[0].project])
                for pair, decided in zip(pairs, is_decided, strict=True)
                if decided
            ],
            [pair[0].module for pair in good if all(rollout.trajectory is None for rollout in pair)],
            [rollout.failure for rollout in results if rollout.failure is not None],
            len(results),
            sum(rollout.cpu_s + rollout.host_cpu_s for rollout in results),
            directions[is_decided],
        )

    def _job(self, module: Module, policy: RulePolicy) -> Job:
        config = self._config
        return Job(module, policy, 0, RolloutSettings(timeout_s=config.compile_timeout_s, backend=config.backend))

    def _improve(self, collection: Perturbed) -> dict[str, float]:
        search = self._rule_learner.search
        metrics: dict[str, float] = {}
        if len(collection.groups) > 1:
            gains = np.array([self._gain(*group.rollouts) for group in collection.groups])
            metrics["surest"] = float(np.abs(search.update(collection.directions, gains)).max())
        return metrics | {f"rule/{name}": value for name, value in self._rule.named(search.current).items()}

    def _gain(self, along: Rollout, against: Rollout) -> float:
        """By how much the first rollout of a module is better."""
        first, second = (self._problem.by_function(rollout.measurement) for rollout in (along, against))
        if first is None or second is None:
            raise ConfigError(f"{self._problem.name}: has no score by function, which evolution needs")
        return weighted_gain(first, second, hotness=self._evolution.hotness, offset=self._evolution.score_offset)

    def _final_weights(self) -> NetworkWeights:
        """A network that has learned the rule from what modules ask when the rule decides."""
        found = self._rule_learner.search.averaged
        policy = RulePolicy(self._rule, found)
        modules = self._sampler.draw(0, self._evolution.cloned_modules)
        jobs = [self._job(module, policy) for module in modules if module.name not in self._undecided]
        with tqdm(total=len(jobs), desc="what is to be cloned", unit="compile", disable=None) as progress:
            results = self._rollouts(jobs, progress)
        decided = [result for result in results if _all_decide([result])]
        if len(decided) < 2:
            raise CorpusError("expected at least 2 modules with decisions to learn the rule from, found fewer")
        trajectories = [result.trajectory for result in decided if result.trajectory is not None]
        observed = [self._kind.observe(trajectory.features()) for trajectory in trajectories]
        cloning = self._evolution.cloning(self._config.seed)
        training, unseen = split_by_module(
            {name: [part[name] for part in observed] for name in observed[0]},
            self._kind.actions(np.concatenate([trajectory.advice for trajectory in trajectories])),
            [result.module for result in decided],
            [len(trajectory) for trajectory in trajectories],
            cloning,
        )
        cloned = Cloner(self._kind, self._action_name, self._network, cloning).clone(training, unseen)
        accuracy = cloned.best["accuracy"]
        _LOG.info(
            "the network decides as the rule does in %.2f%% of %d decisions of modules it has not seen",
            100 * accuracy,
            len(unseen),
        )
        return dataclasses.replace(cloned.weights, metadata={RULE: self._rule.named(found), "accuracy": accuracy})


def _all_decide(rollouts: Sequence[Rollout]) -> bool:
    return all(rollout.failure is None and rollout.trajectory is not None for rollout in rollouts)
