"""Records what the compiler's own heuristic decides over a corpus: the examples for behavioural cloning.

    PYTHONPATH=. python3 compiler_opt/tools/generate_default_trace.py --data_path=$CORPUS --output_path=$DEFAULT_TRACE

Writes a TFRecord file of tf.train.SequenceExample and `$DEFAULT_TRACE.meta.json`. Modules that cannot be compiled are
named in `$DEFAULT_TRACE.failures.log`; when most cannot, nothing is written and the exit status is 2.

With `--policy_path` and `--output_performance_path`, each module is also compiled under that policy, and its score
stands beside the default's in a CSV file. A score counts a COMDAT group once for all modules of a project that are
compiled here.
"""

from collections.abc import Mapping
from pathlib import Path

from absl import flags

from compiler_opt.collect import traces
from compiler_opt.collect.baseline import Baseline, measure_baseline
from compiler_opt.collect.rollout import RolloutSettings
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.command_lines.problem_config import ProblemConfig
from compiler_opt.corpus.description import Corpus
from compiler_opt.errors import ConfigError
from compiler_opt.evaluation.output import csv_text
from compiler_opt.export.development import write_development_model
from compiler_opt.files import check_writable, printable, write_atomically
from compiler_opt.llvm.ir2vec import InliningConfig, check_same
from compiler_opt.llvm.toolchain import probe
from compiler_opt.problems import problem as problems
from compiler_opt.problems.problem import Problem, reward
from compiler_opt.rl.default_trace import record_default_trace, with_progress
from compiler_opt.spaces.learned_policy import LearnedPolicy
from compiler_opt.tools import corpus_flags, entry_point, gin_classes, gin_settings

_DATA_PATH = flags.DEFINE_string("data_path", None, f"The corpus: {corpus_flags.DATA_PATH}.", required=True)
_OUTPUT_PATH = flags.DEFINE_string("output_path", None, "The trace to write.")
_COMPILE_TASK = flags.DEFINE_string("compile_task", "inlining", "The problem, or MODULE:PROBLEM of your own.")
_CLANG_PATH = flags.DEFINE_string("clang_path", None, "The compiler; by default the newest that is installed.")
_LLVM_SIZE_PATH = flags.DEFINE_string(
    "llvm_size_path", None, "Not needed: sizes are read off the objects directly. When given, it must exist."
)
_TRUST_CORPUS = flags.DEFINE_bool("trust_corpus", False, corpus_flags.TRUST_CORPUS)
_MODULE_FILTER = flags.DEFINE_string("module_filter", None, corpus_flags.MODULE_FILTER)
_SAMPLING_RATE = flags.DEFINE_float("sampling_rate", 1.0, "Share of the modules to compile.", 0, 1)
_SEED = flags.DEFINE_integer("seed", 0, "Of the sample.", 0)
_NUM_WORKERS = flags.DEFINE_integer("num_workers", None, "Compilers at a time; by default one per CPU.", 1)
_POLICY_PATH = flags.DEFINE_string("policy_path", None, "A policy to compare with the default.")
_OUTPUT_PERFORMANCE_PATH = flags.DEFINE_string(
    "output_performance_path", None, "The CSV file of module, identifier, default_score, policy_score."
)
_GIN_FILES = flags.DEFINE_multi_string(
    "gin_files", [], "Gin files; `rollout.timeout_s`, `problem_config.flags_to_add` and their like count here."
)
_GIN_BINDINGS = flags.DEFINE_multi_string("gin_bindings", [], "Gin bindings, over the files.")

PERFORMANCE_COLUMNS = ("module", "identifier", "default_score", "policy_score")


