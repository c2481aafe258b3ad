"""The training loop: collect rollouts, learn from them, validate, checkpoint."""

import dataclasses
import functools
import logging
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from compiler_opt.collect.groups import RolloutBatch, collect_groups
from compiler_opt.collect.rollout import check_failures
from compiler_opt.collect.shared_parts import LatestContexts
from compiler_opt.corpus.module import Module
from compiler_opt.corpus.sampling import ModuleSampler
from compiler_opt.errors import ConfigError
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.problems.problem import Problem
from compiler_opt.rl.algorithm import Algorithm
from compiler_opt.rl.best_policy import BestPolicy
from compiler_opt.rl.checkpoints import Checkpoints
from compiler_opt.rl.config import POLICY_DIR, TrainingConfig
from compiler_opt.rl.history import History
from compiler_opt.rl.learning import save_run_policy
from compiler_opt.rl.training_context import TrainingContext, log_changed_settings, origin

_LOG = logging.getLogger(__name__)


@dataclasses.dataclass
class _Progress:
    """Progress of a run, over all its sessions.

    Attributes:
      iteration: iterations done.
      elapsed_s: wall-clock seconds that they took.
      compiles: compilations that they took.
      position: modules drawn so far.
      undecided: names of modules without decisions.
      iteration_s: wall-clock seconds of the last iteration.
    """

    iteration: int = 0
    elapsed_s: float = 0.0
    compiles: int = 0
    position: int = 0
    undecided: set[str] = dataclasses.field(default_factory=set)
    iteration_s: float = 0.0

    def share(self, config: TrainingConfig) -> float:
        """Share of the run that is done: from 0 to 1, or more if the last iteration took longer than was left."""
        by_time = self.elapsed_s / (60 * config.max_minutes) if config.max_minutes else 0.0
        by_iterations = self.iteration / config.num_iterations if config.num_iterations else 1.0
        by_compiles = self.compiles / config.max_compiles if config.max_compiles else 0.0
        return max(by_iterations, by_compiles, by_time)

    def is_validated(self, config: TrainingConfig, compiles_before: int) -> bool:
        """Whether the policy is validated after an iteration, before which there were so many compilations."""
        if self.share(config) >= 1:
            return True
        if every := config.validation_compiles:
            return self.compiles // every > compiles_before // every
        return self.iteration % config.validation_iterations == 0

    def next_modules(self, sampler: ModuleSampler, count: int) -> list[Module]:
        """The next modules, without those that have no decisions."""
        modules = sampler.draw(self.position, count)
        self.position += len(modules)
        return [module for module in modules if module.name not in self.undecided]

    def add(self, batch: RolloutBatch, seconds: float) -> None:
        """Counts an iteration that took so many wall-clock seconds."""
        self.iteration += 1
        self.iteration_s = seconds
        self.elapsed_s += seconds
        self.compiles += batch.num_compiles
        self.undecided.update(batch.undecided)

    def to_json(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "undecided": sorted(self.undecided)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "_Progress":
        return cls(**{**value, "undecided": set(value["undecided"])})


def train(context: TrainingContext, algorithm: Algorithm) -> NetworkWeights:
    """Trains to the end and saves the policy; killed at any moment, the same call resumes after the last iteration.

    Writes checkpoints, history, summaries, the baseline and the policy into the run's folder. With a validation corpus
    in the context, the policy is the best one on it, see `rl.best_policy`.

    Raises:
      CorpusError: most modules of an iteration fail.
      PolicyError, ConfigError: policy, vocabulary or settings do not suit the run that is resumed.
      OutputError: a checkpoint cannot be written.
    """
    config, policy_dir = context.config, context.root_dir / POLICY_DIR
    checkpoints = Checkpoints(context.root_dir / "checkpoints", **algorithm.checkpointed())
    progress, copies = _start_or_resume(context, algorithm, checkpoints)
    latest = LatestContexts(context.problem, context.baseline, copies)
    sampler, best = context.sampler, BestPolicy(context)
    # Last, when nothing can be wrong any more: it changes the run's folder.
    history = History(context.root_dir, progress.iteration if progress.iteration else -1)
    if progress.share(config) >= 1 and policy_dir.is_dir():
        return NetworkWeights.load(policy_dir)
    policy_now = functools.partial(_policy, context, algorithm, progress)
    if not progress.iteration and (start := best.validate(0, policy_now)):
        history.add({"iteration": 0, "compiles": 0, "elapsed_s": 0.0, **start})
    while progress.share(config) < 1:
        start_s = time.monotonic()
        seed, title = (config.seed, progress.iteration), f"iteration {progress.iteration + 1}"
        modules = progress.next_modules(sampler, config.num_modules)
        policy = algorithm.collection_policy()
        baseline = latest.baseline if config.counts_copies else context.baseline
        batch = collect_groups(modules, policy, baseline, context.pool, seed=seed, description=title)
        check_failures(batch.failed_modules, len(modules))
        metrics: Mapping[str, Any] = {}
        learn_cpu_s = -time.process_time()
        if batch.groups:
            metrics = algorithm.learn(batch.groups, np.random.default_rng(seed), progress.share(config))
        learn_cpu_s += time.process_time()
        latest.update(batch.groups)
        compiles_before = progress.compiles
        progress.add(batch, time.monotonic() - start_s)
        validated: Mapping[str, Any] = {}
        if progress.is_validated(config, compiles_before):
            validated = best.validate(progress.iteration, policy_now)
        progress.elapsed_s += validated.get("validation_s", 0.0)
        metrics = {**metrics, **validated, "learn_cpu_s": learn_cpu_s}
        _record(history, progress, batch, context.problem, metrics, algorithm.log_metrics)
        checkpoints.save(progress.iteration, _state(context, algorithm, latest, progress))
    weights = best.choose(progress.iteration, policy_now)
    save_run_policy(
        context.root_dir, weights, context.problem.action_space, context.action_name, context.compiler_features
    )
    return weights


def _start_or_resume(
    context: TrainingContext, algorithm: Algorithm, checkpoints: Checkpoints
) -> tuple[_Progress, dict[str, Any]]:
    """The progress so far, and the state of the copies."""

    def check(state: Mapping[str, Any]) -> None:
        log_changed_settings(context.root_dir, state["settings"], context.settings)
        if state["vocabulary"] != context.vocabulary_fingerprint():
            raise ConfigError(
                f"{context.root_dir}: holds a run with another vocabulary, under which its weights mean something "
                "else; use that one, or another --root_dir"
            )

    state = checkpoints.restore(check)
    if state is None:
        return _Progress(), {}
    algorithm.restore(state["algorithm"])
    progress = _Progress.from_json(state["progress"])
    _LOG.info("resuming after iteration %d", progress.iteration)
    return progress, state.get("copies", {})


def _state(
    context: TrainingContext, algorithm: Algorithm, latest: LatestContexts, progress: _Progress
) -> dict[str, Any]:
    """The state of a checkpoint, without variables."""
    return {
        "settings": dict(context.settings),
        "vocabulary": context.vocabulary_fingerprint(),
        "progress": progress.to_json(),
        "algorithm": algorithm.state(),
        "copies": latest.state(),
    }


def _policy(context: TrainingContext, algorithm: Algorithm, progress: _Progress) -> NetworkWeights:
    """The policy as it would be saved now."""
    weights = algorithm.policy()
    return dataclasses.replace(weights, metadata={**_metadata(context, algorithm, progress), **weights.metadata})


def _metadata(context: TrainingContext, algorithm: Algorithm, progress: _Progress) -> dict[str, Any]:
    return {
        **origin(context.corpus, context.corpus.modules, context.problem, context.toolchain),
        "method": algorithm.description,
        "iterations": progress.iteration,
        "compiles": progress.compiles,
        "training_minutes": round(progress.elapsed_s / 60, 2),
        "seed": context.config.seed,
    }


def _record(
    history: History,
    progress: _Progress,
    batch: RolloutBatch,
    problem: Problem,
    metrics: Mapping[str, Any],
    log_metrics: Sequence[tuple[str, str, str]],
) -> None:
    """Adds the iteration to the history and to the log."""
    rewards = {group.module: group.rewards(problem) for group in batch.groups}
    by_project: defaultdict[str, list[np.ndarray]] = defaultdict(list)
    for group in batch.groups:
        by_project[group.project].append(rewards[group.module])
    all_rewards = np.concatenate(list(rewards.values())) if rewards else np.zeros(1)
    entry: dict[str, Any] = {
        "iteration": progress.iteration,
        "compiles": progress.compiles,
        "elapsed_s": round(progress.elapsed_s, 3),
        "reward_mean": float(all_rewards.mean()),
        "reward_by_project": {name: float(np.concatenate(parts).mean()) for name, parts in sorted(by_project.items())},
        **metrics,
        "failures": len(batch.failures),
        "decisions": sum(len(trajectory) for group in batch.groups for trajectory in group.trajectories()),
        "compiles_per_s": batch.num_compiles / progress.iteration_s,
        "collect_cpu_s": batch.cpu_s,
    }
    history.add(entry, all_rewards)
    for failure in batch.failures:
        _LOG.warning("rollout failed: %s", failure)
    for reason in batch.too_few:
        _LOG.warning("nothing learned from %s", reason)
    _LOG.info(
        "iteration %d: reward %+.2f%%, %s, %.1f compiles/s, %d failures, %.1f min so far",
        progress.iteration,
        100 * entry["reward_mean"],
        ", ".join(f"{label} {metrics.get(key, 0.0):{form}}" for key, label, form in log_metrics),
        entry["compiles_per_s"],
        entry["failures"],
        progress.elapsed_s / 60,
    )
