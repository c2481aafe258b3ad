"""From a corpus to an evaluated policy: default trace, vocabulary, warm start, reinforcement learning, evaluation.

    settings = PipelineSettings().with_seed(1)
    trained = run(root_dir, corpus, problem, toolchain, settings, held_out=other_corpus)

`run` composes the steps below; each is also a library call, and each entry point is the flags of one step. A step
imports TensorFlow only after it has checked everything that a user may have got wrong.
"""

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from compiler_opt import pretrained
from compiler_opt import problem as problems
from compiler_opt.checked_values import Json
from compiler_opt.collect.compilation_files import CompilationFiles
from compiler_opt.collect.traces import TraceDescription, meta_path
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.decisions.decision import Decision
from compiler_opt.errors import ConfigError, PolicyError
from compiler_opt.evaluation.evaluate import EvaluationSettings, evaluate
from compiler_opt.evaluation.results import Evaluation
from compiler_opt.files import exclusive_directory
from compiler_opt.llvm import plugin_features
from compiler_opt.llvm.advisors import INLINING
from compiler_opt.llvm.inliner_plugin import with_plugin_features
from compiler_opt.llvm.inlining_config import InliningConfig
from compiler_opt.llvm.ir2vec import check_same
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.vocabulary import SUFFIX, listed_features, load_vocabulary, save_vocabulary
from compiler_opt.policies.weights import NetworkConfig, NetworkWeights
from compiler_opt.problem import Problem
from compiler_opt.progress_bar import progress_bar
from compiler_opt.rl import algorithms
from compiler_opt.rl.algorithm import AlgorithmConfigs
from compiler_opt.rl.config import POLICY_DIR, BehavioralCloningConfig, TrainingConfig, VocabularyConfig
from compiler_opt.rl.default_trace import record_default_trace
from compiler_opt.rl.training_context import TrainingContext, describe_corpus, describe_settings
from compiler_opt.rl.unfinished_policy import is_finished
from compiler_opt.spaces.learned_policy import LearnedPolicy
from compiler_opt.tensorflow_loading import load_tensorflow

_LOG = logging.getLogger(__name__)

_SHIPPED_VOCABULARIES = MappingProxyType(
    {"inlining": "inlining", "regalloc_eviction": "regalloc", "regalloc_priority": "regalloc_priority"}
)
"""Folder in this one by the kind of decision."""

TRACE, VOCABULARY, WARM_START, TRAINING = "default_trace.tfrecord", "vocabulary", "warm_start", "training"
"""What the steps make in the folder of `run`."""


@dataclasses.dataclass(frozen=True)
class PipelineSettings:
    """Hyperparameters of all steps.

    Attributes:
      cloning: of the warm start.
      training: of reinforcement learning; its seed is also that of the vocabulary's sample and of the evaluation.
      network: shape of the policy network in both.
      algorithms: hyperparameters of `training.algorithm`.
      vocabulary: which quantiles.
    """

    cloning: BehavioralCloningConfig = dataclasses.field(default_factory=BehavioralCloningConfig)
    training: TrainingConfig = dataclasses.field(default_factory=TrainingConfig)
    network: NetworkConfig = dataclasses.field(default_factory=NetworkConfig)
    algorithms: AlgorithmConfigs = dataclasses.field(default_factory=AlgorithmConfigs)
    vocabulary: VocabularyConfig = dataclasses.field(default_factory=VocabularyConfig)

    def with_seed(self, seed: int) -> "PipelineSettings":
        """A copy that uses one seed in all steps."""
        cloning = dataclasses.replace(self.cloning, seed=seed)
        return dataclasses.replace(self, cloning=cloning, training=dataclasses.replace(self.training, seed=seed))

    def starting_from(self, policy_dir: Path | str) -> "PipelineSettings":
        """A copy whose reinforcement learning starts from a policy: its folder, or `pretrained:NAME`."""
        training = dataclasses.replace(self.training, warmstart_policy_dir=str(policy_dir))
        return dataclasses.replace(self, training=training)


