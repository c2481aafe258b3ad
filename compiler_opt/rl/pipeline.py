"""From a corpus to a measured policy: default trace, vocabulary, warm start, reinforcement learning, evaluation.

    settings = PipelineSettings().with_seed(1)
    with WorkerPool(toolchain, problem) as pool:
        record_default_trace(corpus, problem, toolchain, pool, trace_path)
    make_vocabulary(trace_path, vocabulary_dir, seed=1)
    policy_dir = clone_default(warm_start_dir, trace_path, vocabulary_dir, settings)
    train(training_dir, corpus, problem, toolchain, settings.starting_from(policy_dir))
    evaluate(held_out, problem.load_policy(training_dir / POLICY_DIR), ...)    # of evaluation.evaluate

Each step is one call, and each entry point little more than the flags of one step. A step imports TensorFlow only after
everything that a user may have got wrong is known.
"""

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from compiler_opt import rl
from compiler_opt.collect import traces
from compiler_opt.collect.baseline import Baseline, BaselineBuilder
from compiler_opt.collect.rollout import Rollout, RolloutSettings
from compiler_opt.collect.traces import TraceContext, TraceDescription
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.module import Module
from compiler_opt.errors import ConfigError, PolicyError
from compiler_opt.files import exclusive_directory
from compiler_opt.llvm.ir2vec import Ir2VecVocabulary, check_same
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.vocabulary import load_vocabulary, save_vocabulary
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.problems import problem as problems
from compiler_opt.problems.problem import Problem
from compiler_opt.rl import algorithms, run_settings
from compiler_opt.rl.algorithm import AlgorithmConfigs
from compiler_opt.rl.behavioral_cloning import BehavioralCloningConfig
from compiler_opt.rl.config import TrainingConfig
from compiler_opt.rl.training_context import TrainingContext
from compiler_opt.spaces.network_config import NetworkConfig

if TYPE_CHECKING:
    from compiler_opt.rl.trace_files import TraceWriter


@dataclasses.dataclass(frozen=True)
class PipelineSettings:
    """How to learn.

    Attributes:
      cloning: of the warm start.
      training: of reinforcement learning.
      network: shape of the policy in both.
      algorithms: how the algorithm of `training` learns.
    """

    cloning: BehavioralCloningConfig = dataclasses.field(default_factory=BehavioralCloningConfig)
    training: TrainingConfig = dataclasses.field(default_factory=TrainingConfig)
    network: NetworkConfig = dataclasses.field(default_factory=NetworkConfig)
    algorithms: AlgorithmConfigs = dataclasses.field(default_factory=AlgorithmConfigs)

    def with_seed(self, seed: int) -> "PipelineSettings":
        """The same, with one seed for everything that is drawn."""
        cloning = dataclasses.replace(self.cloning, seed=seed)
        return dataclasses.replace(self, cloning=cloning, training=dataclasses.replace(self.training, seed=seed))

    def starting_from(self, policy_dir: Path) -> "PipelineSettings":
        """The same, with a policy for reinforcement learning to start from."""
        training = dataclasses.replace(self.training, warmstart_policy_dir=str(policy_dir))
        return dataclasses.replace(self, training=training)


@dataclasses.dataclass(frozen=True)
class DefaultTrace:
    """What recording the default's decisions has shown.

    Attributes:
      baseline: scores and failures.
      num_modules: modules with decisions.
      num_decisions: in all of them.
    """

    baseline: Baseline
    num_modules: int
    num_decisions: int


