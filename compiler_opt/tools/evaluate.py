"""Measures a saved policy against the compiler's default, on any corpus.

Compiles every module with the default, with the policy and with the baselines, links each project, and writes
`modules.csv`, `projects.csv`, `summary.json` and `report.html` into the output folder:

    python -m compiler_opt.tools.evaluate --data_path=CORPUS --policy_path=POLICY --output_path=OUTPUT
"""

import contextlib
import dataclasses
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from absl import flags
from tqdm import tqdm

from compiler_opt.collect.backends.embedded import EmbeddedPolicy, check_embedded_model
from compiler_opt.collect.rollout import Rollout
from compiler_opt.corpus.command_lines.problem_config import ProblemConfig
from compiler_opt.corpus.description import Corpus
from compiler_opt.errors import ConfigError
from compiler_opt.evaluation import output
from compiler_opt.evaluation.evaluate import (
    EvaluationSettings,
    baselines,
    evaluate,
    num_rollouts,
)
from compiler_opt.evaluation.history import load_history
from compiler_opt.files import check_folder_writable, exclusive_directory
from compiler_opt.llvm.ir2vec import check_same
from compiler_opt.llvm.toolchain import Toolchain, probe
from compiler_opt.policies.model_card import CHECKSUM_FACT
from compiler_opt.problems import problem as problems
from compiler_opt.spaces.binary import Binary
from compiler_opt.spaces.learned_policy import LearnedPolicy
from compiler_opt.tools import corpus_flags, entry_point, gin_classes, gin_settings
from compiler_opt.tools.printing import echo

_DATA_PATH = flags.DEFINE_string(
    "data_path", None, f"The corpus to measure on: {corpus_flags.DATA_PATH}.", required=True
)
_TRUST_CORPUS = flags.DEFINE_bool("trust_corpus", False, corpus_flags.TRUST_CORPUS)
_MODULE_FILTER = flags.DEFINE_string("module_filter", None, corpus_flags.MODULE_FILTER)
_POLICY_PATH = flags.DEFINE_string(
    "policy_path",
    None,
    "Folder of the saved policy; `embedded` for the model that is built into the compiler (a folder of that name is "
    "`./embedded`).",
    required=True,
)
_OUTPUT_PATH = flags.DEFINE_string("output_path", None, "Folder for the results; made when missing.", required=True)
_COMPILE_TASK = flags.DEFINE_string("compile_task", "inlining", "What the policy decides.")
_CLANG_PATH = flags.DEFINE_string("clang_path", None, "The compiler; by default the newest clang found.")
_NUM_WORKERS = flags.DEFINE_integer(
    "num_workers", None, "Compilations at a time; by default one per CPU.", lower_bound=1
)
_BASELINES = flags.DEFINE_list(
    "baselines",
    None,
    f"What to measure beside the policy, of {', '.join(Binary().baselines())}; by default all that make sense.",
)
_PROJECTS = flags.DEFINE_list("projects", [], "Measure only these projects of the corpus.")
_SEED = flags.DEFINE_integer("seed", 0, "Of the random baseline and of the bootstrap.", lower_bound=0)
_TIMEOUT_S = flags.DEFINE_float(
    "compile_timeout_s", None, "Seconds that one compilation may take; `rollout.timeout_s` in gin.", lower_bound=0.1
)
_TRAINING_LOG = flags.DEFINE_string("training_log", None, "The training's folder or history.jsonl, for its curve.")
_KEEP_OBJECTS = flags.DEFINE_string("keep_objects", None, "Folder to keep all objects in; by default they are removed.")
_GIN_FILES = flags.DEFINE_multi_string(
    "gin_files",
    [],
    "Gin files; `rollout.timeout_s` and its like count here, and `problem_config.flags_to_add` and its like, which are "
    "otherwise those that the policy was trained with.",
)
_GIN_BINDINGS = flags.DEFINE_multi_string("gin_bindings", [], "Gin bindings, over the files.")


