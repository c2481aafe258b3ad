"""Searches for the inlining decisions that make each project of a corpus small, and writes them as decision files.

    python -m compiler_opt.tools.search --data_path=CORPUS --output_dir=OUTPUT

A project's modules are taken to be linked together, in the corpus's order. `OUTPUT/PROJECT/decisions.json` is what
`compiler_opt.tools.deploy --decisions` takes; `OUTPUT/history.jsonl` says what all projects have won after how many
compiles. After an interruption, the same command continues; with a larger budget, it searches on. docs/search.md
explains how it works.
"""

import contextlib
import json
import math
import time

from absl import flags

from compiler_opt import pretrained
from compiler_opt.collect.rollout import DefaultPolicy
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.evaluation.history import HISTORY_FILE
from compiler_opt.files import check_folder_writable, exclusive_directory, write_text
from compiler_opt.llvm.inliner_plugin import inliner_plugin, with_plugin_features
from compiler_opt.llvm.toolchain import probe
from compiler_opt.policies.policy import Policy
from compiler_opt.problems.inlining import PROBLEM
from compiler_opt.search import report
from compiler_opt.search.program_search import search
from compiler_opt.search.progress_bar import search_bar
from compiler_opt.search.search import SearchSettings
from compiler_opt.tools import entry_point, shared_flags
from compiler_opt.tools.entry_point import echo

_CORPUS = shared_flags.CorpusFlags()
_POLICY_PATH = shared_flags.policy(
    "policy_path", "The policy to start from, and to decide elsewhere; by default LLVM's heuristic."
)
_OUTPUT_DIR = shared_flags.required_path("output_dir", "Folder for the results, with a folder for each project.")
_PROJECTS = flags.DEFINE_list("projects", [], "Comma-separated projects of the corpus to search; by default all.")
_BUDGET = flags.DEFINE_float("budget", 100, "Compiles a module, on the average of a project's modules.", 3)
flags.register_validator("budget", math.isfinite, "expected a finite number")
_MAX_MINUTES = flags.DEFINE_float(
    "max_minutes", None, "Wall-clock limit of the searches of all projects together, in minutes.", 0.1
)
_SEED = shared_flags.seed("the random moves")
_CLANG_PATH = shared_flags.clang_path()
_NUM_WORKERS = shared_flags.num_workers()


@entry_point.command
def entry() -> None:
    corpus = _CORPUS.filtered(_CORPUS.load())
    if _PROJECTS.value:
        corpus = corpus.select(projects=_PROJECTS.value)
    policy: Policy = DefaultPolicy(PROBLEM)
    learned = None
    if _POLICY_PATH.value is not None:
        policy = learned = PROBLEM.decision.load_policy(pretrained.folder(_POLICY_PATH.value))
    toolchain = probe(_CLANG_PATH.value)
    corpus.check_compiler(toolchain.version, toolchain.clang)
    if learned is not None:
        learned.check(toolchain.require(PROBLEM.decision.advisor.problem).feature_names)
        toolchain = with_plugin_features(toolchain, learned.plugin_features)
    check_folder_writable(_OUTPUT_DIR.value)
    inliner_plugin(toolchain)
    num_workers = entry_point.num_workers(_NUM_WORKERS.value)

    results = []
    deadline_s = None if _MAX_MINUTES.value is None else time.monotonic() + 60 * _MAX_MINUTES.value
    with contextlib.ExitStack() as stack:
        stack.enter_context(exclusive_directory(_OUTPUT_DIR.value, "--output_dir"))
        bar = stack.enter_context(search_bar(round(_BUDGET.value * len(corpus.modules))))
        pool = stack.enter_context(WorkerPool(toolchain, PROBLEM, num_workers))
        num_left = len(corpus.modules)
        for name, modules in corpus.projects().items():
            bar.begin(name)
            minutes = None
            if deadline_s is not None:
                minutes = max(0.0, (deadline_s - time.monotonic()) / 60) * len(modules) / num_left
            num_left -= len(modules)
            folder = _OUTPUT_DIR.value / name
            result = search(
                modules,
                policy,
                pool,
                PROBLEM,
                toolchain,
                SearchSettings(_BUDGET.value, minutes, _SEED.value, min_modules=num_workers),
                name=name,
                folder=folder,
                on_progress=bar.show,
            )
            report.write(result, folder)
            results.append(result)
        entries = report.history(results)
        write_text(_OUTPUT_DIR.value / HISTORY_FILE, "".join(json.dumps(entry) + "\n" for entry in entries))
    if not any(each.num_decisions for each in results):
        shared_flags.warn_undecided(corpus, toolchain)
    for line in [*report.terminal_table(results).lines(), *(line for each in results for line in report.remarks(each))]:
        echo(line)
    for result in results:
        echo(f"{result.name}: {_OUTPUT_DIR.value / result.name / report.DECISIONS_FILE}")


if __name__ == "__main__":
    entry()