@dataclasses.dataclass(frozen=True)
class PipelineStep:
    """A step of `run`.

    Attributes:
      name: `trace`, `vocabulary`, `warm start` or `training`.
      is_done: its output is there. Never true of `training`, which knows where to resume.
      do: runs it.
    """

    name: str
    is_done: bool
    do: Callable[[], object]


@dataclasses.dataclass(frozen=True)
class Trained:
    """The result of `run`.

    Attributes:
      policy_dir: folder of the policy.
      evaluation: the policy on the held-out corpus; None without one.
    """

    policy_dir: Path
    evaluation: Evaluation | None


def run(
    root_dir: Path | str,
    corpus: Corpus,
    problem: Problem,
    toolchain: Toolchain,
    settings: PipelineSettings,
    *,
    held_out: Corpus | None = None,
    validation: Corpus | None = None,
    num_workers: int | None = None,
    echo: Callable[[str], object] = print,
    do_step: Callable[[PipelineStep], object] = lambda step: step.is_done or step.do(),
) -> Trained:
    """Trains a policy on one corpus and evaluates it on another; after an interruption, the same call resumes.

    With `settings.training.warmstart_policy_dir`, training is the only step before the evaluation. Algorithms that do
    not start from a clone of the default get no warm start.

    Args:
      root_dir: folder for everything that the steps make.
      corpus: the modules to train on.
      problem: what is decided.
      toolchain: the compiler.
      settings: hyperparameters of all steps.
      held_out: the modules to evaluate on, of projects that `corpus` does not have.
      validation: the modules by which the best policy of the training is found, of other projects than both.
      num_workers: compilers at a time; one per CPU by default.
      echo: prints a line of progress.
      do_step: runs a step unless it is done; for callers that keep their own record of that.

    Raises:
      CompilerOptError: see the steps.
    """
    trace, vocabulary, warm_start, training = (
        Path(root_dir) / name for name in (TRACE, VOCABULARY, WARM_START, TRAINING)
    )
    policy_dir, seed = training / POLICY_DIR, settings.training.seed
    clones_default = algorithms.load(settings.training.algorithm).clones_default
    learning = settings

    def record_trace() -> None:
        with WorkerPool(toolchain, problem, num_workers) as pool:
            record_default_trace(corpus, problem, toolchain, pool, trace)

    def quantise() -> None:
        make_vocabulary(trace, vocabulary, settings.vocabulary, problem=problem, seed=seed)

    def clone() -> None:
        clone_default(warm_start, trace, vocabulary, settings, problem=problem, echo=echo)

    def learn() -> None:
        train(
            training,
            corpus,
            problem,
            toolchain,
            learning,
            vocabulary_dir=vocabulary,
            num_workers=num_workers,
            validation=validation,
        )

    if not settings.training.warmstart_policy_dir:
        do_step(PipelineStep("trace", meta_path(trace).exists(), record_trace))
        do_step(PipelineStep("vocabulary", any(vocabulary.glob(f"*{SUFFIX}")), quantise))
        if clones_default:
            do_step(PipelineStep("warm start", is_finished(warm_start), clone))
            learning = settings.starting_from(warm_start / POLICY_DIR)

    do_step(PipelineStep("training", False, learn))
    if held_out is None:
        return Trained(policy_dir, None)
    how = EvaluationSettings(num_workers=num_workers, seed=seed)
    policy = problem.decision.load_policy(policy_dir)
    return Trained(policy_dir, evaluate(held_out, policy, problem=problem, toolchain=toolchain, settings=how))


def describe_trace(*paths: Path) -> TraceDescription:
    """The description of a trace, in one file or several; made from the records of those that have none.

    Raises:
      ProtocolError: see `TraceDescription`.
    """

    def describe(path: Path) -> dict[str, Json]:
        load_tensorflow()
        from compiler_opt.rl import trace_files

        _LOG.warning("%s: has no %s: its contexts are numbered, and taken for one project", path, meta_path(path).name)
        return trace_files.describe(path)

    return TraceDescription(*paths, describe=describe)


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


