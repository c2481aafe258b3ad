"""The main loop: collect under the current policy, learn from it, remember where we are."""

import abc
import dataclasses
import hashlib
import logging
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from tqdm import tqdm

from compiler_opt.collect.baseline import Baseline, cached_baseline, check_failures
from compiler_opt.collect.decision_counts import cached_decision_counts
from compiler_opt.collect.groups import Collection
from compiler_opt.collect.rollout import Rollout, RolloutSettings
from compiler_opt.collect.workers import Job, WorkerPool
from compiler_opt.corpus.description import Corpus, Module
from compiler_opt.corpus.sampling import ModuleSampler, make_sampler
from compiler_opt.errors import ConfigError, CorpusError, PolicyError
from compiler_opt.export.saved_model import save_policy
from compiler_opt.llvm.ir2vec import Ir2VecVocabulary
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.problems.problem import Problem
from compiler_opt.rl.checkpoints import Checkpoints
from compiler_opt.rl.config import TrainingConfig
from compiler_opt.rl.history import History
from compiler_opt.rl.run_settings import name_differences
from compiler_opt.spaces.network_config import NetworkConfig

_LOG = logging.getLogger(__name__)

POLICY_DIR = "policy"


class Learner(Protocol):
    """Owns what is trained."""

    def checkpointed(self) -> dict[str, Any]:
        """TensorFlow objects to keep."""

    def warm_start(self, weights: NetworkWeights) -> None:
        """Continues from a policy's weights."""


@dataclasses.dataclass(frozen=True)
class Run:
    """What is trained, on what, and where.

    Attributes:
      root_dir: the run's folder.
      corpus: the modules to train on.
      toolchain: the compiler.
      problem: what is decided.
      pool: who compiles.
      quantiles: the vocabulary; its features are those the policy sees.
      config: how long and on what.
      network: the networks' shape.
      settings: all of it as text, by which a run that is continued is compared, see `run_settings.describe`.
    """

    root_dir: Path
    corpus: Corpus
    toolchain: Toolchain
    problem: Problem
    pool: WorkerPool
    quantiles: Mapping[str, np.ndarray]
    config: TrainingConfig
    network: NetworkConfig
    settings: Mapping[str, str] = dataclasses.field(default_factory=dict)


_Collected = TypeVar("_Collected", bound=Collection)


