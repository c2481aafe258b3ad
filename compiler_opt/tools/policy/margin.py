"""Chooses the margin of a policy on a validation corpus, and writes it into the policy's folder.

    compiler_opt policy margin --policy_path=$POLICY --data_path=$VALIDATION_CORPUS

With a margin, the policy leaves the compiler's default decision only where its two logits differ by at least that much.
Chosen is the largest margin that keeps 95% of what the best one gains. The best has the best mean over projects of the
change of linked text, among those under which all projects together are not bigger than under the smallest one. Never
give it a corpus on which the policy will be reported.
"""

from pathlib import Path

from absl import flags

from compiler_opt.collect.rollout import RolloutSettings
from compiler_opt.evaluation.evaluate import EvaluationSettings
from compiler_opt.evaluation.margins import MARGINS, choose_margin, write_margin
from compiler_opt.files import check_folder_writable
from compiler_opt.llvm.inliner_plugin import with_plugin_features
from compiler_opt.tools import entry_point, shared_flags
from compiler_opt.tools.entry_point import echo
from compiler_opt.tools.progress import rollout_bar

_POLICY_PATH = shared_flags.required_path("policy_path", "Folder of the policy, which gets the margin.")
_CORPUS = shared_flags.CorpusFlags()
_COMPILE_TASK = shared_flags.TaskFlag("inlining")
_CLANG_PATH = shared_flags.clang_path()
_NUM_WORKERS = shared_flags.num_workers()
_MARGINS = shared_flags.numbers("margins", MARGINS, float, "margins to try")
_DRY_RUN = flags.DEFINE_bool("dry_run", False, "Print the results only, and leave the policy as it is.")
_BACKEND = flags.DEFINE_string("backend", "auto", "How decisions get into the compiler, see docs/code_map.md.")


@entry_point.command
def entry() -> None:
    directory: Path = _POLICY_PATH.value
    settings = EvaluationSettings(num_workers=_NUM_WORKERS.value, rollout=RolloutSettings(backend=_BACKEND.value))
    corpus, toolchain = _CORPUS.read(_CLANG_PATH.value)
    problem = _COMPILE_TASK.load()
    policy = problem.decision.load_policy(directory)
    policy.check(toolchain.require(problem.decision.advisor.problem).feature_names)
    toolchain = with_plugin_features(toolchain, policy.plugin_features)
    if not _DRY_RUN.value:
        check_folder_writable(directory)
    total = len(corpus.modules) * (1 + len(_MARGINS.value))
    with rollout_bar(total) as advance:
        choice = choose_margin(
            corpus,
            policy,
            problem=problem,
            toolchain=toolchain,
            margins=_MARGINS.value,
            settings=settings,
            on_rollout=advance,
        )
    for line in choice.table().lines():
        echo(line)
    echo(choice.summary())
    if not _DRY_RUN.value:
        write_margin(directory, choice.margin, chosen_on=corpus.root.resolve().name)
        print(f"The policy with this margin is in {directory}")


if __name__ == "__main__":
    entry()
