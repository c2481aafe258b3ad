"""Compares algorithms: trains with each on the same corpus, with the same budget of compiles and several seeds.

    compiler_opt compare_trainers --data_path=$CORPUS --validation_path=$VALIDATION \
        --gin_files=gin_configs/inlining/ppo_nn_agent.gin --gin_files=gin_configs/inlining/es_nn_agent.gin \
        --warmstart_policy_dir=$WARMSTART --compiles=4000 --seeds=1,2,3 --output_dir=$OUTPUT

Each gin file is an algorithm, whose name is that of the file. Every run is in `OUTPUT/ALGORITHM/seed-SEED`, with a log
beside it. `OUTPUT/comparison.html` has curves, the end of each run, and two tables, in which no run is left out; the
same is in `comparison.md`, `curves.svg` and `*.csv`, and with --document in a Markdown page. They are written after
each run.

Interrupted, the same command resumes: complete runs stay as they are, others continue, failed ones are tried again.
More seeds, or gin files, add runs. Of complete runs only `seed-SEED.json` and `seed-SEED/history.jsonl` are needed,
also on another machine.

--search adds a search of the validation projects themselves with the same number of compiles: no policy, but a mark of
what is possible.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import flags

from compiler_opt import pretrained
from compiler_opt.corpus.command_lines.problem_config import ProblemConfig
from compiler_opt.corpus.description import Corpus
from compiler_opt.decisions.inlining import PROBLEM as INLINING_FOR_SIZE
from compiler_opt.errors import ConfigError, told_if_interrupted
from compiler_opt.evaluation import comparison as results
from compiler_opt.evaluation.comparison import COMPLETE, Comparison, RunResult
from compiler_opt.files import exclusive_directory
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.problem import AnyProblem
from compiler_opt.report.formatting import change_text, duration_text
from compiler_opt.rl import algorithms, pipeline, vocabularies
from compiler_opt.rl.comparison import PlannedRun, by_content, check, execute, result
from compiler_opt.rl.config import TrainingConfig
from compiler_opt.rl.training_run import describe_corpus, describe_settings
from compiler_opt.tools import entry_point, gin_settings, shared_flags
from compiler_opt.tools.entry_point import echo

_OUTPUT_DIR = shared_flags.required_path("output_dir", "Folder for runs and results.")
_CORPUS = shared_flags.CorpusFlags()
_VALIDATION_PATH = flags.DEFINE_string(
    "validation_path", None, "The corpus of other projects by which the runs are compared.", required=True
)
_GIN = gin_settings.GinFlags("Gin files, each of which is an algorithm; to be given several times.")
_SEEDS = flags.DEFINE_list("seeds", ["1", "2", "3"], "Comma-separated seeds; each algorithm is trained with each.")
_COMPILES = flags.DEFINE_integer("compiles", 4000, "Compilations of each training.", 1)
_VALIDATE_EVERY = flags.DEFINE_integer("validate_every", 500, "Compilations from one validation to the next.", 1)
_SEARCH = flags.DEFINE_bool(
    "search",
    False,
    "Also searches the projects of the validation corpus with as many compiles, for inlining decisions that fit these "
    "projects only.",
)
_WARMSTART_POLICY_DIR = shared_flags.policy(
    "warmstart_policy_dir", "The policy that algorithms which start from a clone of the default start from."
)
_VOCAB_PATH = shared_flags.path(
    "vocab_path", "Vocabulary of runs without a policy to start from; by default the one that ships for the problem."
)
_DOCUMENT = shared_flags.path(
    "document", f"A Markdown page; the result replaces what is between its lines '{results.BEGIN}' and '{results.END}'."
)
_MINUTES = flags.DEFINE_float("minutes", 2880.0, "Minutes after which a run counts as failed.", 0.01)
_HOURS = flags.DEFINE_float("max_hours", None, "The same in hours, as earlier versions had it.", 0.001)
_COMPILE_TASK = shared_flags.TaskFlag()
_CLANG_PATH = shared_flags.clang_path()
shared_flags.json()
_NUM_WORKERS = shared_flags.num_workers()

_SETTINGS_WITH_PATHS = {"inlining": ["ir2vec_vocabulary"], "bc_max": ["policies", "stores"], "flips": ["stores"]}
_COMPILES_TO_CONFIRM = 2
"""Of each module at the end of a search, beside its budget: under the default, and with the decisions."""
_LEAST_BUDGET = 3
"""Of a search, in compiles a module."""


@entry_point.command
def entry() -> int:
    output_dir: Path = _OUTPUT_DIR.value
    if _DOCUMENT.value is not None:
        results.check_document(_DOCUMENT.value)
    seeds, files, timeout_s = _seeds(), _names(_GIN.files.value), _timeout_s()
    settings = {name: _settings(file) for name, file in files.items()}
    problem = _problem(settings)
    first = next(iter(settings.values()))
    changed_flags: ProblemConfig = first["problem_config"]
    corpora = [
        _CORPUS.selected(_CORPUS.load(changed_flags)),
        _CORPUS.load_other(_VALIDATION_PATH.value, changed_flags),
    ]
    toolchain = shared_flags.compiler(shared_flags.clang(_CLANG_PATH, first["command"].clang_path), *corpora)
    pipeline.check_apart(*corpora)
    runs = [
        PlannedRun(name, seed, output_dir, _flags(file, toolchain, problem, settings[name]), described)
        for name, file in files.items()
        for seed in seeds
        for described in [_described(settings[name], problem, corpora, toolchain)]
    ]
    if _SEARCH.value:
        runs += _searches(seeds, output_dir, problem, changed_flags, corpora[1], toolchain)
    with exclusive_directory(output_dir, "--output_dir"):
        check(runs)
        # The rows of runs that are not asked for now stay out.
        found = {(run.algorithm, run.seed): result(run) for run in runs}
        facts = _facts(problem, corpora, toolchain)
        measure = "linked text" if problem.objective.is_size else "score"
        for number, run in enumerate(runs, 1):
            if found[run.algorithm, run.seed].state != COMPLETE:
                entry_point.say(f"run {number} of {len(runs)}: {run.algorithm}, seed {run.seed}; its log is {run.log}")
            with told_if_interrupted(lambda: _how_far(list(found.values()))):
                found[run.algorithm, run.seed] = done = execute(run, timeout_s)
            entry_point.say(_line(done))
            compared = Comparison(list(found.values()), measure, _COMPILES.value, facts)
            page = results.write(compared, output_dir, _DOCUMENT.value)
    echo(str(compared))
    failed = [run for run in compared.runs if run.state != COMPLETE]
    for line in entry_point.first_of("failed", [f"{run.algorithm}, seed {run.seed}: {run.reason}" for run in failed]):
        echo(line)
    print(f"report: {page}")
    entry_point.print_json(compared.to_json())
    return 1 if failed else 0


def _how_far(runs: Sequence[RunResult]) -> str:
    """How far an interrupted comparison was, and how to resume it."""
    complete = sum(run.state == COMPLETE for run in runs)
    return f"{complete} of {len(runs)} runs complete; the same command resumes"


def _timeout_s() -> float:
    """The limit of a run. Raises ConfigError if it is given twice."""
    if _HOURS.value is None:
        return float(60 * _MINUTES.value)
    if _MINUTES.present:
        raise ConfigError("--max_hours: is the earlier spelling of --minutes; leave it out")
    entry_point.note(f"--max_hours={_HOURS.value:g} is --minutes={60 * _HOURS.value:g}")
    return float(3600 * _HOURS.value)


def _seeds() -> list[int]:
    seeds = [int(text) if text.isdecimal() else -1 for text in _SEEDS.value]
    if not seeds or min(seeds) < 0 or len(set(seeds)) < len(seeds):
        raise ConfigError(f"--seeds: expected different numbers such as 1,2,3, found {','.join(_SEEDS.value)}")
    return seeds


def _names(files: list[str]) -> dict[str, str]:
    """Gin files by the names of their algorithms."""
    found: dict[str, str] = {}
    for file in files:
        name = Path(file).stem.removesuffix("_nn_agent")
        if name in found:
            raise ConfigError(f"--gin_files={file}: expected files of different names, found {name} twice; rename one")
        found[name] = file
    if not found:
        raise ConfigError("--gin_files: expected at least one, such as gin_configs/inlining/ppo_nn_agent.gin")
    return found


def _bindings() -> list[str]:
    """Those of the user, and those that make the runs comparable."""
    return [
        *_GIN.bindings.value,
        "train_eval.max_minutes = 0",
        f"train_eval.max_compiles = {_COMPILES.value}",
        # Not reached, since most iterations compile more than once.
        f"train_eval.num_iterations = {_COMPILES.value}",
        f"train_eval.validation_compiles = {_VALIDATE_EVERY.value}",
    ]


def _settings(file: str) -> dict[str, Any]:
    """The settings of a training, with the policy that it starts from, by their names in gin."""
    settings = gin_settings.read(gin_settings.of_training(), [file], _bindings(), ["vocabulary"])
    config: TrainingConfig = settings["train_eval"]
    if _WARMSTART_POLICY_DIR.value is not None and algorithms.load(config.algorithm).clones_default:
        config = dataclasses.replace(config, warmstart_policy_dir=_WARMSTART_POLICY_DIR.value)
    return {**settings, "train_eval": config}


def _problem(settings: Mapping[str, Mapping[str, Any]]) -> AnyProblem:
    """The problem of all algorithms; raises ConfigError if they differ in it, in the compiler or in changed flags."""
    (first, conditions), *others = settings.items()
    problem = _COMPILE_TASK.load(conditions["command"].compile_task)
    for name, each in others:
        for shared in ("command", "problem_config"):
            if each[shared] != conditions[shared]:
                raise ConfigError(
                    f"--gin_files: the settings {shared} of {first} and {name} differ; compared runs need the same"
                )
    return problem


def _vocabulary(problem: AnyProblem) -> Path:
    vocabulary = _VOCAB_PATH.value or vocabularies.shipped_vocabulary(problem.decision)
    if vocabulary is None:
        raise ConfigError("--vocab_path is needed for this problem; make one with compiler_opt generate_vocab")
    return vocabulary


def _flags(file: str, toolchain: Toolchain, problem: AnyProblem, settings: Mapping[str, Any]) -> list[str]:
    """Of train_locally."""
    config: TrainingConfig = settings["train_eval"]
    start = (
        f"--warmstart_policy_dir={config.warmstart_policy_dir}"
        if config.warmstart_policy_dir
        else f"--vocab_path={_vocabulary(problem)}"
    )
    optional = {
        "num_workers": _NUM_WORKERS.value,
        "module_filter": _CORPUS.pattern,
        "compile_task": _COMPILE_TASK.given,
    }
    return [
        f"--gin_files={file}",
        *(f"--gin_bindings={binding}" for binding in _bindings()),
        f"--data_path={_CORPUS.data_path.value}",
        f"--validation_path={_VALIDATION_PATH.value}",
        f"--clang_path={toolchain.clang}",
        f"--trust_corpus={_CORPUS.is_trusted}".lower(),
        start,
        *(f"--{name}={value}" for name, value in optional.items() if value is not None),
    ]


def _searches(
    seeds: list[int],
    output_dir: Path,
    problem: AnyProblem,
    changed_flags: ProblemConfig,
    corpus: Corpus,
    toolchain: Toolchain,
) -> list[PlannedRun]:
    """Searches of the corpus's projects with the budget of a training.

    Raises:
      ConfigError: a search cannot do this.
    """
    if problem.name != INLINING_FOR_SIZE.name:
        raise ConfigError(f"--search: expected {INLINING_FOR_SIZE.name}, found {problem.name}; leave it out")
    if changed_flags:
        raise ConfigError("--search: expected the corpus's own flags, found a problem_config in gin; leave one out")
    num_modules = len(corpus.modules)
    budget = _COMPILES.value / num_modules - _COMPILES_TO_CONFIRM
    if budget < _LEAST_BUDGET:
        raise ConfigError(
            f"--compiles: with --search expected at least {(_LEAST_BUDGET + _COMPILES_TO_CONFIRM) * num_modules}, "
            f"{_LEAST_BUDGET + _COMPILES_TO_CONFIRM} for each module of --validation_path, found {_COMPILES.value}; "
            "give more, or leave --search out"
        )
    given = [
        f"--data_path={_VALIDATION_PATH.value}",
        f"--budget={budget!r}",
        f"--clang_path={toolchain.clang}",
        f"--trust_corpus={_CORPUS.is_trusted}".lower(),
        *([f"--num_workers={_NUM_WORKERS.value}"] if _NUM_WORKERS.value else []),
    ]
    described = {
        "compile_task": problem.name,
        "compiler": toolchain.version_text,
        "validation corpus": describe_corpus(corpus),
        "compiles": str(_COMPILES.value),
    }
    return [
        PlannedRun(results.SEARCH, seed, output_dir, given, described, "compiler_opt.tools.search") for seed in seeds
    ]


def _described(
    settings: Mapping[str, Any], problem: AnyProblem, corpora: list[Corpus], toolchain: Toolchain
) -> dict[str, str]:
    """Everything that the result of a run depends on, besides its seed; the same on any machine."""
    config: TrainingConfig = settings["train_eval"]
    used = algorithms.load(config.algorithm).configs
    names = ["train_eval", "network", "inlining", *used]
    found = describe_settings(problem, corpora[0], toolchain, {name: settings[name] for name in names})
    # Each run has its own seed; the number of iterations follows from that of compiles; the policy follows below.
    del found["train_eval.seed"], found["train_eval.num_iterations"], found["train_eval.warmstart_policy_dir"]
    for name, fields in _SETTINGS_WITH_PATHS.items():
        for field in fields if name in names else ():
            value = getattr(settings[name], field)
            found[f"{name}.{field}"] = by_content(value) if isinstance(value, str) else repr([*map(by_content, value)])
    found["validation corpus"] = describe_corpus(corpora[1])
    if config.warmstart_policy_dir:
        weights = NetworkWeights.load(pretrained.folder(config.warmstart_policy_dir))
        found["the policy to start from"] = weights.checksum()
    else:
        found["vocabulary"] = by_content(str(_vocabulary(problem)))
    return found


def _facts(problem: AnyProblem, corpora: list[Corpus], toolchain: Toolchain) -> dict[str, str]:
    training, validation = (
        f"{corpus.root.resolve().name}, {len(corpus.modules):,} modules of {len(corpus.projects()):,} projects"
        for corpus in corpora
    )
    return {
        "Problem": problem.name,
        "Compiler": toolchain.version_text,
        "Training corpus": training,
        "Validation corpus": validation,
        "Budget": f"{_COMPILES.value:,} compiles for each run; validation every {_VALIDATE_EVERY.value:,}",
    }


def _line(run: RunResult) -> str:
    if run.state != COMPLETE:
        return f"{run.algorithm}, seed {run.seed}: {run.state} after {run.compiles:,} compiles: {run.reason}"
    return (
        f"{run.algorithm}, seed {run.seed}: {change_text(run.last)} after {run.compiles:,} compiles and "
        f"{duration_text(run.cpu_s)} of CPU time"
    )


if __name__ == "__main__":
    entry()