@entry_point.command
def entry() -> None:
    output_path, performance_path = _output_paths()
    settings, problem_config, inlining = _settings()
    problem = problems.load(_COMPILE_TASK.value)
    embeddings = inlining.vocabulary(problem.advisor)
    corpus = corpus_flags.load(_DATA_PATH.value, trusted=_TRUST_CORPUS.value, problem_config=problem_config)
    filtered = corpus.filter(_MODULE_FILTER.value) if _MODULE_FILTER.value else corpus
    modules = traces.sample_modules(filtered.modules, _SAMPLING_RATE.value, _SEED.value)
    policy = problem.load_policy(Path(str(_POLICY_PATH.value))) if performance_path is not None else None
    if policy is not None:
        check_same(policy.weights.metadata.get("toolchain"), embeddings, str(_POLICY_PATH.value))
    toolchain = probe(_CLANG_PATH.value, embeddings)
    corpus.check_compiler(toolchain.version, toolchain.clang)
    support = toolchain.require(problem.advisor.problem)
    if policy is not None:
        policy.check([spec.name for spec in support.features])

    with WorkerPool(toolchain, problem, _NUM_WORKERS.value) as pool:
        about = {"module_filter": _MODULE_FILTER.value, "sampling_rate": _SAMPLING_RATE.value, "seed": _SEED.value}
        trace = record_default_trace(
            corpus, problem, toolchain, pool, output_path, modules=modules, settings=settings, about=about
        )
        baseline = trace.baseline
        if output_path is not None:
            summary = f"{trace.num_decisions} decisions of {trace.num_modules} modules"
            _report(output_path, baseline.failures, summary)
        if policy is not None and performance_path is not None:
            assert support.advice is not None
            write_development_model(pool.policies, policy, support.advice.name, settings.backend)
            if problem.default_policy is not None:
                # What is rebuilt of the default is not quite the compiler's own, which is the yardstick.
                baseline = measure_baseline([m for m in modules if m.name in baseline.scores], pool, problem)
            _compare(policy, baseline, corpus, pool, problem, settings, performance_path)


def _output_paths() -> tuple[Path | None, Path | None]:
    """Trace and CSV; checks the flags that belong to them."""
    output_path, performance_path = (
        Path(flag.value) if flag.value else None for flag in (_OUTPUT_PATH, _OUTPUT_PERFORMANCE_PATH)
    )
    if output_path is None and performance_path is None:
        raise ConfigError("--output_path is needed: the trace to write")
    if (performance_path is None) != (not _POLICY_PATH.value):
        raise ConfigError("--policy_path and --output_performance_path go together, found one of them")
    if _LLVM_SIZE_PATH.value and not Path(_LLVM_SIZE_PATH.value).is_file():
        raise ConfigError(f"--llvm_size_path={_LLVM_SIZE_PATH.value}: no such file; leave it out, it is not needed")
    for path in (output_path, performance_path):
        if path is not None:
            check_writable(path)
    return output_path, performance_path


def _settings() -> tuple[RolloutSettings, ProblemConfig, InliningConfig]:
    """What gin says about compilations. Its files may speak of networks too, which is none of our business."""
    settings = gin_settings.read(gin_classes.of_compilations(), _GIN_FILES.value, _GIN_BINDINGS.value)
    return settings["rollout"], settings["problem_config"], settings["inlining"]


def _compare(
    policy: LearnedPolicy,
    baseline: Baseline,
    corpus: Corpus,
    pool: WorkerPool,
    problem: Problem,
    settings: RolloutSettings,
    path: Path,
) -> None:
    """Compiles what the default could compile under a policy, and writes both scores."""
    modules = [module for module in corpus.modules if module.name in baseline.scores]
    scores: dict[str, float] = {}
    failures: dict[str, str] = {}
    for rollout in with_progress(traces.rollouts(modules, policy, pool, settings), "policy", len(modules)):
        if rollout.failure is not None:
            failures[rollout.module] = rollout.failure
        else:
            scores[rollout.module] = problem.score(rollout.measurement, baseline.contexts[rollout.project])
    rows = [(name, traces.WHOLE_MODULE, baseline.scores[name], scores[name]) for name in sorted(scores)]
    table = csv_text(dict(zip(PERFORMANCE_COLUMNS, row, strict=True)) for row in rows)
    write_atomically(path, table.encode("utf-8", "backslashreplace"))
    default_total, total = sum(baseline.scores[name] for name in scores), sum(scores.values())
    _report(
        path, failures, f"score {total:.0f}, default {default_total:.0f}: reward {reward(total, default_total):+.2%}"
    )


def _report(output: Path, failures: Mapping[str, str], summary: str) -> None:
    """Says what was written, and names what failed in a log beside it."""
    log = output.with_name(f"{output.name}.failures.log")
    if failures:
        write_atomically(log, "".join(f"{printable(reason)}\n" for _, reason in sorted(failures.items())).encode())
        summary += f"; {len(failures)} modules failed, see {log}"
    else:
        log.unlink(missing_ok=True)
    print(f"{output}: {summary}")


if __name__ == "__main__":
    entry()
