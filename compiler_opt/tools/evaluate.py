"""Compares a saved policy, options of LLVM's passes, and both together, with plain clang on a corpus.

Compiles every module plainly, with each of these and with the baselines, links each project, and writes `modules.csv`,
`projects.csv`, `summary.json` and `report.html` into the output folder:

    compiler_opt evaluate --data_path=CORPUS --policy_path=POLICY --output_dir=OUTPUT
    compiler_opt evaluate --data_path=CORPUS --policy_path=none --output_dir=OUTPUT    # options alone
"""

import contextlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from absl import flags

from compiler_opt import pretrained
from compiler_opt import problem as problems
from compiler_opt.checked_values import fact_text
from compiler_opt.collect.backends.embedded import EmbeddedPolicy, check_embedded_model
from compiler_opt.corpus.command_lines.command_line import optimization_level
from compiler_opt.corpus.description import Corpus
from compiler_opt.deploy.pass_options import AUTO
from compiler_opt.errors import ConfigError
from compiler_opt.evaluation import report
from compiler_opt.evaluation.evaluate import EvaluationSettings, baselines, evaluate, num_rollouts
from compiler_opt.evaluation.history import load_history
from compiler_opt.evaluation.report_parts import SUMMARY_FILE, policy_facts
from compiler_opt.files import exclusive_directory
from compiler_opt.llvm.inliner_plugin import with_plugin_features
from compiler_opt.llvm.ir2vec import check_same
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.pass_options.sets import OptionSets, describe_sets
from compiler_opt.policies.model_card import CHECKSUM_FACT
from compiler_opt.policies.policy import Policy
from compiler_opt.problem import AnyProblem
from compiler_opt.rl.unfinished_policy import unfinished_warning
from compiler_opt.spaces.binary import Binary
from compiler_opt.spaces.learned_policy import LearnedPolicy
from compiler_opt.tools import entry_point, gin_settings, shared_flags
from compiler_opt.tools.cost_model_flags import CostModelFlags
from compiler_opt.tools.entry_point import echo
from compiler_opt.tools.options_flag import OptionsFlag
from compiler_opt.tools.progress import rollout_bar
from compiler_opt.tools.shared_flags import NONE

_CORPUS = shared_flags.CorpusFlags(projects=True)
_POLICY_PATH = shared_flags.policy(
    "policy_path",
    "The policy; by default the one that ships and suits problem and compiler. `none` evaluates options alone. "
    "`embedded` is the model that is built into the compiler (write `./embedded` for a folder of that name).",
)
_OPTIONS = OptionsFlag(
    "Options of LLVM's passes to evaluate, alone and with the policy: {forms}. Modules get those of their level and "
    "architecture. By default auto for size, else none.",
    default=None,
    has_trials=True,
)
_OUTPUT_DIR = shared_flags.required_path("output_dir", "Folder for the results.")
_COMPILE_TASK = shared_flags.TaskFlag()
_COST_MODEL = CostModelFlags()
_CLANG_PATH = shared_flags.clang_path()
_NUM_WORKERS = shared_flags.num_workers()
_BASELINES = flags.DEFINE_list(
    "baselines",
    None,
    f"Comma-separated baselines to measure besides the policy; by default, if there is one, all that the problem has. "
    "For inlining: "
    f"{', '.join(Binary().baselines())}; for eviction: "
    f"{', '.join(problems.load('regalloc_eviction').decision.action_space.baselines())}.",
)
shared_flags.json()
_MARGIN = shared_flags.margin("Evaluate")
_SEED = shared_flags.seed("the random baseline and the bootstrap")
_TIMEOUT_S = flags.DEFINE_float(
    "compile_timeout_s", None, "Time limit of one compilation, in seconds; rollout.timeout_s in gin.", lower_bound=0.1
)
_TRAINING_LOG = shared_flags.path("training_log", "Folder or history.jsonl of a training, to plot it.")
_KEEP_OBJECTS = shared_flags.path("keep_objects", "Folder to keep all objects in; by default they are deleted.")
_EXPLICIT_TEMPS = shared_flags.ExplicitTempsFlags()
_GIN = gin_settings.GinFlags(
    "Gin files; settings of rollout, inlining and problem_config (by default the policy's) apply here."
)


