"""Trains a policy to decide as the compiler's own heuristic does: the warm start of reinforcement learning.

    PYTHONPATH=. python3 compiler_opt/rl/train_bc.py --root_dir=$WARMSTART_OUTPUT_DIR --data_path=$DEFAULT_TRACE \
        --vocab_path=$VOCAB --gin_files=gin_configs/inlining/behavioral_cloning_nn_agent.gin

The policy comes to stand in `$WARMSTART_OUTPUT_DIR/policy`, beside `history.jsonl` and TensorBoard's summaries. Running
it again starts over, and replaces the policy when the new one is complete.
"""

import dataclasses
from pathlib import Path

from absl import flags

from compiler_opt import rl
from compiler_opt.collect.trace_description import TraceDescription
from compiler_opt.corpus.command_lines.problem_config import ProblemConfig
from compiler_opt.errors import ConfigError
from compiler_opt.files import alone_in, check_folder_writable
from compiler_opt.llvm.ir2vec import InliningConfig, check_same
from compiler_opt.policies.vocabulary import load_vocabulary
from compiler_opt.problems import problem as problems
from compiler_opt.rl.config import BehavioralCloningConfig
from compiler_opt.spaces.network_config import NetworkConfig
from compiler_opt.tools import entry_point, gin_settings

_ROOT_DIR = flags.DEFINE_string("root_dir", None, "Folder for policy, history and summaries.", required=True)
_DATA_PATH = flags.DEFINE_string("data_path", None, "The trace, as generate_default_trace writes it.", required=True)
_VOCAB_PATH = flags.DEFINE_string(
    "vocab_path", None, "The vocabulary, as generate_vocab writes it; the same as train_eval.vocab_path in gin."
)
_GIN_FILES = flags.DEFINE_multi_string("gin_files", [], "Gin files.")
_GIN_BINDINGS = flags.DEFINE_multi_string("gin_bindings", [], "Gin bindings, over the files.")


def main(argv: list[str]) -> None:
    del argv
    root_dir = Path(_ROOT_DIR.value)
    check_folder_writable(root_dir)
    if (root_dir / "checkpoints").exists():
        raise ConfigError(f"--root_dir={root_dir}: holds a run of train_locally; choose another folder")
    # The flags that gin may speak of are those of compilations: how the trace was made is known from its description.
    classes = {
        "train_eval": BehavioralCloningConfig,
        "network": NetworkConfig,
        "problem_config": ProblemConfig,
        "inlining": InliningConfig,
    }
    settings = gin_settings.read(classes, _GIN_FILES.value, _GIN_BINDINGS.value)
    config: BehavioralCloningConfig = settings["train_eval"]
    if _VOCAB_PATH.value:
        config = dataclasses.replace(config, vocab_path=_VOCAB_PATH.value)
    if not config.vocab_path:
        raise ConfigError("--vocab_path (or train_eval.vocab_path in gin) is needed: make one with generate_vocab.py")
    trace_path = Path(_DATA_PATH.value)
    trace = TraceDescription(trace_path)
    problem = problems.load(trace.about.get("problem", "inlining"))
    embeddings = settings["inlining"].vocabulary(problem.advisor)
    if embeddings is not None:
        check_same(trace.about.get("toolchain"), embeddings, str(trace_path))
    quantiles = load_vocabulary(
        Path(config.vocab_path), problem.supported_features(spec.name for spec in trace.features)
    )

    with alone_in(root_dir, "--root_dir"):
        # Everything that can be wrong before the work is known by now.
        rl.load_tensorflow()
        from compiler_opt.rl.warm_start import clone_default

        clone_default(root_dir, trace_path, problem, quantiles, settings["network"], config)


def entry() -> None:
    entry_point.run(main)


if __name__ == "__main__":
    entry()
