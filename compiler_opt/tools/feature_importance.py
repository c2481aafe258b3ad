"""Measures how much a policy's decisions depend on each feature: permutation importance.

    compiler_opt feature_importance --policy_path=$POLICY --data_path=$CORPUS --output_dir=$OUTPUT

compiles the corpus with the compiler's own decisions, shuffles one feature at a time over many of these decisions, and
counts how many the policy then takes otherwise, and by how much the log probability of its decision changes. Prints a
table, and writes `importance.csv` and `importance.svg`. With `--trace_path`, a default trace takes the place of the
corpus; this needs TensorFlow, and no compiler.
"""

import contextlib
from pathlib import Path
from typing import Any

from absl import flags

from compiler_opt import pretrained
from compiler_opt import problem as problems
from compiler_opt.collect.traces import sample_modules
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.errors import ConfigError
from compiler_opt.evaluation import importance
from compiler_opt.evaluation.importance import DecisionSample, permutation_importance
from compiler_opt.evaluation.plots import importance_bars
from compiler_opt.files import exclusive_directory, write_text
from compiler_opt.llvm.inliner_plugin import with_plugin_features
from compiler_opt.llvm.ir2vec import check_same
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.problem import AnyProblem
from compiler_opt.progress_bar import progress_bar
from compiler_opt.report.table import csv_text
from compiler_opt.rl.default_trace import record_default_trace
from compiler_opt.spaces.learned_policy import LearnedPolicy
from compiler_opt.tensorflow_loading import load_tensorflow
from compiler_opt.tools import entry_point, gin_settings, shared_flags
from compiler_opt.tools.entry_point import echo

_POLICY_PATH = shared_flags.policy("policy_path", "The policy.", required=True)
_CORPUS = shared_flags.CorpusFlags(required=False)
_TRACE_PATH = shared_flags.path("trace_path", "A default trace to take the decisions from, instead of a corpus.")
_OUTPUT_DIR = shared_flags.required_path("output_dir", "Folder for importance.csv and importance.svg.")
_COMPILE_TASK = shared_flags.TaskFlag("the policy's")
_CLANG_PATH = shared_flags.clang_path()
_SAMPLING_RATE = flags.DEFINE_float("sampling_rate", 1.0, "Fraction of the modules to compile, from 0 to 1.", 0, 1)
_NUM_DECISIONS = flags.DEFINE_integer(
    "num_decisions", 10_000, "Decisions of each repeat, of all projects together, each as many.", 2, 1_000_000
)
_REPEATS = flags.DEFINE_integer("repeats", 20, "How often to draw decisions and shuffle each feature.", 2, 1_000)
_SEED = shared_flags.seed("samples, draws and shuffles")
shared_flags.json()
_NUM_WORKERS = shared_flags.num_workers()
_GIN = gin_settings.GinFlags(
    "Gin files; settings of rollout, inlining and problem_config (by default the policy's) apply here."
)


@entry_point.command
def entry() -> None:
    output_dir: Path = _OUTPUT_DIR.value
    if (_CORPUS.data_path.value is None) == (_TRACE_PATH.value is None):
        raise ConfigError("expected one of --data_path, a corpus, and --trace_path, a default trace; see --help")
    settings = _GIN.read(gin_settings.of_compilations(), unused=["network", "vocabulary"])
    folder = pretrained.folder(_POLICY_PATH.value)
    problem = _COMPILE_TASK.load(
        settings["command"].compile_task,
        lambda: problems.recorded(NetworkWeights.load(folder).metadata, str(folder)),
    )
    policy = problem.decision.load_policy(folder)
    sample = DecisionSample(policy, _NUM_DECISIONS.value, seed=_SEED.value)
    with contextlib.ExitStack() as stack:
        stack.enter_context(exclusive_directory(output_dir, "--output_dir"))
        if _TRACE_PATH.value is not None:
            _read_trace(_TRACE_PATH.value, problem, policy, sample)
        else:
            _compile_corpus(settings, problem, policy, sample)
        progress = stack.enter_context(progress_bar(total=_REPEATS.value, description="shuffling", unit="repeat"))
        found = permutation_importance(
            policy,
            sample,
            _NUM_DECISIONS.value,
            repeats=_REPEATS.value,
            seed=_SEED.value,
            on_repeat=progress.update,
        )
        write_text(output_dir / "importance.csv", csv_text(importance.csv_rows(found)))
        write_text(output_dir / "importance.svg", importance_bars(found))
    for line in importance.table(found).lines():
        echo(line)
    projects = len(sample.projects())
    echo(f"{output_dir}: {sample.num_seen:,} decisions of {projects} projects, which count the same")
    rows = importance.csv_rows(found)
    entry_point.print_json({"num_decisions": sample.num_seen, "num_projects": projects, "features": rows})


def _compile_corpus(
    settings: dict[str, Any], problem: AnyProblem, policy: LearnedPolicy, sample: DecisionSample
) -> None:
    """Compiles the corpus under the default, and adds its decisions to the sample."""
    embeddings = settings["inlining"].vocabulary(problem.decision.advisor)
    check_same(policy.weights.metadata.get("toolchain"), embeddings, policy.origin)
    corpus = shared_flags.configured(
        _CORPUS.selected(_CORPUS.load()), settings["problem_config"], policy, _POLICY_PATH.value
    )
    toolchain = shared_flags.compiler(
        shared_flags.clang(_CLANG_PATH, settings["command"].clang_path), corpus, embeddings=embeddings
    )
    toolchain = settings["inlining"].extend(toolchain, problem.decision.advisor)
    toolchain = with_plugin_features(toolchain, policy.plugin_features)
    policy.check(toolchain.require(problem.decision.advisor.problem).feature_names)
    modules = sample_modules(corpus.modules, _SAMPLING_RATE.value, _SEED.value)
    with WorkerPool(toolchain, problem, _NUM_WORKERS.value) as pool:
        trace = record_default_trace(
            corpus,
            problem,
            toolchain,
            pool,
            None,
            modules=modules,
            settings=settings["rollout"],
            on_context=sample.add_context,
        )
    for line in entry_point.first_of("not compiled", [reason for _, reason in sorted(trace.baseline.failures.items())]):
        entry_point.warn(line)


def _read_trace(path: Path, problem: AnyProblem, policy: LearnedPolicy, sample: DecisionSample) -> None:
    """Adds the decisions of a trace to the sample."""
    load_tensorflow()
    from compiler_opt.rl.trace_files import Trace

    trace = Trace(path)
    recorded = problems.recorded(trace.about, str(path))
    if recorded.decision.advisor != problem.decision.advisor:
        raise ConfigError(f"--trace_path={path}: is for {recorded.name}, but the policy for {problem.name}")
    names = tuple(spec.name for spec in trace.features)
    policy.check(names)
    for batch in trace.batches(policy.used_features(names)):
        start = 0
        for project, length in zip(batch.projects, batch.lengths.tolist(), strict=True):
            place = slice(start, start + length)
            sample.add(project, {name: values[place] for name, values in batch.features.items()}, batch.action[place])
            start += length


if __name__ == "__main__":
    entry()