@entry_point.command
def entry() -> None:
    settings = _GIN.read(gin_settings.of_compilations(), unused=["network", "vocabulary"])
    corpus = _CORPUS.selected(_CORPUS.load())
    problem = _COMPILE_TASK.load(settings["command"].compile_task)
    embeddings = settings["inlining"].vocabulary(problem.decision.advisor)
    clang_path = shared_flags.clang(_CLANG_PATH, settings["command"].clang_path)
    toolchain = shared_flags.compiler(clang_path, corpus, embeddings=embeddings)
    policy = _POLICY_PATH.value or pretrained.default(problem, [toolchain], "--policy_path")
    learned = None
    if policy not in (EmbeddedPolicy.name, NONE):
        folder = pretrained.folder(policy)
        learned = problem.decision.load_policy(folder, margin=_MARGIN.value)
        if warning := unfinished_warning(folder):
            entry_point.warn(warning)
    elif _MARGIN.value is not None:
        whose = "the model that is built into the compiler has none" if policy != NONE else "there is no policy"
        raise ConfigError(f"--margin: {whose}; leave it out")
    corpus = shared_flags.configured(corpus, settings["problem_config"], learned, policy)
    named = ([] if policy == NONE else None) if _BASELINES.value is None else list(filter(None, _BASELINES.value))
    others = baselines(problem, named)
    history = load_history(_TRAINING_LOG.value) if _TRAINING_LOG.value else None
    made_by = learned.weights.metadata.get("toolchain") if learned is not None else None
    check_same(made_by, embeddings, f"--policy_path={policy}")
    toolchain = settings["inlining"].extend(toolchain, problem.decision.advisor)
    evaluated: Policy | None = learned
    if policy == EmbeddedPolicy.name:
        check_embedded_model(toolchain, problem.decision)
        evaluated = EmbeddedPolicy()
    elif learned is not None:
        learned.check(toolchain.require(problem.decision.advisor.problem).feature_names)
        # Builds the plugin, if the policy needs it, before anything is compiled.
        toolchain = with_plugin_features(toolchain, learned.plugin_features)
    options = _options(corpus, problem, toolchain)
    if evaluated is None and options is None:
        raise ConfigError("--policy_path=none: expected options to evaluate, found none; give --options, or a policy")
    problem = _COST_MODEL.with_cost_model(problem, toolchain)
    output_dir = _OUTPUT_DIR.value
    keep_objects = _KEEP_OBJECTS.value
    folders = {output_dir.resolve(): "--output_dir"}
    if keep_objects is not None:
        folders.setdefault(keep_objects.resolve(), "--keep_objects")

    with contextlib.ExitStack() as stack:
        for directory, flag in folders.items():
            stack.enter_context(exclusive_directory(directory, flag))
        advance = stack.enter_context(rollout_bar(num_rollouts(corpus, evaluated, others, options)))
        evaluation = evaluate(
            corpus,
            evaluated,
            others,
            problem=problem,
            toolchain=toolchain,
            options=options,
            settings=EvaluationSettings(
                num_workers=_NUM_WORKERS.value,
                seed=_SEED.value,
                rollout=gin_settings.override(settings["rollout"], timeout_s=_TIMEOUT_S.value),
                keep_objects=keep_objects,
                compilation_files=_EXPLICIT_TEMPS.compilation_files(),
                link_shared=problem.objective.is_size,
            ),
            provenance=_provenance(corpus, learned, toolchain, policy, options),
            on_rollout=advance,
        )
        page = report.write(evaluation, output_dir, history)
    if evaluated and not any(module.output(evaluation.policy).num_decisions for module in evaluation.modules):
        shared_flags.warn_undecided(corpus, toolchain)
    echo(report.terminal_table(evaluation))
    print(f"report: {page}")
    entry_point.print_json(output_dir / SUMMARY_FILE)


def _options(corpus: Corpus, problem: AnyProblem, toolchain: Toolchain) -> OptionSets | None:
    """The options of `--options` that the compiler can take; None if they change no module of the corpus.

    Raises:
      ConfigError: the file cannot be read.
    """
    options = _OPTIONS.usable(toolchain, AUTO if problem.objective.is_size else NONE)
    applied = (options.apply(module, toolchain) for module in corpus.modules)
    if any(module.pass_options or module.function_options is not None for module in applied):
        return options
    if _OPTIONS.value not in (None, NONE):
        where = f"--options={_OPTIONS.value}: has none that this compiler can take for {_counted(_levels(corpus))}"
        entry_point.warn(f"{where}; evaluates none")
    return None


def _levels(corpus: Corpus) -> dict[str, int]:
    return dict(Counter(optimization_level(module.options()) for module in corpus.modules).most_common())


def _provenance(
    corpus: Corpus, policy: LearnedPolicy | None, toolchain: Toolchain, policy_name: str, options: OptionSets | None
) -> dict[str, str]:
    """Facts for the report about the conditions of the measurement."""
    facts = {
        "Compiler": toolchain.version_text,
        "Target": _counted(corpus.targets(toolchain.target)),
        "Linker": f"lld {toolchain.version[0]}",
        "Optimisation": _counted(_levels(corpus)),
        "Corpus": f"{corpus.root.resolve().name}: {', '.join(corpus.projects())}",
    }
    if options is not None:
        facts["Options"] = describe_sets(options.apply(module, toolchain) for module in corpus.modules)
    facts["Policy"] = "the model that is built into the compiler" if policy is None else str(Path(policy_name))
    if policy_name == NONE:
        facts["Policy"] = "none"
    if corpus.problem_config:
        facts["Changed flags"] = "; ".join(
            f"{what.removeprefix('flags_to_')} {fact_text(values)}"
            for what, values in corpus.problem_config.to_json()["problem_config"].items()
            if values
        )
    if policy is None:
        return facts
    facts[CHECKSUM_FACT] = policy.weights.checksum()
    if policy.weights.margin:
        facts["Policy: margin"] = f"{policy.weights.margin:g}"
    return facts | policy_facts(policy.weights)


def _counted(modules: Mapping[str, int]) -> str:
    """`-Oz (302 modules), -O2 (3 modules)`."""
    return ", ".join(f"{what} ({count} modules)" for what, count in modules.items())


if __name__ == "__main__":
    entry()
