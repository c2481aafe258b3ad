"""Measures whether cost models rank builds of a program as measurements do.

    python -m studies.rank_cost_models --builds_dir=$BUILDS --benchmark="h3/h3_cells 9" --output_dir=$OUT

$BUILDS has a folder for each variant, such as $BUILDS/default and $BUILDS/inline-500, and in each the same paths of
programs, here h3/h3_cells. Programs are linked from objects with an address map of their blocks (compile them with
-fbasic-block-address-map -mllvm -pgo-analysis-map=func-entry-count,bb-freq,br-prob). Each command runs in the folder
of each variant, under callgrind and for its wall time; all variants must print what the base does. With
--model_dir=$MODEL, a network of `cost_model train` is among the cost models. Prints how well each model orders the
builds, and writes $OUT/ranking.csv and $OUT/ranking.json. After an interruption, the same command continues.
docs/cost_models_ranking.md describes the comparison.
"""

import functools
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from absl import flags

from compiler_opt.cost_models.throughput.blocks import Block
from compiler_opt.cost_models.throughput.extraction import BlockExtractor
from compiler_opt.cost_models.throughput.instructions import Decoder
from compiler_opt.cost_models.throughput.mca import Labeller
from compiler_opt.cost_models.throughput.model import ThroughputModel, read_description
from compiler_opt.cost_models.throughput.profiling import MEASURED as MEASURED_NS
from compiler_opt.cost_models.trees import require_scikit_learn
from compiler_opt.errors import BenchmarkError, ConfigError, ProtocolError
from compiler_opt.files import check_folder_writable, exclusive_directory, write_json, write_text
from compiler_opt.llvm.toolchain import probe
from compiler_opt.measure.benchmark import Benchmark
from compiler_opt.measure.callgrind import valgrind
from compiler_opt.measure.wall_time import MIN_ROUNDS
from compiler_opt.progress_bar import progress_bar
from compiler_opt.report.table import csv_text
from compiler_opt.tensorflow_loading import load_tensorflow, require_tensorflow
from compiler_opt.tools import entry_point, shared_flags
from studies.ranking import report
from studies.ranking.builds import BuildProfiler
from studies.ranking.costs import LEARNED_RUNTIME, CostModels, Costs, Predict, models
from studies.ranking.measuring import BuildMeasurer, ProgramBuilds, variants_with
from studies.ranking.report import MIN_BUILDS, RankedProgram

_BUILDS_DIR = shared_flags.required_path("builds_dir", "Folder with a folder of programs for each variant.")
_BENCHMARK = flags.DEFINE_multi_string(
    "benchmark",
    [],
    "A command to run; its first word is the program, by its path in a variant's folder. It always prints the same. "
    "Give several for several programs; those of the same program are added up.",
)
_BASE = flags.DEFINE_string("base", "default", "The variant whose profile is matched to the other builds.")
_VARIANT = flags.DEFINE_multi_string("variant", [], "A variant to compare; may be repeated; by default all.")
_OUTPUT_DIR = shared_flags.required_path("output_dir", "Folder for the results.")
_MODEL_DIR = shared_flags.path("model_dir", "Folder of a model of `cost_model train`.")
_ROUNDS = flags.DEFINE_integer("rounds", 20, "Runs of each build for its wall time, in turn; 0 for none.", 0)
_TIMEOUT_S = flags.DEFINE_float("benchmark_timeout_s", 60.0, "Limit of each run of a command, in seconds.", 0.1)
_CLANG_PATH = shared_flags.clang_path("The clang whose tools to use; by default the newest one installed.")
_CPU = flags.DEFINE_string("cpu", "skylake", "The processor that llvm-mca simulates; llvm-mca -mcpu=help lists them.")
_THREADS = flags.DEFINE_integer("num_threads", 1, "Threads of TensorFlow.", 1)


def _by_program() -> dict[str, Benchmark]:
    """The commands of each program, by its path in a variant's folder."""
    if not _BENCHMARK.value:
        raise ConfigError("--benchmark: expected a command that runs a program, found none")
    lines: dict[str, list[str]] = {}
    for line in _BENCHMARK.value:
        (command,) = Benchmark.of([line]).commands
        path = Path(command[0])
        if path.is_absolute() or ".." in path.parts:
            raise ConfigError(
                f"--benchmark={line}: expected a path in the folder of a variant, found {command[0]}; leave out "
                "what is before it"
            )
        # A path without a slash would be looked for on PATH.
        words = shlex.join([f"./{path}", *command[1:]])
        if words in lines.setdefault(str(path), []):
            raise ConfigError(f"--benchmark={line}: is there twice; leave one out")
        lines[str(path)].append(words)
    return {name: Benchmark.of(each, _TIMEOUT_S.value) for name, each in lines.items()}


