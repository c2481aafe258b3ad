"""Explains why a program is larger or smaller with a policy: which inlining decisions made the difference.

Compiles a corpus with the compiler's default and with a policy (or with two policies), compares call sites and function
sizes, and attributes each function's change to the decisions at which the builds differ:

    compiler_opt explain --data_path=CORPUS --policy_path=POLICY --output_dir=OUTPUT --verify=20

`--verify=N` measures the N largest decisions: each is made as in the first build, alone, and the program is linked
again. The output folder gets `decisions.csv`, `functions.csv`, `summary.json` and `report.html`.
"""

import contextlib
import dataclasses

from absl import flags

from compiler_opt import pretrained
from compiler_opt import problem as problems
from compiler_opt.collect.rollout import DefaultPolicy
from compiler_opt.errors import ConfigError
from compiler_opt.evaluation import explain_report
from compiler_opt.evaluation.explain import ExplainSettings, explain
from compiler_opt.evaluation.report_parts import SUMMARY_FILE
from compiler_opt.files import exclusive_directory
from compiler_opt.llvm.inliner_plugin import inliner_plugin, with_plugin_features
from compiler_opt.policies.policy import Policy
from compiler_opt.spaces.learned_policy import LearnedPolicy
from compiler_opt.tools import entry_point, gin_settings, shared_flags
from compiler_opt.tools.entry_point import echo
from compiler_opt.tools.progress import rollout_bar

_CORPUS = shared_flags.CorpusFlags(projects=True)
_POLICY_PATH = shared_flags.policy("policy_path", "The policy to explain.", required=True)
_OTHER_POLICY_PATH = shared_flags.policy(
    "other_policy_path", "The policy to compare it with; by default, the compiler's own decisions."
)
_OUTPUT_DIR = shared_flags.required_path("output_dir", "Folder for the results.")
_CLANG_PATH = shared_flags.clang_path()
_NUM_WORKERS = shared_flags.num_workers()
shared_flags.json()
_VERIFY = flags.DEFINE_integer("verify", 0, "How many of the largest decisions to measure, each alone.", 0)
_GIN = gin_settings.GinFlags("Gin files; settings of rollout and problem_config (by default the policy's) apply here.")


@entry_point.command
def entry() -> None:
    settings = _GIN.read(gin_settings.of_compilations(), unused=["network", "vocabulary", "inlining"])
    corpus = _CORPUS.selected(_CORPUS.load())
    problem = problems.load("inlining")
    shared_flags.check_task(problem, settings["command"].compile_task, "explain is for inlining")
    second = problem.decision.load_policy(pretrained.folder(_POLICY_PATH.value))
    first: Policy = DefaultPolicy(problem)
    if _OTHER_POLICY_PATH.value is not None:
        other = problem.decision.load_policy(pretrained.folder(_OTHER_POLICY_PATH.value))
        if other.weights.checksum() == second.weights.checksum():
            raise ConfigError(f"--other_policy_path={_OTHER_POLICY_PATH.value}: is the policy of --policy_path")
        first = dataclasses.replace(other, name="other policy")
    corpus = shared_flags.configured(corpus, settings["problem_config"], second, _POLICY_PATH.value)
    toolchain = shared_flags.compiler(shared_flags.clang(_CLANG_PATH, settings["command"].clang_path), corpus)
    # Otherwise a plugin that cannot be built would be every module's failure.
    inliner_plugin(toolchain)
    for policy in (first, second):
        if isinstance(policy, LearnedPolicy):
            policy.check(toolchain.require(problem.decision.advisor.problem).feature_names)
            toolchain = with_plugin_features(toolchain, policy.plugin_features)
    output_dir = _OUTPUT_DIR.value
    with contextlib.ExitStack() as stack:
        stack.enter_context(exclusive_directory(output_dir, "--output_dir"))
        # Measuring single decisions takes more.
        advance = stack.enter_context(rollout_bar(2 * len(corpus.modules)))
        explanation = explain(
            corpus,
            first,
            second,
            problem=problem,
            toolchain=toolchain,
            settings=ExplainSettings(_NUM_WORKERS.value, _VERIFY.value, settings["rollout"]),
            provenance={
                "Compiler": toolchain.version_text,
                "Corpus": f"{corpus.root.resolve().name}: {', '.join(corpus.projects())}",
                "First": str(_OTHER_POLICY_PATH.value or "the compiler's own decisions"),
                "Second": str(_POLICY_PATH.value),
            },
            on_rollout=advance,
        )
        page = explain_report.write(explanation, output_dir)
    echo(explain_report.terminal_text(explanation))
    print(f"report: {page}")
    entry_point.print_json(output_dir / SUMMARY_FILE)


if __name__ == "__main__":
    entry()