@entry_point.command
def entry() -> None:
    settings = _settings()
    corpus = corpus_flags.load(_DATA_PATH.value, trusted=_TRUST_CORPUS.value, module_filter=_MODULE_FILTER.value)
    if _PROJECTS.value:
        corpus = corpus.select(projects=_PROJECTS.value)
    problem = problems.load(_COMPILE_TASK.value)
    learned = None if _POLICY_PATH.value == EmbeddedPolicy.name else problem.load_policy(Path(_POLICY_PATH.value))
    corpus = _configured(corpus, settings["problem_config"], learned)
    others = baselines(problem, None if _BASELINES.value is None else [name for name in _BASELINES.value if name])
    history = load_history(Path(_TRAINING_LOG.value)) if _TRAINING_LOG.value else None
    embeddings = settings["inlining"].vocabulary(problem.advisor)
    made_by = learned.weights.metadata.get("toolchain") if learned is not None else None
    check_same(made_by, embeddings, f"--policy_path={_POLICY_PATH.value}")
    toolchain = probe(_CLANG_PATH.value, embeddings)
    corpus.check_compiler(toolchain.version, toolchain.clang)
    if learned is None:
        check_embedded_model(toolchain, problem)
    else:
        learned.check([feature.name for feature in toolchain.require(problem.advisor.problem).features])
    output_path = Path(_OUTPUT_PATH.value)
    keep_objects = Path(_KEEP_OBJECTS.value) if _KEEP_OBJECTS.value else None
    folders = {output_path.resolve(): "--output_path"}
    if keep_objects is not None:
        folders.setdefault(keep_objects.resolve(), "--keep_objects")
    for directory in (output_path, *([keep_objects] if keep_objects else [])):
        check_folder_writable(directory)

    interval_s = 0.2 if sys.stderr.isatty() else 10  # A log keeps every state of the bar.
    with contextlib.ExitStack() as stack:
        for directory, flag in folders.items():
            stack.enter_context(exclusive_directory(directory, flag))
        total = num_rollouts(corpus, others)
        bar = stack.enter_context(tqdm(total=total, unit="compile", smoothing=0.05, mininterval=interval_s))
        failures = 0

        def advance(rollout: Rollout) -> None:
            nonlocal failures
            bar.update()
            if rollout.failure is not None:
                failures += 1
                bar.set_postfix(failed=failures)

        evaluation = evaluate(
            corpus,
            learned if learned is not None else EmbeddedPolicy(),
            others,
            problem=problem,
            toolchain=toolchain,
            settings=EvaluationSettings(
                num_workers=_NUM_WORKERS.value,
                seed=_SEED.value,
                rollout=settings["rollout"],
                keep_objects=keep_objects,
            ),
            provenance=provenance(corpus, learned, toolchain),
            on_rollout=advance,
        )
        report = output.write(evaluation, output_path, history)
    echo(output.terminal_table(evaluation))
    print(f"report: {report}")


def _settings() -> dict[str, Any]:
    """What gin and flags echo about compilations; gin may speak of networks too, which is none of our business."""
    settings = gin_settings.read(gin_classes.of_compilations(), _GIN_FILES.value, _GIN_BINDINGS.value)
    if _TIMEOUT_S.value is not None:
        settings["rollout"] = dataclasses.replace(settings["rollout"], timeout_s=_TIMEOUT_S.value)
    return settings


def _configured(corpus: Corpus, given: ProblemConfig, policy: LearnedPolicy | None) -> Corpus:
    """The corpus with the flags that gin gives or, when it gives none, with those that the policy was trained with."""
    if given or policy is None:
        return corpus.configured(given) if given else corpus
    recorded = ProblemConfig.from_json(policy.weights.metadata)
    try:
        # A policy may be anybody's, also where the corpus is one's own.
        recorded.check()
    except ConfigError as error:
        raise ConfigError(
            f"--policy_path={_POLICY_PATH.value}: was trained with flags that cannot be used: {error}"
        ) from None
    return corpus.configured(recorded) if recorded else corpus


def provenance(corpus: Corpus, policy: LearnedPolicy | None, toolchain: Toolchain) -> dict[str, str]:
    """What the report says about how its numbers came to be; without a policy the compiler's own model was measured."""
    facts = {
        "Compiler": toolchain.version_text,
        "Target": _counted(corpus.targets(toolchain.target)),
        "Linker": f"lld {toolchain.version[0]}",
        "Optimisation": _optimisation(corpus),
        "Corpus": f"{corpus.root.resolve().name}: {', '.join(corpus.projects())}",
        "Policy": str(Path(_POLICY_PATH.value)) if policy is not None else "the model that is built into the compiler",
    }
    if corpus.problem_config:
        facts["Changed flags"] = "; ".join(
            f"{what.removeprefix('flags_to_')} {values}"
            for what, values in corpus.problem_config.to_json()["problem_config"].items()
            if values
        )
    if policy is None:
        return facts
    facts[CHECKSUM_FACT] = policy.weights.checksum()
    for key, value in policy.weights.metadata.items():
        # What a toolchain or the like says of itself, without the braces.
        text = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)
        facts[f"Policy: {key.replace('_', ' ')}"] = text
    return facts


def _optimisation(corpus: Corpus) -> str:
    """The `-O` levels that the modules were built with, most frequent first: `-Oz (302 modules)`."""
    levels: Counter[str] = Counter()
    for module in corpus.modules:
        options = module.options()
        levels[next((option for option in reversed(options) if option.startswith("-O")), "-O0")] += 1
    return _counted(dict(levels.most_common()))


def _counted(modules: Mapping[str, int]) -> str:
    """`-Oz (302 modules)` of each."""
    return ", ".join(f"{what} ({count} modules)" for what, count in modules.items())


if __name__ == "__main__":
    entry()
