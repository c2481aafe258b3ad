"""What a training run is made of, for its loop and its algorithm, and which settings change when it resumes."""

import dataclasses
import functools
import hashlib
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler_opt import pretrained
from compiler_opt.collect.baseline import (
    MEASUREMENTS_FORMAT,
    Baseline,
    FindShared,
    cached_baseline,
    cached_decision_counts,
    shared_file,
)
from compiler_opt.collect.rollout import RolloutSettings
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.module import Module
from compiler_opt.corpus.sampling import ModuleSampler, make_sampler
from compiler_opt.errors import ConfigError, CorpusError, PolicyError
from compiler_opt.files import shown
from compiler_opt.llvm.ir2vec import Ir2VecVocabulary
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.weights import NetworkConfig, NetworkWeights
from compiler_opt.problem import Problem
from compiler_opt.rl.config import TrainingConfig
from compiler_opt.rl.time_profile import Stopwatch
from compiler_opt.tensor_spec import TensorSpec

if TYPE_CHECKING:
    from compiler_opt.spaces.heads.head import Head


_LOG = logging.getLogger(__name__)

_FIXED = ("compile_task", "train_eval.algorithm")
"""Settings that cannot change: the run's weights mean nothing under others."""


@dataclasses.dataclass(frozen=True)
class TrainingRun:
    """A training run.

    Attributes:
      root_dir: the run's folder.
      corpus: the modules to train on.
      toolchain: the compiler.
      problem: what is decided.
      pool: compiles modules.
      quantiles: the vocabulary, by feature of the policy.
      config: settings of the loop.
      network: the networks' shape.
      settings: all settings as text, to be compared when the run is resumed, see `describe_settings`.
      validation: the modules by which the best policy is found, of other projects; None: the last policy is saved.
      stopwatch: measures what the host does in an iteration.
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
    validation: Corpus | None = None
    stopwatch: Stopwatch = dataclasses.field(default_factory=Stopwatch)

    @property
    def compiler_features(self) -> tuple[TensorSpec, ...]:
        return self.toolchain.require(self.problem.decision.advisor.problem).features

    @property
    def action_name(self) -> str:
        """The advice's name, such as `inlining_decision`."""
        advice = self.toolchain.require(self.problem.decision.advisor.problem).advice
        return advice.name if advice is not None else self.problem.name

    @functools.cached_property
    def head(self) -> "Head":
        """The head of the problem's action space under the vocabulary. Needs TensorFlow."""
        return self.problem.decision.head(self.quantiles, self.compiler_features)

    def baseline(self) -> Baseline:
        """Scores of the default policy, of each module. Compiles them all in the first call, if no earlier run did.

        Raises CorpusError if most modules fail.
        """
        return self._baseline

    def sampler(self) -> ModuleSampler:
        """Draws modules that compile to some text, and have decisions if that is known; first computes `baseline`.

        Raises CorpusError if there are none.
        """
        return self._sampler

    @functools.cached_property
    def _baseline(self) -> Baseline:
        path = self.root_dir / "baseline.json"
        modules, find_shared = self.corpus.modules, self._find_shared("baseline", self.corpus.modules)
        return cached_baseline(path, self._measurements_key(), modules, self.pool, self.problem, find_shared)

    @functools.cached_property
    def _sampler(self) -> ModuleSampler:
        scores, undecided = self.baseline().scores, set(self.baseline().undecided)
        modules = [module for module in self.corpus.modules if scores.get(module.name, 0) > 0]
        if not modules:
            raise CorpusError(f"{self.corpus.root}: no module compiles to any text")
        modules = [module for module in modules if module.name not in undecided]
        if not modules:
            raise CorpusError(f"{self.corpus.root}: no module has anything to decide for a policy")

        def counts() -> Mapping[str, int]:
            path, key = self.root_dir / "decisions.json", self._measurements_key()
            settings, find_shared = self.rollout_settings(), self._find_shared("decisions", modules)
            return cached_decision_counts(path, key, modules, self.pool, self.problem, settings, find_shared)

        return make_sampler(self.config.sampling, modules, self.config.seed, counts)

    def rollout_settings(self, *, record_call_sites: bool = False) -> RolloutSettings:
        timeout_s, backend = self.config.compile_timeout_s, self.config.backend
        return RolloutSettings(timeout_s=timeout_s, record_call_sites=record_call_sites, backend=backend)

    def vocabulary_fingerprint(self) -> str:
        """See `fingerprint`."""
        return fingerprint(self.head.features, self.quantiles, self.toolchain.embeddings)

    def warm_start_weights(self) -> NetworkWeights | None:
        """Weights of the policy to start from, if any. Raises PolicyError if its features are not the vocabulary's."""
        directory = self.config.warmstart_policy_dir
        if not directory:
            return None
        weights = NetworkWeights.load(pretrained.folder(directory))
        if odd := sorted(set(weights.features) ^ set(self.head.features)):
            raise PolicyError(f"{directory}: its features are not the vocabulary's; they differ in: {', '.join(odd)}")
        return weights.reordered(self.head.features)  # a combined policy has those of its rules last

    def _find_shared(self, measured: str, modules: Sequence[Module]) -> FindShared:
        """Finds the file that runs share of what is measured of modules, whatever their folder."""
        about = {name: value for name, value in self._measurements_key().items() if name != "corpus"}
        about |= {"measured": measured, "problem": self.problem.name, "format": MEASUREMENTS_FORMAT}
        return lambda: shared_file(modules, self.toolchain.clang, about)

    def _measurements_key(self) -> dict[str, Any]:
        """Everything that measurements of the corpus depend on."""
        corpus = str(self.corpus.root.resolve())
        about = {"toolchain": self.toolchain.identity(), "corpus": corpus, **self.corpus.problem_config.to_json()}
        return about | self.problem.objective.metadata()


