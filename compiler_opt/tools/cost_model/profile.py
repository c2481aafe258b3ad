"""Runs programs, and writes their basic blocks with counts, misses, mispredictions and times.

    clang-22 -O2 -fbasic-block-address-map -Wl,--build-id bench.c -o $PROGRAMS/mine/bench
    compiler_opt cost_model profile --program_dir=$PROGRAMS --benchmark="mine/bench 9" --output_dir=$BLOCKS

runs each command in $PROGRAMS, under callgrind and under perf, and writes $BLOCKS/profiled.npz. Each block that ran has
the path of its program as its module. Commands of the same program are added up. Labels are llvm-mca's cycles and,
where perf can sample, measured nanoseconds per execution. Without perf, `--perf_script` reads samples that were
recorded elsewhere. After an interruption, the same command continues. docs/throughput.md describes the measurement.
"""

import shlex
from pathlib import Path

from absl import flags

from compiler_opt.cost_models.throughput.blocks import save_blocks
from compiler_opt.cost_models.throughput.extraction import BlockExtractor
from compiler_opt.cost_models.throughput.instructions import Decoder
from compiler_opt.cost_models.throughput.mca import Labeller
from compiler_opt.cost_models.throughput.profiling import MEASURED, Profiler, Sampling
from compiler_opt.errors import BenchmarkError, ConfigError, ToolchainError
from compiler_opt.files import exclusive_directory
from compiler_opt.llvm.toolchain import probe
from compiler_opt.measure.benchmark import Benchmark
from compiler_opt.measure.callgrind import valgrind
from compiler_opt.measure.sampling import check_sampling
from compiler_opt.progress_bar import progress_bar
from compiler_opt.tools import entry_point, shared_flags

_BENCHMARK = flags.DEFINE_multi_string(
    "benchmark",
    [],
    "A command to run; its first word is the program. It always prints the same. Give several for several programs.",
)
_PROGRAM_DIR = shared_flags.path("program_dir", "Folder where the commands run; by default the current one.")
_OUTPUT_DIR = shared_flags.required_path("output_dir", "Folder for the file of blocks.")
_CLANG_PATH = shared_flags.clang_path()
_CPU = flags.DEFINE_string("cpu", "skylake", "The processor that llvm-mca simulates; llvm-mca -mcpu=help lists them.")
_TIMEOUT_S = flags.DEFINE_float("benchmark_timeout_s", 60.0, "Limit of each run of a command, in seconds.", 0.1)
_SAMPLING_S = flags.DEFINE_float(
    "sampling_s", 5.0, "Seconds for which each program runs, again and again, under perf; 0 measures no times.", 0.0
)
_PERF_SCRIPT = shared_flags.path(
    "perf_script",
    "Samples of the one program: output of perf script --show-mmap-events -F pid,period,ip, instead of sampling here.",
)
_PERF_SCRIPT_RUNS = flags.DEFINE_integer("perf_script_runs", 1, "How often the commands ran in --perf_script.", 1)


def _by_program(folder: Path) -> dict[str, Benchmark]:
    """The commands of each program, by its path as given."""
    if not _BENCHMARK.value:
        raise ConfigError("--benchmark: expected a command that runs a program, found none")
    lines: dict[str, list[str]] = {}
    for line in _BENCHMARK.value:
        (command,) = Benchmark.of([line]).commands
        if not (folder / command[0]).is_file():
            raise BenchmarkError(f"--benchmark={line}: expected a program, found none at {folder / command[0]}")
        # A path without a slash would be looked for on PATH.
        name = command[0] if "/" in command[0] else f"./{command[0]}"
        lines.setdefault(name, []).append(shlex.join([name, *command[1:]]))
    return {name: Benchmark.of(each, _TIMEOUT_S.value) for name, each in lines.items()}


def _sampling(num_programs: int) -> Sampling:
    """How times are measured: not at all, if perf cannot sample."""
    if _PERF_SCRIPT.value is not None:
        if num_programs != 1:
            raise ConfigError(f"--perf_script: expected commands of one program, found those of {num_programs}")
        return Sampling(0.0, _PERF_SCRIPT.value, _PERF_SCRIPT_RUNS.value)
    if _SAMPLING_S.value:
        try:
            check_sampling()
        except ToolchainError as error:
            entry_point.warn(f"no times are measured: {error}")
            return Sampling(0.0)
    return Sampling(_SAMPLING_S.value)


@entry_point.command
def entry() -> None:
    decoder = Decoder()
    folder = _PROGRAM_DIR.value or Path()
    benchmarks = _by_program(folder)
    toolchain = probe(_CLANG_PATH.value)
    for tool in ("llvm-mc", "llvm-mca", "llvm-readobj"):
        toolchain.tool(tool)
    valgrind()
    output = _OUTPUT_DIR.value
    labeller = Labeller(toolchain, _CPU.value)
    labeller.check()
    how = _sampling(len(benchmarks))
    with exclusive_directory(output, "--output_dir"):
        profiler = Profiler(output, toolchain, decoder)
        blocks = []
        said = []
        for name, benchmark in progress_bar(benchmarks.items(), "profiling", unit="program"):
            module = name.removeprefix("./")
            profile = profiler.profile(folder / name, module, benchmark, folder, how)
            labelled, num_refused = BlockExtractor(output, labeller).label(profile.blocks)
            blocks += labelled
            said.append(
                f"{module}: {len(labelled)} blocks ran, {sum(MEASURED in block.labels for block in labelled)} with a "
                f"measured time ({profile.runs} runs); {profile.num_refused} not decoded, {num_refused} refused by "
                f"llvm-mca; in its blocks {profile.instructions_in_blocks:.1%} of all instructions, "
                f"{profile.samples_in_blocks:.1%} of all samples"
            )
        path = output / "profiled.npz"
        save_blocks(path, blocks)
    for line in said:
        entry_point.echo(line)
    entry_point.echo(f"{path}: {len(blocks)} blocks of {len(benchmarks)} programs")


if __name__ == "__main__":
    entry()
