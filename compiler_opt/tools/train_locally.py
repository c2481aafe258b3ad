"""Trains a policy by reinforcement learning, on this machine's threads or on a Ray cluster (docs/cluster.md).

    PYTHONPATH=. python3 compiler_opt/rl/train_locally.py --output_dir=$OUTPUT_DIR --data_path=$CORPUS \
        --gin_files=gin_configs/inlining/ppo_nn_agent.gin --warmstart_policy_dir=$WARMSTART_OUTPUT_DIR/policy

Writes the policy to `$OUTPUT_DIR/policy`: after each iteration what our commands read of it, and all of it at the end.
Killed at any moment, the same command resumes after the last iteration.
"""

from pathlib import Path

from absl import flags

from compiler_opt.evaluation.history import HISTORY_FILE, read_entries
from compiler_opt.llvm.inlining_config import InliningConfig
from compiler_opt.policies.weights import ALWAYS_DEFAULT
from compiler_opt.rl import pipeline
from compiler_opt.rl.algorithm import AlgorithmConfigs
from compiler_opt.rl.config import POLICY_DIR
from compiler_opt.rl.pipeline import PipelineSettings
from compiler_opt.rl.time_profile import PICTURE_FILE, profile_table, write_picture
from compiler_opt.tools import entry_point, gin_settings, shared_flags
from compiler_opt.tools.cost_model_flags import CostModelFlags

_OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", None, "The run's folder: checkpoints, history, summaries, policy.", required=True
)
flags.DEFINE_alias("root_dir", _OUTPUT_DIR.name)  # its name in google/ml-compiler-opt
_CORPUS = shared_flags.CorpusFlags()
_COMPILE_TASK = shared_flags.TaskFlag()
_COST_MODEL = CostModelFlags()
_CLANG_PATH = shared_flags.clang_path()
_LLVM_SIZE_PATH = shared_flags.llvm_size_path()
_NUM_WORKERS = shared_flags.num_workers()
_WORKER_MANAGER = shared_flags.WorkerManagerFlags()
_NICENESS = flags.DEFINE_integer(
    "niceness", 0, "Niceness of the compilers, so that other programs, and the learner, go first.", 0, 19
)
_VOCAB_PATH = flags.DEFINE_string("vocab_path", None, "Vocabulary; by default that of the warm-start policy.")
_WARMSTART_POLICY_DIR = shared_flags.policy(
    "warmstart_policy_dir", "The policy to start from; the same as train_eval.warmstart_policy_dir in gin."
)
_VALIDATION_PATH = flags.DEFINE_string(
    "validation_path",
    None,
    "A corpus of other projects, on which the policy is evaluated every train_eval.validation_iterations, or every "
    "train_eval.validation_compiles; the best one is saved instead of the last. Do not report results on it.",
)
_NUM_MODULES = flags.DEFINE_integer("num_modules", None, "Modules per iteration; train_eval.num_modules in gin.", 1)
_MINUTES = flags.DEFINE_float("minutes", None, "Time to train for; train_eval.max_minutes in gin.", 0)
_EXPLICIT_TEMPS = shared_flags.ExplicitTempsFlags()
_PROFILE = flags.DEFINE_bool(
    "profile", False, f"Print at the end where the time of the iterations went, and draw it, as {PICTURE_FILE}."
)
_SEED = shared_flags.seed("all random choices; train_eval.seed in gin", None)
_GIN = gin_settings.GinFlags()


@entry_point.command
def entry() -> None:
    output_dir = Path(_OUTPUT_DIR.value)
    shared_flags.note_unneeded(_LLVM_SIZE_PATH)
    settings = _GIN.read(gin_settings.of_training(), unused=["vocabulary"])
    config = gin_settings.override(
        settings["train_eval"],
        num_modules=_NUM_MODULES.value,
        max_minutes=_MINUTES.value,
        warmstart_policy_dir=_WARMSTART_POLICY_DIR.value,
        seed=_SEED.value,
    )
    problem = _COMPILE_TASK.load(settings["command"].compile_task)
    corpus = _CORPUS.selected(_CORPUS.load(settings["problem_config"]))
    inlining: InliningConfig = settings["inlining"]
    clang_path = shared_flags.clang(_CLANG_PATH, settings["command"].clang_path)
    validation = None
    if _VALIDATION_PATH.value:
        validation = _CORPUS.load_other(_VALIDATION_PATH.value, settings["problem_config"])
    corpora = [corpus] if validation is None else [corpus, validation]
    advisor = problem.decision.advisor
    toolchain = shared_flags.compiler(clang_path, *corpora, embeddings=inlining.vocabulary(advisor))
    toolchain = inlining.extend(toolchain, advisor)
    problem = _COST_MODEL.with_cost_model(problem, toolchain)
    weights = pipeline.train(
        output_dir,
        corpus,
        problem,
        toolchain,
        PipelineSettings(training=config, network=settings["network"], algorithms=AlgorithmConfigs(settings.values())),
        vocabulary_dir=Path(_VOCAB_PATH.value) if _VOCAB_PATH.value else None,
        num_workers=_NUM_WORKERS.value,
        niceness=_NICENESS.value,
        compilation_files=_EXPLICIT_TEMPS.compilation_files(),
        validation=validation,
        open_pool=_WORKER_MANAGER.open_pool(),
    )
    if weights.margin == ALWAYS_DEFAULT:
        print("The run is worse than the default on its validation corpus: its policy keeps the default's decisions")
    if _PROFILE.value:
        entries, _ = read_entries(output_dir / HISTORY_FILE)
        entry_point.echo("\n".join(profile_table(entries).lines()))
        write_picture(entries, output_dir / PICTURE_FILE)
        print(f"The same by iteration is in {output_dir / PICTURE_FILE}")
    print(f"The policy is in {output_dir / POLICY_DIR}")


if __name__ == "__main__":
    entry()
