"""Makes one program smaller, or faster: finds inlining decisions that suit it, and builds it with them.

    compiler_opt optimize --build_dir=BUILD --minutes=60 --output_dir=DIR

BUILD is a configured CMake build folder; nothing is written there. For other build systems, give a compilation database
and the commands that link the program:

    compiler_opt optimize --compile_commands=FILE --link_command='c++ -o app a.o b.o' --output_dir=DIR

From the policy that ships with compiler_opt, if there is one for the compiler, it searches for decisions that are
better still. Otherwise, or if another policy is to be the start, it first trains a policy on the program:

    compiler_opt optimize --build_dir=BUILD --warmstart_policy_dir=demo/training/policy --output_dir=DIR

If it is interrupted, the same command continues. DIR/deployed/bin has compiler drivers with the policy, for later
builds; DIR/report/report.html is the report. A nightly build can reuse the policy, and reports how well it still does:

    compiler_opt optimize --build_dir=BUILD --reuse_policy=DIR --output_dir=NIGHTLY

For speed, it searches where a benchmark spends its time, and keeps what makes that run fewer instructions; for size at
speed, it compiles for size what the benchmark seldom runs, as long as that is as fast as before:

    compiler_opt optimize --build_dir=BUILD --objective=speed --benchmark='./bench args' --output_dir=DIR
    compiler_opt optimize --build_dir=BUILD --objective=size-at-speed --benchmark='./bench args' --output_dir=DIR

Exit status: 0 for success, 2 for an error that the user can fix, 3 if the policy breaks one of the project's tests.
"""

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import flags

from compiler_opt import pretrained
from compiler_opt import problem as problems
from compiler_opt.deploy.pass_options import AUTO, NO_OPTIONS
from compiler_opt.errors import ConfigError, ToolchainError
from compiler_opt.evaluation.history import load_history
from compiler_opt.evaluation.report_parts import SUMMARY_FILE
from compiler_opt.files import check_folder_writable
from compiler_opt.llvm import plugin_features
from compiler_opt.llvm.advisors import INLINING
from compiler_opt.llvm.inlining_config import InliningConfig
from compiler_opt.llvm.toolchain import Toolchain, deployed_clang, probe
from compiler_opt.measure.attribution import METRICS
from compiler_opt.measure.benchmark import Benchmark
from compiler_opt.optimize import output
from compiler_opt.optimize.cmake_program import CMakeProgram
from compiler_opt.optimize.database_program import DatabaseProgram
from compiler_opt.optimize.optimization import OptimizeSettings
from compiler_opt.optimize.pipeline import ProgramObjective, optimize
from compiler_opt.optimize.program import OPTIMISATION
from compiler_opt.optimize.results import Result
from compiler_opt.optimize.size import ReusedPolicy, SmallText
from compiler_opt.optimize.size_at_speed import SmallAtSpeed
from compiler_opt.optimize.speed import FastBenchmark
from compiler_opt.pass_options.sets import OptionSets
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.rl import algorithms
from compiler_opt.rl.algorithm import AlgorithmConfigs
from compiler_opt.rl.pipeline import TRAINING, PipelineSettings
from compiler_opt.tools import entry_point, gin_files, gin_settings, shared_flags
from compiler_opt.tools.entry_point import echo
from compiler_opt.tools.options_flag import OptionsFlag
from compiler_opt.tools.shared_flags import NONE