def record_default_trace(
    corpus: Corpus,
    problem: Problem,
    toolchain: Toolchain,
    pool: WorkerPool,
    path: Path | None,
    *,
    modules: Sequence[Module] | None = None,
    settings: RolloutSettings = RolloutSettings(),
    about: Mapping[str, Any] = {},
    on_context: Callable[[TraceContext], object] = lambda context: None,
) -> DefaultTrace:
    """Compiles each module as the compiler's own heuristic would have it, and records its decisions.

    Args:
      corpus: where the modules are from.
      problem: what is decided.
      toolchain: the compiler.
      pool: who compiles.
      path: the trace to write; None for none.
      modules: which of the corpus; None for all.
      settings: of each compilation.
      about: what else the trace's description is to say; JSON.
      on_context: called with the decisions of each module that has any.

    Raises:
      CorpusError: most modules fail.
      OutputError, ProtocolError: the trace cannot be written; nothing of it is left.
    """
    modules = corpus.modules if modules is None else modules
    builder = BaselineBuilder(problem)
    num_modules, num_decisions = 0, 0
    with contextlib.ExitStack() as stack:
        writer = stack.enter_context(_trace_writer(path)) if path is not None else None
        rollouts = traces.default_trace(modules, problem, pool, settings)
        for rollout in with_progress(rollouts, "default", len(modules)):
            builder.add(rollout)
            for context in traces.contexts(rollout, problem) if rollout.failure is None else ():
                num_modules += 1
                num_decisions += len(context.action)
                on_context(context)
                if writer is not None:
                    writer.add(context)
        baseline = builder.build()
        if writer is not None:
            description = {
                "problem": problem.name,
                "toolchain": toolchain.identity(),
                "corpus": {
                    "name": corpus.root.resolve().name,
                    "num_modules": len(corpus.modules),
                    "projects": sorted({module.project for module in modules}),
                    "targets": corpus.targets(toolchain.target),
                },
                **corpus.problem_config.to_json(),
                "num_modules": len(modules),
                "failed_modules": sorted(baseline.failures),
                **about,
            }
            writer.finish({key: baseline.scores[key[0]] for key in writer.keys}, description)
    return DefaultTrace(baseline, num_modules, num_decisions)


def with_progress(rollouts: Iterator[Rollout], description: str, total: int) -> Iterator[Rollout]:
    """The same rollouts, with a progress bar that counts failures."""
    failed = 0
    with tqdm(rollouts, description, total, unit="module", disable=None) as progress:
        for rollout in progress:
            if rollout.failure is not None:
                failed += 1
                progress.set_postfix(failed=failed)
            yield rollout


def make_vocabulary(
    trace_path: Path,
    output_dir: Path,
    num_quantiles: int = 64,
    *,
    problem: Problem | None = None,
    sampling_fraction: float = 1.0,
    seed: int = 0,
    num_threads: int | None = None,
) -> Mapping[str, np.ndarray]:
    """Makes and saves a vocabulary, the quantiles of each feature of a trace.

    Args:
      trace_path: the default trace.
      output_dir: the folder of the vocabulary.
      num_quantiles: of each feature, at least 2.
      problem: what is decided; None for the installed problem that the trace names.
      sampling_fraction: the share of the decisions that is looked at.
      seed: of that sample.
      num_threads: features are counted in parallel; one per CPU by default.

    Raises:
      ProtocolError: the trace cannot be read.
      OutputError: the vocabulary cannot be written.
    """
    # Refuses what is no trace, before TensorFlow has been waited for.
    problem = problem or problem_of(trace_path)
    with contextlib.ExitStack() as stack:
        stack.enter_context(exclusive_directory(output_dir, "--output_dir"))
        rl.load_tensorflow()
        from compiler_opt.rl.quantiles import trace_quantiles
        from compiler_opt.rl.trace_files import Trace

        trace = Trace(trace_path)
        total = trace.num_decisions
        progress = stack.enter_context(
            tqdm(total=total, desc="counting", unit="decision", unit_scale=True, disable=None)
        )
        quantiles = trace_quantiles(
            trace,
            problem.action_space,
            num_quantiles,
            sampling_fraction=sampling_fraction,
            seed=seed,
            num_threads=num_threads,
            on_decisions=progress.update,
        )
        save_vocabulary(output_dir, quantiles)
    return quantiles


def clone_default(
    root_dir: Path,
    trace_path: Path,
    vocabulary_dir: Path,
    settings: PipelineSettings,
    *,
    problem: Problem | None = None,
    embeddings: Ir2VecVocabulary | None = None,
    echo: Callable[[str], Any] = print,
) -> Path:
    """Trains a policy to decide as a trace does: the warm start of reinforcement learning.

    Args:
      root_dir: comes to hold history, summaries and the policy.
      trace_path: the default trace.
      vocabulary_dir: the vocabulary.
      settings: `cloning` and `network` of it.
      problem: what is decided; None for the installed problem that the trace names.
      embeddings: what embeddings in the trace were made by.
      echo: prints a line of progress.

    Returns:
      the folder of the policy.

    Raises:
      PolicyError, ProtocolError: the trace cannot be learned from.
      OutputError: the policy cannot be written.
    """
    trace = TraceDescription(trace_path)
    problem = problem or problem_of(trace_path)
    if embeddings is not None:
        check_same(trace.about.get("toolchain"), embeddings, str(trace_path))
    quantiles = load_vocabulary(vocabulary_dir, problem.supported_features(spec.name for spec in trace.features))

    with exclusive_directory(root_dir, "--root_dir"):
        rl.load_tensorflow()
        from compiler_opt.rl.behavioral_cloning.warm_start import clone

        return clone(root_dir, trace_path, problem, quantiles, settings.network, settings.cloning, echo)


