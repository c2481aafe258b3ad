"""Training by single deviations: each module as the policy decides, then with one decision of each function changed."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tqdm import tqdm

from compiler_opt.collect.advantages import Group
from compiler_opt.collect.groups import Collection
from compiler_opt.collect.rollout import Rollout, RolloutSettings
from compiler_opt.collect.workers import Job
from compiler_opt.errors import ConfigError
from compiler_opt.llvm.interactive import FunctionOfDecisions
from compiler_opt.policies.deviations import DeviatingPolicy
from compiler_opt.policies.weights import NetworkWeights, mean_network
from compiler_opt.rl.config import DeviationsConfig
from compiler_opt.rl.deviations import DeviationLearner, Samples, Trial, Trials, log_gain
from compiler_opt.rl.sample_files import SampleFiles
from compiler_opt.rl.training import Run, Training
from compiler_opt.spaces.heads.masked_categorical import MaskedCategoricalHead
from compiler_opt.spaces.network_config import NetworkConfig

_FINAL_STAGES = 10
"""Of the falling learning rate at the end."""

_SEEDS_OF_A_NETWORK = 100
"""More than it has layers, each of which has a seed."""


@dataclasses.dataclass(frozen=True)
class Deviated(Collection):
    """An iteration whose groups are of one rollout each, the policy's own.

    Attributes:
      samples: what the rollouts that deviate have told.
    """

    samples: Samples


class DeviationTraining(Training[Deviated]):
    """See `rl.deviations`."""

    method = "single deviations, their gains learned by regression"
    told = (
        ("score_change", "score (log ratio)", "+.4f"),
        ("agreement_with_new", "correlation with what was new", ".2f"),
        ("samples", "samples", ".0f"),
    )

    def __init__(self, run: Run, deviations: DeviationsConfig):
        """Prepares a run, or continues the one in its folder.

        Args:
          run: see there; of a module's rollouts one is the policy's own, the others deviate.
          deviations: how the policy learns.

        Raises:
          ConfigError: the problem's decisions cannot be learned so.
          CorpusError, PolicyError, OutputError: something does not fit.
        """
        self._deviations = deviations
        self._samples: list[Samples] = []
        super().__init__(run)

    def _make_learner(self, network: NetworkConfig) -> DeviationLearner:
        kind, name = self._kind, self._problem.name
        if not isinstance(kind, MaskedCategoricalHead):
            raise ConfigError(f"{name}: single deviations are for problems that choose among candidates")
        if self._config.rollouts_per_module < 2:
            raise ConfigError("train_eval.rollouts_per_module: expected at least 2, one of which deviates")
        self._trials = Trials(kind, self._deviations)
        self._files = SampleFiles(self._root_dir / "samples")
        self._new_learner = lambda seed: DeviationLearner(kind, self._action_name, network, self._deviations, seed)
        self._deviation_learner = self._new_learner(self._config.seed)
        return self._deviation_learner

    def _restore_method(self, state: Mapping[str, Any]) -> None:
        del state
        self._samples = self._files.load(self._iteration)
        self._forget()

    def _collect(self) -> Deviated:
        config = self._config
        settings = RolloutSettings(timeout_s=config.compile_timeout_s, backend=config.backend)
        modules = sorted(self._draw_modules(), key=lambda module: -self._baseline.scores[module.name])
        weights = self._deviation_learner.averaged_weights()
        greedy = self._problem.policy(weights)
        total = len(modules) * config.rollouts_per_module
        title = f"iteration {self._iteration + 1}"
        with tqdm(total=total, desc=title, unit="compile", leave=False, disable=None) as progress:
            own = self._rollouts([Job(module, greedy, 0, settings) for module in modules], progress)
            rng = self._rng()
            trials = [(result, drawn) for result in own for drawn in self._draw_trials(result, weights, rng)]
            by_name = {module.name: module for module in modules}
            jobs = []
            for result, drawn in trials:
                policy = DeviatingPolicy(greedy, {trial.function: trial.deviation for trial in drawn})
                jobs.append(Job(by_name[result.module], policy, 0, settings))
            progress.total = len(own) + len(jobs)
            tried = self._rollouts(jobs, progress)
        samples = Samples.concatenate(
            [
                self._judged(drawn, result, deviating)
                for (result, drawn), deviating in zip(trials, tried, strict=True)
                # Of one that failed nobody can tell which of the deviations it was.
                if deviating.failure is None
            ]
        )
        everything = [*own, *tried]
        failures = [result.failure for result in everything if result.failure is not None]
        good = [result for result in own if result.failure is None]
        scores, contexts = self._baseline.scores, self._baseline.contexts
        groups = [
            Group(result.module, [result], scores[result.module], contexts[result.project])
            for result in good
            if result.trajectory is not None
        ]
        undecided = [result.module for result in good if result.trajectory is None]
        cpu_s = sum(result.cpu_s + result.host_cpu_s for result in everything)
        return Deviated(groups, undecided, failures, len(everything), cpu_s, samples)

    def _draw_trials(self, result: Rollout, weights: NetworkWeights, rng: np.random.Generator) -> list[list[Trial]]:
        """What to try in the module that was compiled."""
        trajectory = result.trajectory
        if result.failure is not None or trajectory is None or not isinstance(trajectory.sites, FunctionOfDecisions):
            return []
        drawn = self._trials.draw(
            weights,
            trajectory.features(),
            trajectory.advice,
            trajectory.sites,
            self._config.rollouts_per_module - 1,
            rng,
        )
        return [trials for trials in drawn if trials]

    def _judged(self, trials: Sequence[Trial], own: Rollout, tried: Rollout) -> Samples:
        before = self._problem.by_function(own.measurement)
        after = self._problem.by_function(tried.measurement)
        if before is None or after is None:
            raise ConfigError(f"{self._problem.name}: has no score by function, which single deviations need")
        offset, largest = self._deviations.score_offset, self._deviations.largest_gain
        gains = [
            log_gain(before.get(trial.function, 0.0), after.get(trial.function, 0.0), offset, largest)
            for trial in trials
        ]
        return Samples(np.stack([trial.positions for trial in trials]), np.array(gains, np.float32))

    def _improve(self, collection: Deviated) -> dict[str, float]:
        new, config = collection.samples, self._deviations
        if not len(new):
            return {}
        margin = self._margin()
        agreement = self._deviation_learner.agreement(new, margin)
        self._files.save(self._iteration + 1, new)
        self._samples.append(new)
        self._forget()
        samples = Samples.concatenate(self._samples)
        metrics: dict[str, float] = {}
        if len(samples) >= config.first_samples:
            metrics = self._deviation_learner.update(samples, margin, config.steps, self._rng())
        return {
            **metrics,
            "agreement_with_new": agreement,
            "samples": float(len(samples)),
            "gain_mean": float(new.gains.mean()),
            "share_better": float((new.gains > 0).mean()),
            "share_worse": float((new.gains < 0).mean()),
            "margin": margin,
            "score_change": float(np.mean([self._change(group) for group in collection.groups])),
        }

    def _forget(self) -> None:
        """The oldest samples, when there are too many."""
        while self._samples and sum(map(len, self._samples[1:])) >= self._deviations.max_samples:
            del self._samples[0]

    def _margin(self) -> float:
        first, last = self._deviations.first_margin, self._deviations.last_margin
        return first + (last - first) * min(1.0, self._progress())

    def _change(self, group: Group) -> float:
        """Of a module's score against the default's, as the logarithm of their ratio."""
        [rollout] = group.rollouts
        score = self._problem.score(rollout.measurement, group.context)
        return -log_gain(group.baseline, score, self._deviations.score_offset, self._deviations.largest_gain)

    def _final_weights(self) -> NetworkWeights:
        """The mean of several networks, each trained anew; what decided while training if that never learned."""
        config = self._deviations
        samples = Samples.concatenate(self._samples)
        if len(samples) < max(1, config.first_samples):
            return self._deviation_learner.averaged_weights()
        networks = []
        for index in tqdm(range(config.final_networks), "final networks", unit="network", disable=None):
            rng = np.random.default_rng((self._config.seed, index))
            learner = self._new_learner(self._config.seed + _SEEDS_OF_A_NETWORK * (index + 1))
            drawn = samples.take(rng.integers(len(samples), size=len(samples)))
            for stage in range(_FINAL_STAGES):
                learner.set_learning_rate(0.1 ** (stage / _FINAL_STAGES))
                learner.update(drawn, config.last_margin, -(-config.final_steps // _FINAL_STAGES), rng)
            networks.append(learner.averaged_weights())
        return mean_network(networks)