class Training(abc.ABC, Generic[_Collected]):
    """One run; its folder holds checkpoints, history, summaries, the baseline and the policy."""

    method: str
    """How it learns, for the model card."""

    told: tuple[tuple[str, str, str], ...] = ()
    """What each iteration says of learning: name in the history, title, format."""

    def __init__(self, run: Run):
        """Prepares a run, or continues the one in its folder.

        Raises:
          CorpusError, PolicyError, OutputError, ConfigError: something does not fit.
        """
        root_dir, corpus, toolchain, problem = run.root_dir, run.corpus, run.toolchain, run.problem
        config, pool, quantiles = run.config, run.pool, run.quantiles
        self._root_dir = root_dir
        self._toolchain = toolchain
        self._problem = problem
        self._pool = pool
        self._config = config
        self._settings = run.settings
        support = toolchain.require(problem.advisor.problem)
        self._sent = support.features
        self._kind = problem.head(quantiles, self._sent)
        self._features = self._kind.features
        self._trained_on = {
            "name": corpus.root.resolve().name,
            "num_modules": len(corpus.modules),
            "projects": sorted(corpus.projects()),
            "targets": corpus.targets(toolchain.target),
        }
        action = support.advice
        self._vocabulary = fingerprint(self._features, quantiles, toolchain.embeddings)
        self._action_name = action.name if action is not None else problem.name
        self._learner = self._make_learner(run.network)
        self._checkpoints = Checkpoints(root_dir / "checkpoints", **self._learner.checkpointed())
        self._iteration, self._elapsed_s, self._compiles, self._position = 0, 0.0, 0, 0
        self._undecided: set[str] = set()
        self._resume()
        self._flags = corpus.problem_config.to_json()
        key = {"toolchain": toolchain.identity(), "corpus": str(corpus.root.resolve()), **self._flags}
        self._baseline = cached_baseline(root_dir / "baseline.json", key, corpus.modules, pool, problem)
        usable = [module for module in corpus.modules if self._baseline.scores.get(module.name, 0) > 0]
        if not usable:
            raise CorpusError(f"{corpus.root}: no module compiles to any text")
        self._sampler = self._make_sampler(usable, key)
        # Last: whatever does not fit has been found by now, and a folder without a run in it has not been made.
        self._history = History(root_dir, self._iteration)

    @property
    def baseline(self) -> Baseline:
        return self._baseline

    def run(self) -> NetworkWeights:
        """Trains to the end and saves the policy; killed at any moment, the same call goes on from the last iteration.

        Raises:
          CorpusError: most modules of an iteration fail.
          OutputError: a checkpoint cannot be written.
        """
        if self._progress() >= 1 and (self._root_dir / POLICY_DIR).is_dir():
            return NetworkWeights.load(self._root_dir / POLICY_DIR)
        while self._progress() < 1:
            start_s = time.monotonic()
            collection = self._collect()
            check_failures({failure: failure for failure in collection.failures}, collection.num_compiles)
            for failure in collection.failures:
                _LOG.warning("rollout failed: %s", failure)
            self._learn(collection, start_s)
        weights = self._final_weights()
        weights = dataclasses.replace(weights, metadata={**self._metadata(), **weights.metadata})
        save_policy(self._root_dir / POLICY_DIR, weights, self._problem.action_space, self._action_name, self._sent)
        return weights

    def _progress(self) -> float:
        """How much of the run is done, 0 to 1."""
        by_iterations = self._iteration / self._config.num_iterations
        by_time = self._elapsed_s / (60 * self._config.max_minutes) if self._config.max_minutes else 0.0
        return max(by_iterations, by_time)

    @abc.abstractmethod
    def _make_learner(self, network: NetworkConfig) -> Learner:
        """What learns, before it has learned anything."""

    @abc.abstractmethod
    def _collect(self) -> _Collected:
        """Compiles what an iteration learns from."""

    @abc.abstractmethod
    def _improve(self, collection: _Collected) -> dict[str, float]:
        """Makes the policy better by an iteration's rollouts; returns what the history tells of it."""

    def _make_sampler(self, modules: Sequence[Module], key: Mapping[str, Any]) -> ModuleSampler:
        config = self._config

        def counts() -> Mapping[str, int]:
            settings = RolloutSettings(timeout_s=config.compile_timeout_s, backend=config.backend)
            path = self._root_dir / "decisions.json"
            return cached_decision_counts(path, key, modules, self._pool, self._problem, settings)

        return make_sampler(config.sampling, modules, config.seed, counts)

    @abc.abstractmethod
    def _final_weights(self) -> NetworkWeights:
        """What is saved; its metadata are added to the run's."""

    def _method_state(self) -> dict[str, Any]:
        """What else must survive an interruption; JSON."""
        return {}

    def _restore_method(self, state: Mapping[str, Any]) -> None:
        """Continues from `_method_state()`, after `self._iteration` is restored."""
        del state

    def _draw_modules(self) -> list[Module]:
        """The next modules; but for those that are known to have nothing to decide."""
        modules = self._sampler.draw(self._position, self._config.num_modules)
        self._position += len(modules)
        return [module for module in modules if module.name not in self._undecided]

    def _rollouts(self, jobs: Sequence[Job], progress: tqdm) -> list[Rollout]:
        """In the order of the jobs, not that in which they are done: learning must not depend on that."""
        results = {}
        for job, result in self._pool.rollouts(jobs):
            results[id(job)] = result
            progress.update()
        return [results[id(job)] for job in jobs]

    def _learn(self, collection: _Collected, start_s: float) -> None:
        metrics: dict[str, float] = {}
        if collection.groups:
            metrics = self._improve(collection)
        self._iteration += 1
        self._compiles += collection.num_compiles
        self._undecided.update(collection.undecided)
        seconds = time.monotonic() - start_s
        self._elapsed_s += seconds
        self._record(collection, metrics, seconds)
        self._checkpoints.save(self._iteration, self._state())

    def _rng(self) -> np.random.Generator:
        """Of this iteration."""
        return np.random.default_rng((self._config.seed, self._iteration))

    def _record(self, collection: Collection, metrics: Mapping[str, float], seconds: float) -> None:
        rewards = {group.module: group.rewards(self._problem) for group in collection.groups}
        by_project: defaultdict[str, list[np.ndarray]] = defaultdict(list)
        for group in collection.groups:
            by_project[group.rollouts[0].project].append(rewards[group.module])
        everything = np.concatenate(list(rewards.values())) if rewards else np.zeros(1)
        entry: dict[str, Any] = {
            "iteration": self._iteration,
            "compiles": self._compiles,
            "elapsed_s": round(self._elapsed_s, 3),
            "reward_mean": float(everything.mean()),
            "reward_by_project": {
                name: float(np.concatenate(parts).mean()) for name, parts in sorted(by_project.items())
            },
            **metrics,
            "failures": len(collection.failures),
            "decisions": sum(len(trajectory) for group in collection.groups for trajectory in group.trajectories()),
            "compiles_per_s": collection.num_compiles / seconds,
            "collect_cpu_s": collection.cpu_s,
        }
        self._history.add(entry, everything)
        _LOG.info(
            "iteration %d: reward %+.2f%%, %s, %.1f compiles/s, %d failures, %.1f min so far",
            self._iteration,
            100 * entry["reward_mean"],
            ", ".join(f"{title} {metrics.get(name, 0.0):{form}}" for name, title, form in self.told),
            entry["compiles_per_s"],
            entry["failures"],
            self._elapsed_s / 60,
        )

    def _state(self) -> dict[str, Any]:
        return {
            "elapsed_s": self._elapsed_s,
            "compiles": self._compiles,
            "position": self._position,
            "undecided": sorted(self._undecided),
            "vocabulary": self._vocabulary,
            "settings": dict(self._settings),
            **self._method_state(),
        }

    def _resume(self) -> None:
        found = self._checkpoints.restore(self._check_state)
        if found is None:
            if self._config.warmstart_policy_dir:
                self._learner.warm_start(self._warm_start_weights(Path(self._config.warmstart_policy_dir)))
            return
        self._iteration, state = found
        self._elapsed_s, self._compiles = state["elapsed_s"], state["compiles"]
        self._position, self._undecided = state["position"], set(state["undecided"])
        self._restore_method(state)
        _LOG.info("continuing after iteration %d", self._iteration)

    def _check_state(self, state: Mapping[str, Any]) -> None:
        name_differences(self._root_dir, state["settings"], self._settings)
        if state["vocabulary"] != self._vocabulary:
            raise ConfigError(
                f"{self._root_dir}: holds a run with another vocabulary, under which its weights mean something else; "
                "use that, or another --root_dir"
            )

    def _warm_start_weights(self, directory: Path) -> NetworkWeights:
        weights = NetworkWeights.load(directory)
        if weights.features != self._features:
            odd: Sequence[str] = sorted(set(weights.features) ^ set(self._features))
            raise PolicyError(
                f"{directory}: its features are not the vocabulary's; they differ in: {', '.join(odd) or 'order'}"
            )
        return weights

    def _metadata(self) -> dict[str, Any]:
        return {
            "problem": self._problem.name,
            "toolchain": self._toolchain.identity(),
            "corpus": self._trained_on,
            **self._flags,
            "method": self.method,
            "iterations": self._iteration,
            "compiles": self._compiles,
            "training_minutes": round(self._elapsed_s / 60, 2),
            "seed": self._config.seed,
        }


def fingerprint(
    features: Sequence[str], quantiles: Mapping[str, np.ndarray], embeddings: Ir2VecVocabulary | None
) -> str:
    """Tells one vocabulary from another, and what embeddings are made by."""
    digest = hashlib.sha256(embeddings.sha256.encode() if embeddings is not None else b"")
    for name in features:
        digest.update(f"{name} {np.asarray(quantiles[name], np.float64).tolist()}\n".encode())
    return digest.hexdigest()