def train(
    root_dir: Path,
    corpus: Corpus,
    problem: Problem,
    toolchain: Toolchain,
    settings: PipelineSettings,
    *,
    vocabulary_dir: Path | None = None,
    num_workers: int | None = None,
) -> NetworkWeights:
    """Trains a policy by reinforcement learning; killed at any moment, the same call goes on where it was.

    Args:
      root_dir: the run's folder; comes to hold the policy.
      corpus: the modules to train on.
      problem: what is decided.
      toolchain: the compiler.
      settings: all but `cloning`; `training.warmstart_policy_dir` is the policy to start from.
      vocabulary_dir: the vocabulary; only looked at when there is no policy to start from, which has one.
      num_workers: compilers at a time; one per CPU by default.

    Raises:
      CorpusError, PolicyError, OutputError, ConfigError: something does not fit, or fails on the way.
    """
    algorithm = algorithms.load(settings.training.algorithm)
    quantiles = resolve_vocabulary(vocabulary_dir, settings.training.warmstart_policy_dir, problem, toolchain)

    config, network = settings.training, settings.network
    configs: dict[str, Any] = {"train_eval": config, "network": network}
    configs |= {name: settings.algorithms.get(config_class) for name, config_class in algorithm.configs.items()}
    described = run_settings.describe(problem.name, corpus, toolchain, configs)

    with exclusive_directory(root_dir, "--root_dir"):
        rl.load_tensorflow()
        from compiler_opt.rl import training_loop

        logging.getLogger("compiler_opt").setLevel(logging.INFO)
        with WorkerPool(toolchain, problem, num_workers) as pool:
            context = TrainingContext(root_dir, corpus, toolchain, problem, pool, quantiles, config, network, described)
            return training_loop.train(context, algorithm.build(context, settings.algorithms))


def resolve_vocabulary(
    vocabulary_dir: Path | None, warmstart_policy_dir: str, problem: Problem, toolchain: Toolchain
) -> Mapping[str, np.ndarray]:
    """The vocabulary of a training by feature: that of the policy to start from, else the given one.

    Raises:
      ConfigError: neither is given.
      PolicyError: one cannot be read, the vocabulary lacks a feature, or the policy is for other features or
        embeddings.
    """
    sent = [spec.name for spec in toolchain.require(problem.advisor.problem).features]
    supported, available = problem.supported_features(sent), problem.available_features(sent)
    if warmstart_policy_dir:
        # A policy's weights mean nothing under other quantiles than its own.
        weights = NetworkWeights.load(Path(warmstart_policy_dir))
        check_same(weights.metadata.get("toolchain"), toolchain.embeddings, warmstart_policy_dir)
        quantiles = dict(zip(weights.features, weights.quantiles, strict=True))
    elif vocabulary_dir is not None:
        quantiles = load_vocabulary(vocabulary_dir, supported)
    else:
        raise ConfigError(
            "expected --vocab_path or --warmstart_policy_dir, found neither; make one with generate_vocab.py"
        )
    odd = [name for name in quantiles if name not in supported or name not in available]
    if odd:
        raise PolicyError(
            f"{warmstart_policy_dir or vocabulary_dir}: is for other features than this compiler sends: "
            f"{', '.join(odd)}; use what was made for the same compiler and --compile_task"
        )
    return quantiles


def problem_of(trace_path: Path) -> Problem:
    """Loads the problem that a trace says it is for.

    Raises:
      ProtocolError: it is no trace.
      PolicyError: the problem is not installed.
    """
    return problems.recorded(TraceDescription(trace_path).about, str(trace_path))


def _trace_writer(path: Path) -> "TraceWriter":
    # Not imported at the top: it takes seconds, workers import this file too, and mistakes should show at once.
    rl.load_tensorflow()
    from compiler_opt.rl.trace_files import TraceWriter

    return TraceWriter(path)
