"""Trains a policy by reinforcement learning on this machine's threads.

    PYTHONPATH=. python3 compiler_opt/rl/train_locally.py --root_dir=$OUTPUT_DIR --data_path=$CORPUS \
        --gin_files=gin_configs/inlining/ppo_nn_agent.gin --warmstart_policy_dir=$WARMSTART_OUTPUT_DIR/policy

The policy comes to stand in `$OUTPUT_DIR/policy`. Killed at any moment, the same command goes on where it was.
"""

import dataclasses
import logging
from pathlib import Path

from absl import flags

from compiler_opt import rl
from compiler_opt.collect.advantages import AdvantagesConfig
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.command_lines.problem_config import ProblemConfig
from compiler_opt.errors import ConfigError
from compiler_opt.files import alone_in, check_folder_writable
from compiler_opt.llvm.ir2vec import InliningConfig
from compiler_opt.llvm.toolchain import probe
from compiler_opt.problems import problem as problems
from compiler_opt.rl import vocabularies
from compiler_opt.rl.config import DeviationsConfig, EvolutionConfig, PPOConfig, TrainingConfig
from compiler_opt.spaces.network_config import NetworkConfig
from compiler_opt.tools import corpus_flags, entry_point, gin_settings

_ROOT_DIR = flags.DEFINE_string("root_dir", None, "The run's folder: checkpoints, history, summaries, policy.")
_DATA_PATH = flags.DEFINE_string("data_path", None, f"The corpus to train on: {corpus_flags.DATA_PATH}.")
_TRUST_CORPUS = flags.DEFINE_bool("trust_corpus", False, corpus_flags.TRUST_CORPUS)
_MODULE_FILTER = flags.DEFINE_string("module_filter", None, corpus_flags.MODULE_FILTER)
_COMPILE_TASK = flags.DEFINE_string("compile_task", "inlining", "What is decided.")
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


def main(argv: list[str]) -> None:
    del argv
    if not _ROOT_DIR.value or not _DATA_PATH.value:
        raise ConfigError("--root_dir and --data_path are needed: the run's folder, and the corpus to train on")
    root_dir = Path(_ROOT_DIR.value)
    check_folder_writable(root_dir)
    settings = gin_settings.read(
        {
            "train_eval": TrainingConfig,
            "ppo": PPOConfig,
            "deviations": DeviationsConfig,
            "evolution": EvolutionConfig,
            "network": NetworkConfig,
            "advantages": AdvantagesConfig,
            "problem_config": ProblemConfig,
            "inlining": InliningConfig,
        },
        _GIN_FILES.value,
        _GIN_BINDINGS.value,
    )
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
    sent = [spec.name for spec in toolchain.require(problem.advisor.problem).features]
    supported, available = problem.supported_features(sent), problem.available_features(sent)
    start = config.warmstart_policy_dir
    quantiles = vocabularies.of_run(_VOCAB_PATH.value, start, supported, available, toolchain.embeddings)

    with alone_in(root_dir, "--root_dir"):
        # Everything that a user may have got wrong is known by now. A worker imports this module too, and never needs
        # this.
        rl.load_tensorflow()
        from compiler_opt.rl import methods
        from compiler_opt.rl.training import POLICY_DIR, Run

        logging.getLogger("compiler_opt").setLevel(logging.INFO)
        with WorkerPool(toolchain, problem.name, _NUM_WORKERS.value) as pool:
            run = Run(root_dir, corpus, toolchain, problem, pool, quantiles, config, settings["network"])
            how = {name: settings[name] for name in ("ppo", "advantages", "deviations", "evolution")}
            methods.train(run, methods.Methods(**how))
        print(f"The policy is in {root_dir / POLICY_DIR}")


def entry() -> None:
    entry_point.run(main)


if __name__ == "__main__":
    entry()
