"""Records the decisions of the compiler's own heuristic over a corpus, as examples for behavioural cloning.

    PYTHONPATH=. python3 compiler_opt/tools/generate_default_trace.py --data_path=$CORPUS --output_path=$DEFAULT_TRACE

Writes a TFRecord file of tf.train.SequenceExample and `$DEFAULT_TRACE.meta.json`. `$DEFAULT_TRACE.failures.log` lists
modules that cannot be compiled; if most cannot, nothing is written and the exit status is 2.

With `--policy_path` and `--output_performance_path`, each module is also compiled under that policy, and a CSV file
lists its score beside the default's. Scores count a COMDAT group once for all compiled modules of a project. With
`--policy_path` and `--record_policy`, the trace has what the policy met and decided: for `train_bc` with this policy as
the teacher.
"""

from collections.abc import Mapping
from pathlib import Path

from absl import flags

from compiler_opt import pretrained
from compiler_opt.collect import traces
from compiler_opt.collect.baseline import Baseline, measure_baseline
from compiler_opt.collect.rollout import RolloutSettings
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.errors import ConfigError
from compiler_opt.files import check_writable, printable, write_text
from compiler_opt.llvm.ir2vec import check_same
from compiler_opt.problem import Problem, reward
from compiler_opt.report.table import csv_text
from compiler_opt.rl.default_trace import record_default_trace, with_progress
from compiler_opt.spaces.learned_policy import LearnedPolicy
from compiler_opt.tools import entry_point, gin_settings, shared_flags

_CORPUS = shared_flags.CorpusFlags()
_OUTPUT_PATH = shared_flags.path("output_path", "The trace to write.")
_COMPILE_TASK = shared_flags.TaskFlag()
_CLANG_PATH = shared_flags.clang_path()
_LLVM_SIZE_PATH = shared_flags.llvm_size_path()
_SAMPLING_RATE = flags.DEFINE_float("sampling_rate", 1.0, "Fraction of the modules to compile, from 0 to 1.", 0, 1)
_SEED = shared_flags.seed("the sample")
_NUM_WORKERS = shared_flags.num_workers()
_POLICY_PATH = shared_flags.policy("policy_path", "A policy to compare with the default, or to record.")
_RECORD_POLICY = flags.DEFINE_bool("record_policy", False, "Record the decisions of --policy_path.")
_OUTPUT_PERFORMANCE_PATH = shared_flags.path(
    "output_performance_path", "The CSV file to write: module, identifier, default_score, policy_score."
)
_EXPLICIT_TEMPS = shared_flags.ExplicitTempsFlags()
_GIN = gin_settings.GinFlags("Gin files; settings of rollout, problem_config and inlining apply here.")


@entry_point.command
def entry() -> None:
    output_path, policy_path, performance_path = _OUTPUT_PATH.value, _POLICY_PATH.value, _OUTPUT_PERFORMANCE_PATH.value
    if output_path is None and performance_path is None:
        raise ConfigError("expected --output_path, the trace to write; see --help")
    if _RECORD_POLICY.value:
        if policy_path is None or output_path is None or performance_path is not None:
            raise ConfigError(
                "--record_policy: expected --policy_path, which decides, and --output_path, the trace to write, and no "
                "--output_performance_path; leave --record_policy out to compare the policy with the default"
            )
    elif (performance_path is None) != (policy_path is None):
        raise ConfigError("expected both --policy_path and --output_performance_path, found one of them")
    for path in (output_path, performance_path):
        if path is not None:
            check_writable(path)
    shared_flags.note_unneeded(_LLVM_SIZE_PATH)
    configs = _GIN.read(gin_settings.of_compilations(), unused=["network", "vocabulary"])
    settings: RolloutSettings = configs["rollout"]
    problem = _COMPILE_TASK.load(configs["command"].compile_task)
    embeddings = configs["inlining"].vocabulary(problem.decision.advisor)
    corpus = _CORPUS.load(configs["problem_config"])
    modules = traces.sample_modules(_CORPUS.selected(corpus).modules, _SAMPLING_RATE.value, _SEED.value)
    policy = problem.decision.load_policy(pretrained.folder(policy_path)) if policy_path is not None else None
    if policy is not None:
        check_same(policy.weights.metadata.get("toolchain"), embeddings, str(policy_path))
    toolchain = shared_flags.compiler(
        shared_flags.clang(_CLANG_PATH, configs["command"].clang_path), corpus, embeddings=embeddings
    )
    toolchain = configs["inlining"].extend(toolchain, problem.decision.advisor)
    support = toolchain.require(problem.decision.advisor.problem)
    if policy is not None:
        policy.check(support.feature_names)

    compilation_files = _EXPLICIT_TEMPS.compilation_files()
    with WorkerPool(toolchain, problem, _NUM_WORKERS.value, compilation_files=compilation_files) as pool:
        about = {"module_filter": _CORPUS.pattern, "sampling_rate": _SAMPLING_RATE.value, "seed": _SEED.value}
        recorded = policy if _RECORD_POLICY.value else None
        if recorded is not None:
            about |= {"recorded_policy": recorded.weights.checksum()}
        trace = record_default_trace(
            corpus,
            problem,
            toolchain,
            pool,
            output_path,
            modules=modules,
            policy=recorded,
            settings=settings,
            about=about,
        )
        baseline = trace.baseline
        if output_path is not None:
            summary = f"{trace.num_decisions} decisions of {trace.num_modules} modules"
            _report(output_path, baseline.failures, summary)
        if policy is not None and performance_path is not None:
            if problem.decision.default_policy is not None:
                # The trace has a rebuilt default, not quite the compiler's own, which policies are compared with.
                baseline = measure_baseline([m for m in modules if m.name in baseline.scores], pool, problem)
            _compare(policy, baseline, corpus, pool, problem, settings, performance_path)


def _compare(
    policy: LearnedPolicy,
    baseline: Baseline,
    corpus: Corpus,
    pool: WorkerPool,
    problem: Problem,
    settings: RolloutSettings,
    path: Path,
) -> None:
    """Compiles the modules that the default can compile under a policy, and writes both scores."""
    modules = [module for module in corpus.modules if module.name in baseline.scores]
    scores: dict[str, float] = {}
    failures: dict[str, str] = {}
    for rollout in with_progress(traces.rollouts(modules, policy, pool, settings), "policy", len(modules)):
        if rollout.failure is not None:
            failures[rollout.module] = rollout.failure
        else:
            scores[rollout.module] = problem.score(rollout.measurement, baseline.contexts[rollout.project])
    rows = ((name, traces.WHOLE_MODULE, baseline.scores[name], scores[name]) for name in sorted(scores))
    columns = ("module", "identifier", "default_score", "policy_score")
    write_text(path, csv_text(dict(zip(columns, row, strict=True)) for row in rows))
    default_total, total = sum(baseline.scores[name] for name in scores), sum(scores.values())
    _report(
        path, failures, f"score {total:.0f}, default {default_total:.0f}: reward {reward(total, default_total):+.2%}"
    )


def _report(output: Path, failures: Mapping[str, str], summary: str) -> None:
    """Prints a summary of the output, and lists failures in a log beside it."""
    log = output.with_name(f"{output.name}.failures.log")
    if failures:
        write_text(log, "".join(f"{printable(reason)}\n" for _, reason in sorted(failures.items())))
        summary += f"; {len(failures)} modules failed, see {log}"
    else:
        log.unlink(missing_ok=True)
    print(f"{output}: {summary}")


if __name__ == "__main__":
    entry()