_BUILD_DIR = shared_flags.path("build_dir", "The configured CMake build folder of the program.")
_COMPILE_COMMANDS = shared_flags.path("compile_commands", "A compilation database, instead of --build_dir.")
_LINK_COMMAND = flags.DEFINE_multi_string(
    "link_command", [], "With --compile_commands: a command that links or archives, in its folder."
)
_OUTPUT_DIR = shared_flags.required_path("output_dir", "Folder for all results.")
_MINUTES = flags.DEFINE_float("minutes", 60.0, "Minutes of training and search; the builds take additional time.", 0.0)
_SEARCH_MINUTES = flags.DEFINE_float(
    "search_minutes",
    None,
    "How many of the minutes to search, from the policy, for single decisions that the compilers replay; 0 for no "
    "search. By default all of them if a policy ships that suits the compiler and no other start is named, else half.",
    0.0,
)
_WARMSTART_POLICY_DIR = shared_flags.policy(
    "warmstart_policy_dir",
    "The policy to start from; by default train_eval.warmstart_policy_dir of gin, or else the policy that ships and "
    "suits the compiler, if there is one. `default` clones the compiler's own decisions.",
)
_REUSE_POLICY = shared_flags.policy(
    "reuse_policy", "The policy, or folder of an earlier optimisation with its policy, to reuse without training."
)
_OPTIONS = OptionsFlag(
    "Options of LLVM's passes, for the optimisation level of all files: {forms}. For size, the policy and the "
    "decisions are found and deployed with them; for speed, they are tried first, and kept if they pay. What the "
    "compiler cannot take is left out."
)
_TEST_COMMAND = flags.DEFINE_string(
    "test_command",
    None,
    "Command that runs the project's tests in the build folder; by default ctest, if it has tests.",
)
_VERDICT_MINUTES = flags.DEFINE_float(
    "verdict_minutes",
    60.0,
    "Minutes for finding out why tests fail: to run them again, and to find the modules that the policy breaks.",
    0.0,
)
_SIZE, _SPEED, _SIZE_AT_SPEED = "size", "speed", "size-at-speed"
_OBJECTIVE = flags.DEFINE_enum(
    "objective",
    _SIZE,
    [_SIZE, _SPEED, _SIZE_AT_SPEED],
    "What to make less: bytes, or what runs, or bytes while no more runs.",
)
_BENCHMARK = flags.DEFINE_multi_string(
    "benchmark",
    [],
    "A benchmark: a command that runs the program, in the build folder; it prints the same each time. May be repeated.",
)
_CHECK_BENCHMARK = flags.DEFINE_multi_string(
    "check_benchmark",
    [],
    "For size at speed: a command like those of --benchmark that must be as fast, too, but is not in the profile, such "
    "as the same with another input. May be repeated.",
)
_BENCHMARK_TIMEOUT_S = flags.DEFINE_float("benchmark_timeout_s", 60.0, "Limit of each run of it, in seconds.", 0.1)
_SPEED_METRIC = flags.DEFINE_enum(
    "speed_metric", "instructions", list(METRICS), "For speed: what to make less; cycles are callgrind's estimate."
)
_BYTES_PER_PERCENT = flags.DEFINE_float(
    "bytes_per_percent",
    None,
    "For speed: how many bytes of text one percent of the metric counts as; by default a twentieth of the text.",
    0.0,
)
_LEVEL = flags.DEFINE_enum(
    "level", "O2", ["O2", "O3"], "With a benchmark: the optimisation level; for speed at O2, O3 is tried, too."
)
_TRUST_CORPUS = flags.DEFINE_bool("trust_corpus", False, shared_flags.TRUST_CORPUS)
_CLANG_PATH = shared_flags.clang_path(
    "The clang to use; by default the build's own if it can run policies, otherwise the newest one installed."
)
_NUM_WORKERS = shared_flags.num_workers()
shared_flags.json()
_SEED = shared_flags.seed("all random choices; train_eval.seed in gin", None)
_GIN = gin_settings.GinFlags("Gin files with settings of the training, which override optimize.gin.")

_CLONE = "default"
_EXIT_TESTS_BROKEN = 3
_GIN_CONFIGS = gin_files.FOLDER / "inlining"