def clone_default(
    root_dir: Path | str,
    trace_path: Path | str | Sequence[Path | str] | TraceDescription,
    vocabulary_dir: Path | str,
    settings: PipelineSettings,
    *,
    problem: Problem | None = None,
    inlining: InliningConfig | None = None,
    teacher: LearnedPolicy | None = None,
    echo: Callable[[str], object] = print,
    say: Callable[[str], object] | None = None,
) -> Path:
    """Trains a policy to imitate the decisions of a trace: the warm start of reinforcement learning.

    Args:
      root_dir: folder for history, summaries and the policy.
      trace_path: the default trace, or several of the same problem and features; or what `describe_trace` says of them.
      vocabulary_dir: the vocabulary's folder.
      settings: `cloning` and `network` are used.
      problem: what is decided; by default the installed problem that the trace names.
      inlining: names the IR2Vec vocabulary, if the policy is to observe embeddings; features of our plugin are
        observed if the vocabulary has them.
      teacher: a policy whose decisions are imitated in place of the recorded ones; it may observe more features, which
        the trace must have.
      echo: prints a line.
      say: prints a line of progress; by default `echo`.

    Returns:
      the policy's folder.

    Raises:
      ConfigError: the IR2Vec vocabulary is none, or does not suit the problem.
      PolicyError, ProtocolError: nothing can be learned from the trace.
      OutputError: the policy cannot be written.
    """
    root_dir, vocabulary_dir = Path(root_dir), Path(vocabulary_dir)
    if isinstance(trace_path, TraceDescription):
        trace = trace_path
    else:
        trace = describe_trace(*map(Path, (trace_path,) if isinstance(trace_path, Path | str) else trace_path))
    problem = problem or problems.recorded(trace.about, str(trace.path))
    _check_recurrence(settings.network, problem)
    embeddings = inlining.vocabulary(problem.decision.advisor) if inlining is not None else None
    if embeddings is not None:
        check_same(trace.about.get("toolchain"), embeddings, str(trace.path))
    available = [spec.name for spec in trace.features]
    if inlining is not None:
        plugin_features.check_observed(inlining.plugin_features, available, str(trace.path))
        plugin_features.check_observed(inlining.plugin_features, listed_features(vocabulary_dir), str(vocabulary_dir))
    quantiles = load_vocabulary(vocabulary_dir, _observed(problem.decision, available, vocabulary_dir))
    if teacher is not None and (missing := [name for name in teacher.needed_features if name not in available]):
        raise PolicyError(
            f"{teacher.origin}: observes features that {trace.path} does not have: {', '.join(missing)}; make the "
            "trace with the settings of this policy, such as --gin_files=gin_configs/inlining/plugin_features.gin"
        )

    with exclusive_directory(root_dir, "--output_dir"):
        load_tensorflow()
        from compiler_opt.rl.behavioral_cloning import clone

        network, cloning = settings.network, settings.cloning
        return clone(root_dir, trace.paths, problem, quantiles, network, cloning, echo, say or echo, teacher)


