"""Trains a policy to decide as the compiler's own heuristic does: the warm start of reinforcement learning.

    PYTHONPATH=. python3 compiler_opt/rl/train_bc.py --output_dir=$WARMSTART_OUTPUT_DIR --data_path=$DEFAULT_TRACE \
        --vocab_path=$VOCAB --gin_files=gin_configs/inlining/behavioral_cloning_nn_agent.gin

With `--teacher`, another policy's decisions are learned in place of the heuristic's. The teacher may observe features
that the new policy does without; the trace must have them.

Writes the policy to `$WARMSTART_OUTPUT_DIR/policy`, beside `history.jsonl` and TensorBoard's summaries. Run again,
it starts over, and replaces the policy when the new one is complete. Interrupted, it leaves that of the best epoch,
unless there is a complete one.
"""

from pathlib import Path

from absl import flags

from compiler_opt import pretrained
from compiler_opt import problem as problems
from compiler_opt.errors import ConfigError
from compiler_opt.rl import pipeline, vocabularies
from compiler_opt.rl.default_trace import describe_trace
from compiler_opt.rl.pipeline import PipelineSettings
from compiler_opt.tools import entry_point, gin_settings, shared_flags

_OUTPUT_DIR = flags.DEFINE_string("output_dir", None, "Folder for policy, history and summaries.", required=True)
flags.DEFINE_alias("root_dir", _OUTPUT_DIR.name)  # its name in google/ml-compiler-opt
_DATA_PATH = flags.DEFINE_multi_string(
    "data_path", None, "The trace, as generate_default_trace writes it; may be given several times.", required=True
)
_VOCAB_PATH = flags.DEFINE_string(
    "vocab_path",
    None,
    "The vocabulary, as generate_vocab writes it; the same as train_eval.vocab_path in gin. By default the one that "
    "ships for the problem.",
)
_TEACHER = shared_flags.policy("teacher", "A policy whose probabilities are learned in place of the trace's decisions.")
_COMPILE_TASK = shared_flags.TaskFlag("the trace's")
_SEED = shared_flags.seed("all random choices; train_eval.seed in gin", None)
_GIN = gin_settings.GinFlags()


@entry_point.command
def entry() -> None:
    output_dir = Path(_OUTPUT_DIR.value)
    if (output_dir / "checkpoints").exists():
        raise ConfigError(f"--output_dir={output_dir}: holds a run of train_locally; choose another folder")
    settings = _GIN.read(gin_settings.of_cloning(), unused=["problem_config", "vocabulary"])
    config = gin_settings.override(settings["train_eval"], vocab_path=_VOCAB_PATH.value or None, seed=_SEED.value)
    trace = describe_trace(*map(Path, _DATA_PATH.value))
    problem = _COMPILE_TASK.load(
        settings["command"].compile_task, lambda: problems.recorded(trace.about, str(trace.path))
    )
    vocabulary = Path(config.vocab_path) if config.vocab_path else vocabularies.shipped_vocabulary(problem.decision)
    if vocabulary is None:
        raise ConfigError(
            "--vocab_path (or train_eval.vocab_path in gin) is needed: make one with compiler_opt generate_vocab"
        )
    if not config.vocab_path:
        entry_point.note(f"the vocabulary is the one that ships, {vocabulary}; --vocab_path names another")
    teacher = problem.decision.load_policy(pretrained.folder(_TEACHER.value)) if _TEACHER.value is not None else None
    pipeline.clone_default(
        output_dir,
        trace,
        vocabulary,
        PipelineSettings(cloning=config, network=settings["network"]),
        problem=problem,
        inlining=settings["inlining"],
        teacher=teacher,
        say=entry_point.say,
    )


if __name__ == "__main__":
    entry()