@entry_point.command
def entry() -> int:
    folder, minutes = _OUTPUT_DIR.value, _MINUTES.value
    check_folder_writable(folder)
    search_minutes = _SEARCH_MINUTES.value
    if search_minutes is not None and search_minutes > minutes:
        raise ConfigError(
            f"--search_minutes={search_minutes:g}: expected at most --minutes={minutes:g}, which include them; raise "
            "--minutes"
        )
    objective_name = _OBJECTIVE.value
    _check_flags(objective_name)
    learning, inlining, clang_path = _learning_settings()
    try:
        test_command = None if _TEST_COMMAND.value is None else tuple(shlex.split(_TEST_COMMAND.value))
    except ValueError as error:
        raise ConfigError(f"--test_command={_TEST_COMMAND.value}: cannot be split into words ({error})") from None
    jobs = entry_point.num_workers(_NUM_WORKERS.value)
    program: CMakeProgram | DatabaseProgram
    if _BUILD_DIR.value is not None and _COMPILE_COMMANDS.value is None:
        program = CMakeProgram(_BUILD_DIR.value, jobs)
    elif _COMPILE_COMMANDS.value is not None and _BUILD_DIR.value is None:
        program = DatabaseProgram(_COMPILE_COMMANDS.value, _LINK_COMMAND.value, jobs)
    else:
        raise ConfigError("expected --build_dir (a CMake build folder) or --compile_commands, found neither or both")
    toolchain = _toolchain(program.compilers(), clang_path)
    objective: ProgramObjective[Any, Any]
    if objective_name != _SIZE:
        level, search_minutes = f"-{_LEVEL.value}", minutes
        benchmark = Benchmark.of(_BENCHMARK.value, _BENCHMARK_TIMEOUT_S.value)
        if objective_name == _SPEED:
            objective = FastBenchmark(benchmark, _SPEED_METRIC.value, _BYTES_PER_PERCENT.value)
        else:
            others = _CHECK_BENCHMARK.value
            check = Benchmark.of(others, _BENCHMARK_TIMEOUT_S.value) if others else None
            objective = SmallAtSpeed(benchmark, check)
    else:
        level, toolchain = OPTIMISATION, inlining.extend(toolchain, INLINING)
        objective, search_minutes = _small_text(learning, toolchain)
    settings = OptimizeSettings(
        output=folder,
        search_minutes=search_minutes,
        seed=learning.training.seed,
        test_command=test_command,
        verdict_minutes=_VERDICT_MINUTES.value,
        level=level,
        pass_options=_pass_options(toolchain, level) if objective_name != _SIZE_AT_SPEED else NO_OPTIONS,
        jobs=jobs,
        trust_corpus=_TRUST_CORPUS.value,
    )
    result: Result = optimize(program, toolchain, settings, objective, entry_point.say)
    trained = folder / TRAINING
    history = load_history(trained) if _REUSE_POLICY.value is None and trained.is_dir() else None
    report = output.write(result, folder / "report", history)
    echo(output.terminal_table(result))
    c, cxx = result.compilers
    beside = Path(cxx).name if Path(cxx).parent == Path(c).parent else cxx
    echo(f"compilers: {c} and {beside}, for {shlex.join(result.options)}")
    echo(f"report: {report}")
    entry_point.print_json(report.with_name(SUMMARY_FILE))
    return _EXIT_TESTS_BROKEN if result.tests_broken else 0


def _check_flags(objective: str) -> None:
    """Raises ConfigError if a flag is given that the objective has no use for, or one is missing."""
    for_training = (_SEARCH_MINUTES, _WARMSTART_POLICY_DIR, _REUSE_POLICY)
    for_search = (_SPEED_METRIC, _BYTES_PER_PERCENT)
    for_benchmark = (_BENCHMARK, _BENCHMARK_TIMEOUT_S, _LEVEL)
    refused: Mapping[str, Sequence[flags.FlagHolder[Any] | OptionsFlag]] = {
        _SIZE: (*for_search, *for_benchmark, _CHECK_BENCHMARK),
        _SPEED: (*for_training, _CHECK_BENCHMARK),
        _SIZE_AT_SPEED: (*for_training, *for_search, _MINUTES, _OPTIONS),
    }
    for flag in refused[objective]:
        if flag.present:
            raise ConfigError(f"--{flag.name}: not with --objective={objective}; leave it out")
    if objective != _SIZE and not _BENCHMARK.value:
        raise ConfigError(
            f"--objective={objective} needs --benchmark='./program arguments', which runs in the build folder"
        )


def _small_text(learning: PipelineSettings, toolchain: Toolchain) -> tuple[SmallText, float]:
    """The objective, and how many minutes are left for the search."""
    minutes, search_minutes, named = _MINUTES.value, _SEARCH_MINUTES.value, learning.training.warmstart_policy_dir
    if _REUSE_POLICY.value is None:
        learning = _with_start(learning, toolchain)
    if search_minutes is None:
        search_minutes = minutes if learning.training.warmstart_policy_dir != named else minutes / 2
    training = dataclasses.replace(learning.training, max_minutes=minutes - search_minutes)
    objective = SmallText(
        learning=dataclasses.replace(learning, training=training),
        trains=search_minutes < minutes and training.num_iterations > 0,
        changed_settings=_changed_settings(learning),
        reused=None if _REUSE_POLICY.value is None else ReusedPolicy.find(pretrained.folder(_REUSE_POLICY.value)),
    )
    return objective, search_minutes


