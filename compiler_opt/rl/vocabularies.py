"""The vocabulary of a policy to train: made from a trace, shipped, or that of the policy which training starts from."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np

from compiler_opt import pretrained
from compiler_opt import problem as problems
from compiler_opt.decisions.decision import Decision
from compiler_opt.errors import ConfigError, PolicyError
from compiler_opt.files import exclusive_directory
from compiler_opt.llvm import plugin_features
from compiler_opt.llvm.ir2vec import check_same
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.vocabulary import listed_features, load_vocabulary, save_vocabulary
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.problem import Problem
from compiler_opt.progress_bar import progress_bar
from compiler_opt.rl.config import VocabularyConfig
from compiler_opt.rl.default_trace import describe_trace
from compiler_opt.tensorflow_loading import load_tensorflow

_SHIPPED_VOCABULARIES = MappingProxyType(
    {"inlining": "inlining", "regalloc_eviction": "regalloc", "regalloc_priority": "regalloc_priority"}
)
"""Folder in this one by the kind of decision."""


def make_vocabulary(
    trace_path: Path | str,
    output_dir: Path | str,
    config: VocabularyConfig = VocabularyConfig(),
    *,
    problem: Problem | None = None,
    sampling_fraction: float = 1.0,
    seed: int = 0,
    num_threads: int | None = None,
) -> Mapping[str, np.ndarray]:
    """Computes the quantiles of each feature of a trace and saves them.

    Args:
      trace_path: the default trace.
      output_dir: the vocabulary's folder.
      config: which quantiles.
      problem: what is decided; by default the installed problem that the trace names.
      sampling_fraction: share of the decisions to use, over 0 and at most 1.
      seed: of that sample.
      num_threads: features are counted in parallel; one thread per CPU by default.

    Returns:
      by feature `[config.num_quantiles]` float64, ascending.

    Raises:
      ProtocolError: the trace cannot be read.
      OutputError: the vocabulary cannot be written.
    """
    trace_path, output_dir = Path(trace_path), Path(output_dir)
    problem = problem or problems.recorded(describe_trace(trace_path).about, str(trace_path))
    with exclusive_directory(output_dir, "--output_dir"):
        load_tensorflow()
        from compiler_opt.rl.quantiles import trace_quantiles
        from compiler_opt.rl.trace_files import Trace

        trace = Trace(trace_path)
        total = trace.num_decisions
        with progress_bar(total=total, description="counting", unit="decision", unit_scale=True) as progress:
            quantiles = trace_quantiles(
                trace,
                problem.decision.action_space,
                config,
                sampling_fraction=sampling_fraction,
                seed=seed,
                num_threads=num_threads,
                on_decisions=progress.update,
            )
        save_vocabulary(output_dir, quantiles)
    return quantiles


def shipped_vocabulary(decision: Decision) -> Path | None:
    """The vocabulary for a kind of decision that ships with this package; None if there is none.

    Its folder is where google/ml-compiler-opt has its vocabulary, so that its users can replace it in their checkout.
    """
    name = _SHIPPED_VOCABULARIES.get(decision.advisor.problem)
    folder = Path(__file__).parent / str(name) / "vocab"
    return folder if name is not None and folder.is_dir() else None


def training_vocabulary(
    vocabulary_dir: Path | None, warmstart_policy_dir: str, decision: Decision, toolchain: Toolchain
) -> Mapping[str, np.ndarray]:
    """Quantiles by feature: those of the policy to start from, else those of the given vocabulary.

    Raises:
      ConfigError: neither is given.
      PolicyError: one cannot be read, the vocabulary lacks a feature, or the policy needs other features or embeddings
        than the compiler provides.
    """
    support = toolchain.require(decision.advisor.problem)
    compiler_features = support.feature_names
    supported = decision.supported_features(compiler_features)
    available = decision.available_features(compiler_features)
    if warmstart_policy_dir:
        # A policy's weights are meaningful only under its own quantiles.
        weights = NetworkWeights.load(pretrained.folder(warmstart_policy_dir))
        check_same(weights.metadata.get("toolchain"), toolchain.embeddings, warmstart_policy_dir)
        quantiles = dict(zip(weights.features, weights.quantiles, strict=True))
    elif vocabulary_dir is not None:
        quantiles = load_vocabulary(vocabulary_dir, observed_features(decision, compiler_features, vocabulary_dir))
    else:
        raise ConfigError(
            "expected --vocab_path or --warmstart_policy_dir, found neither; make one with generate_vocab.py"
        )
    odd = [name for name in quantiles if name not in supported or name not in available]
    if odd:
        raise PolicyError(
            f"{warmstart_policy_dir or vocabulary_dir}: has features that this compiler does not provide: "
            f"{', '.join(odd)}; use one that was made for the same compiler and --compile_task"
        )
    wanted = [spec.name for spec in support.features]
    plugin_features.check_observed(wanted, quantiles, warmstart_policy_dir or str(vocabulary_dir))
    return quantiles


def observed_features(decision: Decision, available: Iterable[str], vocabulary_dir: Path) -> list[str]:
    """The features to observe: all supported ones, but of our plugin's only those that the vocabulary has."""
    listed = listed_features(vocabulary_dir)
    supported = decision.supported_features(available)
    return [name for name in supported if name in listed or not plugin_features.among([name])]