def origin(corpus: Corpus, modules: Sequence[Module], problem: Problem, toolchain: Toolchain) -> dict[str, Any]:
    """Metadata of a trace or policy: the problem, the compiler, and the modules of a corpus that it was made from."""
    return {
        "problem": problem.name,
        "toolchain": toolchain.identity(),
        "corpus": {
            "name": corpus.root.resolve().name,
            "num_modules": len(corpus.modules),
            "projects": sorted({module.project for module in modules}),
            "targets": corpus.targets(toolchain.target),
        },
        **corpus.problem_config.to_json(),
        **problem.objective.metadata(),
    }


def fingerprint(
    features: Sequence[str], quantiles: Mapping[str, np.ndarray], embeddings: Ir2VecVocabulary | None
) -> str:
    """Identifies the quantiles of features, and the IR2Vec vocabulary of embeddings."""
    digest = hashlib.sha256(embeddings.sha256.encode() if embeddings is not None else b"")
    for name in features:
        digest.update(f"{name} {np.asarray(quantiles[name], np.float64).tolist()}\n".encode())
    return digest.hexdigest()


def describe_corpus(corpus: Corpus) -> str:
    """The number of modules, and a hash of their names and sizes; the same in whatever folder, on any machine.

    Raises CorpusError if a module is gone.
    """
    content = "\n".join(f"{module.name} {module.bitcode_bytes()}" for module in corpus.modules)
    digest = hashlib.sha256(content.encode("utf-8", "surrogateescape")).hexdigest()
    return f"{len(corpus.modules)} modules (names and sizes {digest[:16]})"


def describe_settings(
    problem: Problem, corpus: Corpus, toolchain: Toolchain, configs: Mapping[str, Any]
) -> dict[str, str]:
    """Everything that the result of a run depends on, as text by the user's names; `configs` are by names in gin.

    Raises CorpusError if a module is gone.
    """
    found: dict[str, Any] = {
        "compile_task": problem.name,
        "corpus": describe_corpus(corpus),
        "compiler": toolchain.version_text,
        **problem.objective.metadata(),
    }
    for name, config in {**configs, "problem_config": corpus.problem_config}.items():
        found |= {f"{name}.{field}": value for field, value in dataclasses.asdict(config).items()}
    return {name: value if isinstance(value, str) else repr(value) for name, value in found.items()}


def log_changed_settings(root_dir: Path, before: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Logs each setting that has changed. Raises ConfigError if the run cannot be resumed with the change."""
    for name in {**before, **now}:
        if before.get(name) == now.get(name):
            continue
        was, is_now = (shown(values[name]) if name in values else "not set" for values in (before, now))
        if name in _FIXED:
            raise ConfigError(
                f"{root_dir}: holds a run whose {name} was {was}, and is {is_now} now; use that, or another "
                "--output_dir"
            )
        _LOG.warning("%s: continued with another %s: was %s, is %s", root_dir, name, was, is_now)
