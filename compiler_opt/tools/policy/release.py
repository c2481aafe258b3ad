"""Makes a policy to release, such as those that ship, out of trainings that differ in their seeds.

    compiler_opt policy release --name=inlining-Oz-portable --training_dirs=seed-1,seed-2,seed-3 \
        --data_path=$VALIDATION_CORPUS --output_dir=$POLICIES

The policies of the trainings and, if they are several, the mean of their networks decide on a validation corpus, on
which no result may ever be reported. The one with the best mean over projects of the change of linked text, or the mean
of their networks if it gains 95% as much, goes to `$POLICIES/NAME`, with the margin that the same corpus chooses (see
`policy margin`), with a model card and checksums; `--history_dir=DIR` also writes the thinned histories of the
trainings, to `DIR/NAME`. A policy that was made of released ones, as by `policy combine`, is released with
--policy_path in place of --training_dirs, and --margins=0 to keep its margin.

An evaluation of the released policy on other projects then completes its card:

    compiler_opt evaluate --data_path=$HELD_OUT --policy_path=$POLICIES/NAME --output_dir=$RESULTS
    compiler_opt policy release --name=NAME --evaluation=$RESULTS --output_dir=$POLICIES

If the environment variable COMPILER_OPT_PRETRAINED is $POLICIES, `pretrained:NAME` is this policy.
"""

from pathlib import Path

from absl import flags

from compiler_opt.errors import ConfigError
from compiler_opt.evaluation.evaluate import EvaluationSettings
from compiler_opt.evaluation.margins import MARGINS
from compiler_opt.files import check_folder_writable
from compiler_opt.rl.release import add_results, choose, gather, release, with_best_margin, write_logs
from compiler_opt.rl.unfinished_policy import finished_policy
from compiler_opt.tools import entry_point, shared_flags
from compiler_opt.tools.entry_point import echo
from compiler_opt.tools.progress import rollout_bar

_NAME = flags.DEFINE_string("name", None, "The policy's name: letters, digits and . + -", required=True)
_TRAINING_DIRS = flags.DEFINE_list("training_dirs", [], "Comma-separated folders of trainings, one for each seed.")
_POLICY_PATH = shared_flags.path("policy_path", "Folder of a policy to release as it is, without trainings.")
_CORPUS = shared_flags.CorpusFlags(module_filter=False, required=False)
_EVALUATION = shared_flags.path(
    "evaluation", "Folder of results that evaluate wrote for the released policy, for its model card."
)
_OUTPUT_DIR = shared_flags.required_path("output_dir", "The folder of policies to write into, as NAME.")
_HISTORY_DIR = shared_flags.path("history_dir", "Folder for thinned histories of the trainings; by default none.")
_MARGINS = shared_flags.numbers("margins", MARGINS, float, "margins to try; 0 for none")
_COMPILE_TASK = shared_flags.TaskFlag("inlining")
_CLANG_PATH = shared_flags.clang_path()
_NUM_WORKERS = shared_flags.num_workers()


@entry_point.command
def entry() -> None:
    _check_flags()
    output_dir, history_dir = _OUTPUT_DIR.value, _HISTORY_DIR.value
    training_dirs = [Path(directory) for directory in _TRAINING_DIRS.value]
    check_folder_writable(output_dir)
    if _EVALUATION.value is not None:
        folder = add_results(output_dir, _NAME.value, _EVALUATION.value)
        print(f"{folder}: has the results of {_EVALUATION.value}")
        return
    if history_dir is not None:
        check_folder_writable(history_dir)
    policy: Path | None = _POLICY_PATH.value
    candidates = gather(training_dirs) if policy is None else {policy.resolve().name: finished_policy(policy)}
    problem = _COMPILE_TASK.load()
    corpus, toolchain = _CORPUS.read(_CLANG_PATH.value)
    settings = EvaluationSettings(num_workers=_NUM_WORKERS.value)
    total = len(corpus.modules) * (2 + len(candidates) + len(_MARGINS.value))
    with rollout_bar(total) as advance:
        choice = choose(
            candidates,
            corpus,
            problem=problem,
            toolchain=toolchain,
            settings=settings,
            on_rollout=advance,
        )
        table = choice.table()
        if _MARGINS.value != [0.0]:
            choice = with_best_margin(
                choice,
                corpus,
                _MARGINS.value,
                problem=problem,
                toolchain=toolchain,
                settings=settings,
                on_rollout=advance,
            )
    logs = write_logs(training_dirs, history_dir / _NAME.value) if history_dir is not None else []
    folder = release(output_dir, _NAME.value, choice)
    for line in table.lines():
        echo(line)
    echo(f"margin: {choice.weights.margin:g}")
    for path in logs:
        echo(f"log: {path}")
    size_bytes = sum(path.stat().st_size for path in folder.iterdir())
    echo(f"policy: {folder} ({size_bytes} bytes), checksum {choice.weights.checksum()[:16]}")


def _check_flags() -> None:
    """Raises ConfigError unless trainings or a policy are given, with a corpus, or else an evaluation."""
    given = [
        bool(flag) for flag in (_TRAINING_DIRS.value, _POLICY_PATH.value, _EVALUATION.value, _CORPUS.data_path.value)
    ]
    if given not in ([True, False, False, True], [False, True, False, True], [False, False, True, False]):
        raise ConfigError(
            "expected --training_dirs or --policy_path, with --data_path (to release a policy), or --evaluation alone"
        )


if __name__ == "__main__":
    entry()
