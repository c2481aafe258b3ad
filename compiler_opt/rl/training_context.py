"""Everything that the training loop and its algorithm need to know of a run."""

import dataclasses
import functools
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler_opt.collect.baseline import Baseline, cached_baseline, cached_decision_counts
from compiler_opt.collect.rollout import RolloutSettings
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.module import Module
from compiler_opt.corpus.sampling import ModuleSampler, make_sampler
from compiler_opt.errors import CorpusError, PolicyError
from compiler_opt.llvm.ir2vec import Ir2VecVocabulary
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.weights import NetworkConfig, NetworkWeights
from compiler_opt.problems.problem import Problem
from compiler_opt.rl.config import TrainingConfig
from compiler_opt.tensor_spec import TensorSpec

if TYPE_CHECKING:
    from compiler_opt.spaces.heads.head import Head


@dataclasses.dataclass(frozen=True)
class TrainingContext:
    """A training run.

    `baseline` and `sampler`, which take compilations, are computed on first use.

    Attributes:
      root_dir: the run's folder.
      corpus: the modules to train on.
      toolchain: the compiler.
      problem: what is decided.
      pool: compiles modules.
      quantiles: the vocabulary, by feature of the policy.
      config: settings of the loop.
      network: the networks' shape.
      settings: all settings as text, to be compared when the run is resumed, see `run_settings.describe`.
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

    @property
    def compiler_features(self) -> tuple[TensorSpec, ...]:
        return self.toolchain.require(self.problem.advisor.problem).features

    @property
    def action_name(self) -> str:
        """The advice's name, such as `inlining_decision`."""
        advice = self.toolchain.require(self.problem.advisor.problem).advice
        return advice.name if advice is not None else self.problem.name

    @functools.cached_property
    def head(self) -> "Head":
        """The head of the problem's action space under the vocabulary. Needs TensorFlow."""
        return self.problem.head(self.quantiles, self.compiler_features)

    @functools.cached_property
    def baseline(self) -> Baseline:
        """Scores of the default policy.

        Raises:
          CorpusError: most modules fail.
        """
        path = self.root_dir / "baseline.json"
        return cached_baseline(path, self._measurements_key(), self.corpus.modules, self.pool, self.problem)

    @functools.cached_property
    def sampler(self) -> ModuleSampler:
        """Draws modules that do not compile to nothing.

        Raises:
          CorpusError: there are none.
        """
        modules = [module for module in self.corpus.modules if self.baseline.scores.get(module.name, 0) > 0]
        if not modules:
            raise CorpusError(f"{self.corpus.root}: no module compiles to any text")

        def counts() -> Mapping[str, int]:
            path = self.root_dir / "decisions.json"
            key = self._measurements_key()
            return cached_decision_counts(path, key, modules, self.pool, self.problem, self.rollout_settings())

        return make_sampler(self.config.sampling, modules, self.config.seed, counts)

    def rollout_settings(self, *, record_call_sites: bool = False) -> RolloutSettings:
        return RolloutSettings(
            timeout_s=self.config.compile_timeout_s,
            record_call_sites=record_call_sites,
            backend=self.config.backend,
        )

    def vocabulary_fingerprint(self) -> str:
        """See `fingerprint`."""
        return fingerprint(self.head.features, self.quantiles, self.toolchain.embeddings)

    def warm_start_weights(self) -> NetworkWeights | None:
        """Weights of the policy to start from, if any.

        Raises:
          PolicyError: it has other features than the vocabulary.
        """
        directory = self.config.warmstart_policy_dir
        if not directory:
            return None
        weights = NetworkWeights.load(Path(directory))
        if weights.features != self.head.features:
            odd = sorted(set(weights.features) ^ set(self.head.features))
            raise PolicyError(
                f"{directory}: its features are not the vocabulary's; they differ in: {', '.join(odd) or 'order'}"
            )
        return weights

    def _measurements_key(self) -> dict[str, Any]:
        """Everything that measurements of the corpus depend on."""
        corpus = str(self.corpus.root.resolve())
        return {"toolchain": self.toolchain.identity(), "corpus": corpus, **self.corpus.problem_config.to_json()}


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
    }


def fingerprint(
    features: Sequence[str], quantiles: Mapping[str, np.ndarray], embeddings: Ir2VecVocabulary | None
) -> str:
    """Identifies the quantiles of features, and the IR2Vec vocabulary of embeddings."""
    digest = hashlib.sha256(embeddings.sha256.encode() if embeddings is not None else b"")
    for name in features:
        digest.update(f"{name} {np.asarray(quantiles[name], np.float64).tolist()}\n".encode())
    return digest.hexdigest()