def train(
    root_dir: Path | str,
    corpus: Corpus,
    problem: Problem,
    toolchain: Toolchain,
    settings: PipelineSettings,
    *,
    vocabulary_dir: Path | str | None = None,
    num_workers: int | None = None,
    niceness: int = 0,
    compilation_files: CompilationFiles | None = None,
    validation: Corpus | None = None,
    open_pool: Callable[..., contextlib.AbstractContextManager[WorkerPool]] = WorkerPool,
) -> NetworkWeights:
    """Trains a policy on a corpus by reinforcement learning; killed at any moment, the same call resumes.

    Args:
      root_dir: folder for checkpoints, history, summaries and the policy.
      corpus: the modules to train on.
      problem: what is decided.
      toolchain: the compiler.
      settings: all but `cloning` are used; `training.warmstart_policy_dir` is the policy to start from.
      vocabulary_dir: the vocabulary's folder; not used with a policy to start from, which has its own vocabulary.
      num_workers: compilers at a time; one per CPU by default.
      niceness: of the compilers, so that the learner and other programs of the machine go first; 0 to 19.
      compilation_files: where to keep the files of compilations; None removes them.
      validation: the modules by which the best policy is found, of other projects; by default the last policy is saved.
      open_pool: opens the pool, with the arguments of `WorkerPool`; such as `ray_pool` with an address.

    Raises:
      ConfigError, PolicyError: the settings, vocabulary or policy do not suit each other or the compiler.
      CorpusError: most modules fail.
      OutputError: something cannot be written.
    """
    root_dir = Path(root_dir)
    algorithm = algorithms.load(settings.training.algorithm)
    _check_recurrence(settings.network, problem)
    if settings.network.lstm_units and not algorithm.takes_recurrence:
        raise ConfigError(
            f"network.lstm_units: expected 0 with train_eval.algorithm = {settings.training.algorithm!r}, which learns "
            f"from single decisions, found {settings.network.lstm_units}; use ppo, reinforce, dqn or es"
        )
    quantiles = _training_vocabulary(
        None if vocabulary_dir is None else Path(vocabulary_dir),
        settings.training.warmstart_policy_dir,
        problem.decision,
        toolchain,
    )
    if problem.decision.advisor == INLINING:
        toolchain = with_plugin_features(toolchain, quantiles)

    config, network = settings.training, settings.network
    configs: dict[str, Any] = {"train_eval": config, "network": network}
    configs |= {name: settings.algorithms.get(config_class) for name, config_class in algorithm.configs.items()}
    described = describe_settings(problem, corpus, toolchain, configs)
    if validation is not None:
        described["validation corpus"] = describe_corpus(validation)
        check_apart(corpus, validation)

    with exclusive_directory(root_dir, "--output_dir"):
        load_tensorflow()
        from compiler_opt.rl import training_loop

        logging.getLogger("compiler_opt").setLevel(logging.INFO)
        with open_pool(toolchain, problem, num_workers, niceness=niceness, compilation_files=compilation_files) as pool:
            context = TrainingContext(
                root_dir,
                corpus,
                toolchain,
                problem,
                pool,
                quantiles,
                config,
                network,
                described,
                validation,
            )
            return training_loop.train(context, algorithm.build(context, settings.algorithms))


def _check_recurrence(network: NetworkConfig, problem: Problem) -> None:
    """Raises ConfigError if the problem's policies cannot be recurrent."""
    if network.lstm_units and not problem.decision.action_space.takes_recurrence:
        raise ConfigError(
            f"network.lstm_units: expected 0 for {problem.name}, found {network.lstm_units}; only policies with binary "
            "actions, such as those for inlining, can have a recurrent layer"
        )


def check_apart(corpus: Corpus, validation: Corpus) -> None:
    """Raises ConfigError if a corpus for validation has modules to train on; warns if they share projects."""
    shared = set(corpus.by_name) & set(validation.by_name)
    if shared:
        raise ConfigError(
            f"--validation_path={validation.root}: expected modules that are not trained on, found {min(shared)} and "
            f"{len(shared) - 1} others that are; give a corpus of other projects"
        )
    projects = sorted(set(corpus.projects()) & set(validation.projects()))
    if projects:
        _LOG.warning(
            "%s: has projects that are also trained on (%s): its results say less about others",
            validation.root,
            ", ".join(projects),
        )


def _training_vocabulary(
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
        quantiles = load_vocabulary(vocabulary_dir, _observed(decision, compiler_features, vocabulary_dir))
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


def _observed(decision: Decision, available: Iterable[str], vocabulary_dir: Path) -> list[str]:
    """The features to observe: all supported ones, but of our plugin's only those that the vocabulary has."""
    listed = listed_features(vocabulary_dir)
    supported = decision.supported_features(available)
    return [name for name in supported if name in listed or not plugin_features.among([name])]
