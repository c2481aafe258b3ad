"""Training a network by decisions that it has sampled."""

from collections.abc import Mapping
from typing import Any

from compiler_opt.collect.advantages import Advantages
from compiler_opt.collect.groups import CollectionPolicy
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.rl.algorithm import Algorithm
from compiler_opt.rl.config import LearnerConfig
from compiler_opt.rl.learner import NetworkLearner
from compiler_opt.rl.sampled_decisions import DecisionSampler
from compiler_opt.rl.training_run import TrainingRun


class SampledAlgorithm(Algorithm):
    """Trains a network by decisions that it has sampled; a subclass adds `learn`."""

    def __init__(self, run: TrainingRun, advantages: Advantages, config: LearnerConfig, learner: NetworkLearner):
        self._sampler = DecisionSampler(run, advantages, config.project_balance)
        self._advantages = advantages
        self._learner = learner
        self._learning_rate_decay = run.config.learning_rate_decay

    def _set_learning_rate(self, progress: float) -> None:
        """Sets it after a share of the training: it falls linearly."""
        decay = self._learning_rate_decay
        self._learner.set_learning_rate(decay + (1 - decay) * (1 - min(1.0, progress)))

    def collection_policy(self) -> CollectionPolicy:
        return self._sampler.collection_policy(self._learner.weights(), self._learner.temperature)

    def policy(self) -> NetworkWeights:
        return self._learner.average.weights()

    def checkpointed(self) -> dict[str, Any]:
        return self._learner.checkpointed()

    def state(self) -> dict[str, Any]:
        return {"advantages": self._advantages.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._advantages.restore(state["advantages"])