def _network(decoder: Decoder) -> Predict | None:
    """The network; None if there is none."""
    if _MODEL_DIR.value is None:
        return None
    description = read_description(_MODEL_DIR.value)
    if description.label_source != MEASURED_NS:
        entry_point.warn(
            f"{_MODEL_DIR.value}: predicts {description.label_source}, which annotations do not change, so the rows of "
            f"{LEARNED_RUNTIME} say nothing; for them, give a model of {MEASURED_NS}"
        )
    load_tensorflow(_THREADS.value)
    return functools.partial(ThroughputModel.load(_MODEL_DIR.value).predict, decoder=decoder)


def _costs(
    program: ProgramBuilds, extractor: BlockExtractor, source: str, decoder: Decoder, predict: Predict | None
) -> dict[str, Costs]:
    """What each model says of each build; `source` is that of llvm-mca's labels."""
    codes = {block.code for build in program.builds.values() for block in build.blocks}
    labelled, _ = extractor.label([Block(code, "", "", 0, 0.0) for code in sorted(codes - {b""})])
    cost_models = CostModels(decoder, {block.code: block.labels[source] for block in labelled}, predict)
    base = program.builds[_BASE.value]
    return {variant: cost_models.costs(base, build) for variant, build in program.builds.items()}


def _ranked(
    benchmarks: Mapping[str, Benchmark],
    variants: Sequence[str],
    measurer: BuildMeasurer,
    costs_of: Callable[[ProgramBuilds], dict[str, Costs]],
) -> list[RankedProgram]:
    """Measures the builds of each program, and computes their costs; names builds, and programs, that are left out."""
    ranked: list[RankedProgram] = []
    failures: list[str] = []
    steps = len(benchmarks) * (1 + len(variants) + _ROUNDS.value)
    with progress_bar(total=steps, description="measuring", unit="step") as bar:
        for name, benchmark in benchmarks.items():
            try:
                measured = measurer.measure(name, benchmark, variants, bar.update)
            except (BenchmarkError, ProtocolError) as error:
                failures.append(f"left out {name}: {error}")
                continue
            failures += [f"left out {name} of {variant}: {reason}" for variant, reason in measured.left_out.items()]
            # Builds take much memory, so those of the next program come after the costs of these.
            ranked.append(RankedProgram(name, costs_of(measured), measured.wall, measured.left_out))
    if all(len(program.costs) < MIN_BUILDS for program in ranked):
        raise BenchmarkError(f"expected {MIN_BUILDS} builds of a program that print the same; {failures[0]}")
    for line in failures:
        entry_point.warn(line)
    return ranked


@entry_point.command
def entry() -> None:
    require_scikit_learn()
    if _MODEL_DIR.value is not None:
        require_tensorflow("a model of blocks")
    decoder = Decoder()
    benchmarks = _by_program()
    if 0 < _ROUNDS.value < MIN_ROUNDS:
        raise ConfigError(f"--rounds={_ROUNDS.value}: expected at least {MIN_ROUNDS}, or 0 for no wall time")
    builds_dir, output = _BUILDS_DIR.value, _OUTPUT_DIR.value
    variants = variants_with(builds_dir, _BASE.value, list(benchmarks), _VARIANT.value)
    for program in benchmarks:
        if not (builds_dir / _BASE.value / program).is_file():
            raise ConfigError(
                f"--benchmark={program}: expected a program, found none at {builds_dir / _BASE.value / program}"
            )
    toolchain = probe(_CLANG_PATH.value)
    for tool in ("llvm-mc", "llvm-mca", "llvm-readobj"):
        toolchain.tool(tool)
    valgrind()
    check_folder_writable(output)
    labeller = Labeller(toolchain, _CPU.value)
    labeller.check()
    predict = _network(decoder)
    with exclusive_directory(output, "--output_dir"):
        profiler = BuildProfiler(output, toolchain, decoder)
        measurer = BuildMeasurer(output, profiler, builds_dir, _BASE.value, _ROUNDS.value)
        costs_of = functools.partial(
            _costs,
            extractor=BlockExtractor(output, labeller),
            source=labeller.source,
            decoder=decoder,
            predict=predict,
        )
        programs = _ranked(benchmarks, variants, measurer, costs_of)
        comparisons = report.compare_all(programs, models(learned=predict is not None))
        about = {
            "base": _BASE.value,
            "rounds": _ROUNDS.value,
            "llvm_mca": labeller.source,
            "model_dir": None if _MODEL_DIR.value is None else str(_MODEL_DIR.value),
            "commands": {name: [shlex.join(words) for words in each.commands] for name, each in benchmarks.items()},
        }
        write_text(output / "ranking.csv", csv_text(report.csv_rows(programs)))
        write_json(output / "ranking.json", report.to_json(programs, comparisons, about))
    for comparison in comparisons:
        for line in report.lines(comparison):
            entry_point.echo(line)
        entry_point.echo("")
    entry_point.echo(f"each build: {output / 'ranking.csv'}; all figures: {output / 'ranking.json'}")


if __name__ == "__main__":
    entry()