def _pass_options(toolchain: Toolchain, level: str) -> OptionSets:
    """The options of `--options` for the level that the compiler can take; warns if the user's file has none."""
    options = _OPTIONS.usable(toolchain).at(level.removeprefix("-"))
    if not options and _OPTIONS.value not in (AUTO, NONE):
        entry_point.warn(f"--options={_OPTIONS.value}: has none that this compiler can take at {level}; uses none")
    return options


def _learning_settings() -> tuple[PipelineSettings, InliningConfig, str | None]:
    """The settings of optimize.gin, overridden by the user's gin, then by flags; what policies observe; the clang."""
    cloning_files = [str(_GIN_CONFIGS / "behavioral_cloning_nn_agent.gin")]
    training_files = [str(_GIN_CONFIGS / "optimize.gin"), *_GIN.files.value]
    cloning = gin_settings.read(gin_settings.of_cloning(), cloning_files, [])
    settings = gin_settings.read(gin_settings.of_training(), training_files, _GIN.bindings.value)
    shared_flags.check_task(
        problems.load(INLINING.problem), settings["command"].compile_task, "optimize is for inlining"
    )
    clang_path = shared_flags.clang(_CLANG_PATH, settings["command"].clang_path)
    if settings["problem_config"]:
        raise ConfigError(
            "gin: problem_config: a program is optimised as its build compiles it; change the build's flags"
        )
    inlining: InliningConfig = settings["inlining"]
    if inlining.ir2vec_vocabulary:
        raise ConfigError("gin: inlining: programs are optimised without embeddings")
    learning = PipelineSettings(
        cloning=cloning["train_eval"],
        training=gin_settings.override(
            settings["train_eval"],
            warmstart_policy_dir="" if _WARMSTART_POLICY_DIR.value == _CLONE else _WARMSTART_POLICY_DIR.value,
            seed=_SEED.value,
        ),
        network=settings["network"],
        algorithms=AlgorithmConfigs(settings.values()),
        vocabulary=settings["vocabulary"],
    )
    return learning.with_seed(learning.training.seed), inlining, clang_path


def _with_start(learning: PipelineSettings, toolchain: Toolchain) -> PipelineSettings:
    """The same settings or, if the user names no start, training from the policy that ships and suits the compiler."""
    training = learning.training
    named = training.warmstart_policy_dir or _WARMSTART_POLICY_DIR.value == _CLONE
    if named or not algorithms.load(training.algorithm).clones_default:
        return learning
    start = pretrained.find_default(problems.load(INLINING.problem), [toolchain])
    if start is None:
        return learning
    weights = NetworkWeights.load(pretrained.folder(start))
    asked_for = plugin_features.among(spec.name for spec in toolchain.require(INLINING.problem).features)
    if not set(asked_for) <= set(weights.features):
        return learning
    hidden = tuple(len(bias) for bias in weights.biases[:-1])
    network = dataclasses.replace(learning.network, fc_layer_params=hidden)
    return dataclasses.replace(
        learning, network=network, training=dataclasses.replace(training, warmstart_policy_dir=start)
    )


def _changed_settings(learning: PipelineSettings) -> str:
    """The user's changes to the settings, and the policy to start from, as text."""
    start = learning.training.warmstart_policy_dir
    checksum = NetworkWeights.load(pretrained.folder(start)).checksum() if start.startswith(pretrained.PREFIX) else ""
    files = (gin_files.find(file)[0].read_text() for file in _GIN.files.value)
    changes = [f"seed {_SEED.value}", f"from {start or None} {checksum}".rstrip(), *files, *_GIN.bindings.value]
    return "".join(f"{change}\n" for change in changes)


def _toolchain(compilers: tuple[str, ...], clang_path: str | None) -> Toolchain:
    """The clang that is named, or the build's own compiler, if it can run policies; otherwise the newest clang."""
    if clang_path is not None:
        return probe(clang_path)
    for compiler in compilers:
        deployed = deployed_clang(compiler)
        try:
            toolchain = probe(deployed or compiler)
            toolchain.require("inlining")
        except ToolchainError:
            continue
        if deployed is not None:
            echo(f"The build's compiler, {compiler}, has a policy; using the clang that it runs, {deployed}.")
        return toolchain
    toolchain = probe()
    reason = f"The build's compiler, {' and '.join(compilers)}, cannot run policies"
    if not compilers:
        reason = "The build does not record its compiler"
    echo(f"{reason}; using {toolchain.version_text} instead.")
    return toolchain


if __name__ == "__main__":
    entry()
