"""Trains a policy by reinforcement learning on this machine's threads.

    PYTHONPATH=. python3 compiler_opt/rl/train_locally.py --root_dir=$OUTPUT_DIR --data_path=$CORPUS \
        --gin_files=gin_configs/inlining/ppo_nn_agent.gin --warmstart_policy_dir=$WARMSTART_OUTPUT_DIR/policy

The policy comes to stand in `$OUTPUT_DIR/policy`. Killed at any moment, the same command goes on where it was.
"""

import dataclasses
from pathlib import Path

from absl import flags

from compiler_opt.errors import ConfigError
from compiler_opt.files import check_folder_writable
from compiler_opt.llvm.toolchain import probe
from compiler_opt.problems import problem as problems
from compiler_opt.rl import pipeline
from compiler_opt.rl.algorithm import AlgorithmConfigs
from compiler_opt.rl.config import POLICY_DIR
from compiler_opt.rl.pipeline import PipelineSettings
from compiler_opt.tools import corpus_flags, entry_point, gin_classes, gin_settings

_ROOT_DIR = flags.DEFINE_string("root_dir", None, "The run's folder: checkpoints, history, summaries, policy.")
_DATA_PATH = flags.DEFINE_string("data_path", None, f"The corpus to train on: {corpus_flags.DATA_PATH}.")
_TRUST_CORPUS = flags.DEFINE_bool("trust_corpus", False, corpus_flags.TRUST_CORPUS)
_MODULE_FILTER = flags.DEFINE_string("module_filter", None, corpus_flags.MODULE_FILTER)
_COMPILE_TASK = flags.DEFINE_string("compile_task", "inlining", "The problem, or MODULE:PROBLEM of your own.")
_CLANG_PATH = flags.DEFINE_string("clang_path", None, "The compiler; by default the newest that is installed.")
_NUM_WORKERS = flags.DEFINE_integer("num_workers", None, "Compilers at a time; by default one per thread.", 1)
_VOCAB_PATH = flags.DEFINE_string("vocab_path", None, "Vocabulary; by default that of the warm-start policy.")
_WARMSTART_POLICY_DIR = flags.DEFINE_string(
    "warmstart_policy_dir", None, "The policy to start from; the same as train_eval.warmstart_policy_dir in gin."
)
_NUM_MODULES = flags.DEFINE_integer("num_modules", None, "Modules per iteration; train_eval.num_modules in gin.", 1)
_MAX_MINUTES = flags.DEFINE_float("max_minutes", None, "Time to train for; train_eval.max_minutes in gin.", 0)
_SEED = flags.DEFINE_integer("seed", None, "Of everything that is drawn; train_eval.seed in gin.", 0)
_GIN_FILES = flags.DEFINE_multi_string("gin_files", [], "Gin files.")
_GIN_BINDINGS = flags.DEFINE_multi_string("gin_bindings", [], "Gin bindings, over the files.")


@entry_point.command
def entry() -> None:
    if not _ROOT_DIR.value or not _DATA_PATH.value:
        raise ConfigError("--root_dir and --data_path are needed: the run's folder, and the corpus to train on")
    root_dir = Path(_ROOT_DIR.value)
    check_folder_writable(root_dir)
    settings = gin_settings.read(gin_classes.of_training(), _GIN_FILES.value, _GIN_BINDINGS.value)
    flag_values = {
        "num_modules": _NUM_MODULES.value,
        "max_minutes": _MAX_MINUTES.value,
        "warmstart_policy_dir": _WARMSTART_POLICY_DIR.value,
        "seed": _SEED.value,
    }
    config = dataclasses.replace(
        settings["train_eval"], **{name: value for name, value in flag_values.items() if value is not None}
    )
    problem = problems.load(_COMPILE_TASK.value)
    corpus = corpus_flags.load(
        _DATA_PATH.value,
        trusted=_TRUST_CORPUS.value,
        problem_config=settings["problem_config"],
        module_filter=_MODULE_FILTER.value,
    )
    toolchain = probe(_CLANG_PATH.value, settings["inlining"].vocabulary(problem.advisor))
    corpus.check_compiler(toolchain.version, toolchain.clang)
    pipeline.train(
        root_dir,
        corpus,
        problem,
        toolchain,
        PipelineSettings(training=config, network=settings["network"], algorithms=AlgorithmConfigs(settings.values())),
        vocabulary_dir=Path(_VOCAB_PATH.value) if _VOCAB_PATH.value else None,
        num_workers=_NUM_WORKERS.value,
    )
    print(f"The policy is in {root_dir / POLICY_DIR}")


if __name__ == "__main__":
    entry()
