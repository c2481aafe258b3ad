"""From a corpus to an evaluated policy: default trace, vocabulary, warm start, reinforcement learning, evaluation.

    settings = PipelineSettings().with_seed(1)
    trained = run(root_dir, corpus, problem, toolchain, settings, held_out=other_corpus)

`run` composes the steps; each is also a library call, and each entry point is the flags of one step. A step
imports TensorFlow only after it has checked everything that a user may have got wrong.
"""

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from compiler_opt import problem as problems
from compiler_opt.collect.compilation_files import CompilationFiles
from compiler_opt.collect.traces import TraceDescription, meta_path
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.description import Corpus
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
from compiler_opt.policies.vocabulary import SUFFIX, listed_features, load_vocabulary
from compiler_opt.policies.weights import NetworkConfig, NetworkWeights
from compiler_opt.problem import Problem
from compiler_opt.rl import algorithms
from compiler_opt.rl.algorithm import AlgorithmConfigs
from compiler_opt.rl.config import POLICY_DIR, BehavioralCloningConfig, TrainingConfig, VocabularyConfig
from compiler_opt.rl.default_trace import describe_trace, record_default_trace
from compiler_opt.rl.training_run import TrainingRun, describe_corpus, describe_settings
from compiler_opt.rl.unfinished_policy import is_finished
from compiler_opt.rl.vocabularies import make_vocabulary, observed_features, training_vocabulary
from compiler_opt.spaces.learned_policy import LearnedPolicy
from compiler_opt.tensorflow_loading import load_tensorflow

_LOG = logging.getLogger(__name__)

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
    quantiles = load_vocabulary(vocabulary_dir, observed_features(problem.decision, available, vocabulary_dir))
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
    quantiles = training_vocabulary(
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
            training_run = TrainingRun(
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
            return training_loop.train(training_run, algorithm.build(training_run, settings.algorithms))


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
