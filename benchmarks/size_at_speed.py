"""Optimises real programs with a profile at -O2, and measures them on another input than that of the profile.

    python -m benchmarks.size_at_speed --output_dir=$OUTPUT [--program=xz --program=ninja] [--objective=speed]

--objective is that of `compiler_opt optimize`: size-at-speed, or speed, with --search_minutes (0: none) of search.

The programs of benchmarks/size_at_speed.yaml are those of Debian's source packages, of the release that runs here; apt
verifies them. `compiler_opt optimize` gets a training input as its benchmark. Then what it has built is run with the
measuring input: plain -O2, -O2 with the profile, and what it kept. All three have to print the same.

Changes are to plain -O2: instructions and estimated cycles under callgrind, text and the code in it of the program, and
wall time, the median of the ratios in --rounds runs in turn. Means are over programs, with intervals of 95%.

--output_dir has a record of each finished program, and the same command continues. All programs take about three hours
on two cores, and 3 GB; close other programs for wall times. Exit status: 1 if a program fails.
"""

import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from absl import flags

from benchmarks import debian_programs
from benchmarks.debian_packages import Apt
from benchmarks.debian_programs import DebianProgram
from benchmarks.size_at_speed_report import Build, Record, report
from compiler_opt.checked_values import convert
from compiler_opt.errors import CompilerOptError, ConfigError, ToolchainError
from compiler_opt.files import exclusive_directory, parse_json
from compiler_opt.kept_results import check_conditions, kept
from compiler_opt.llvm import processes
from compiler_opt.llvm.object_file import read_parts
from compiler_opt.llvm.toolchain import Toolchain, probe
from compiler_opt.measure.benchmark import Benchmark
from compiler_opt.measure.wall_time import MIN_ROUNDS, wall_times
from compiler_opt.optimize.size_at_speed import step_name
from compiler_opt.progress_bar import progress_bar
from compiler_opt.report.formatting import count_text
from compiler_opt.tools import entry_point, shared_flags
from compiler_opt.tools.entry_point import echo

_OUTPUT_DIR = shared_flags.required_path("output_dir", "Folder for sources, builds, logs and records.")
_PROGRAM = flags.DEFINE_multi_string("program", None, "Only this program; may be repeated. By default all.")
_CLANG_PATH = shared_flags.clang_path()
_ROUNDS = flags.DEFINE_integer("rounds", 20, "Timed runs of each build.", MIN_ROUNDS)
_MIRROR = flags.DEFINE_string("mirror", "http://deb.debian.org/debian", "Where the source packages are.")
_NUM_WORKERS = shared_flags.num_workers()

_SIZE_AT_SPEED, _SPEED = "size-at-speed", "speed"
_OBJECTIVE = flags.DEFINE_enum(
    "objective", _SIZE_AT_SPEED, [_SIZE_AT_SPEED, _SPEED], "That of `compiler_opt optimize`."
)
_SEARCH_MINUTES = flags.DEFINE_float("search_minutes", 0.0, "For speed: minutes of search.", 0.0)

_PROGRAMS = Path(__file__).with_suffix(".yaml")
_ROOT = Path(__file__).parents[1]
_TOOLS = {"apt-get": "apt", "dpkg-source": "dpkg-dev", "cmake": "cmake", "ninja": "ninja-build"}
"""By program, its package."""
_TIMEOUT_S = 60.0


@entry_point.command
def entry() -> int:
    programs = debian_programs.load(_PROGRAMS)
    names = list(dict.fromkeys(_PROGRAM.value or programs))
    if unknown := [name for name in names if name not in programs]:
        raise ConfigError(f"--program={unknown[0]}: expected one of {', '.join(programs)}")
    for tool, package in _TOOLS.items():
        if shutil.which(tool) is None:
            raise ConfigError(f"{tool}: not found on PATH; install the package {package}")
    toolchain = probe(_CLANG_PATH.value)
    folder = Path(_OUTPUT_DIR.value).absolute()
    records = []
    with exclusive_directory(folder, "--output_dir"):
        conditions = {"compiler": toolchain.version_text, "objective": _objective(), "rounds": _ROUNDS.value}
        check_conditions(folder / "conditions.json", conditions)
        echo(f"{count_text(len(names), 'program')}, of about 10 minutes and 200 MB each; records are in {folder}")
        failures = _fetch(names, programs, folder)
        for name in progress_bar([name for name in names if name not in failures], unit="program"):
            try:
                records.append(_record(name, programs[name], toolchain, folder))
            except CompilerOptError as error:
                failures[name] = str(error)
                echo(f"{name}: {error}")
    for table in report(records) if records else []:
        for line in [*table.lines(), ""]:
            echo(line)
    for name, reason in failures.items():
        echo(f"{name}: left out: {reason}")
    return int(bool(failures))


def _fetch(names: Sequence[str], programs: Mapping[str, DebianProgram], folder: Path) -> dict[str, str]:
    """Unpacks the source packages of programs without a record; returns why some cannot be had, by program."""
    missing = [
        name for name in names if not _kept_file(name, folder).exists() and not _source(programs[name], folder).is_dir()
    ]
    failures: dict[str, str] = {}
    if not missing:
        return failures
    apt = Apt(folder, _MIRROR.value)
    apt("update")
    for name in progress_bar(missing, "fetching", unit="package"):
        try:
            apt.unpack(programs[name].package, _source(programs[name], folder))
        except ToolchainError as error:
            failures[name] = str(error)
    return failures


def _source(program: DebianProgram, folder: Path) -> Path:
    return folder / "source" / program.package


def _kept_file(name: str, folder: Path) -> Path:
    return folder / "records" / f"{name}.json"


def _record(name: str, program: DebianProgram, toolchain: Toolchain, folder: Path) -> Record:
    """The kept record of a program, or a new one."""
    return kept(
        _kept_file(name, folder),
        lambda path: convert(parse_json(path.read_bytes()), Record),
        lambda record: msgspec.json.format(msgspec.json.encode(record), indent=1),
        lambda: _measure(name, program, toolchain, folder),
    )


def _measure(name: str, program: DebianProgram, toolchain: Toolchain, folder: Path) -> Record:
    """Optimises and measures a program.

    Raises:
      BenchmarkError: a build prints something else than the plain one.
      ConfigError: the program cannot be configured or optimised.
      ToolchainError: a tool is missing.
    """
    own, unpacked = folder / name, _source(program, folder)
    training = program.commands(program.training, own / "inputs")
    options = program.configure(unpacked, own / "build", toolchain)
    options += [f"--benchmark={line}" for line in training]
    output, log = own / "optimized", own / "optimize.log"
    jobs = entry_point.num_workers(_NUM_WORKERS.value)
    command = [sys.executable, "-m", "compiler_opt", "optimize", *_objective(), *options, f"--output_dir={output}"]
    command += [f"--clang_path={toolchain.clang}", f"--num_workers={jobs}"]
    script, text = own / "optimize.sh", f"{shlex.join(command)}\n"
    if script.exists() and script.read_text(encoding="utf-8") != text:
        shutil.rmtree(output, ignore_errors=True)  # The YAML file has changed.
    script.write_text(text, encoding="utf-8")
    echo(f"{name}: optimises it; see {log}")
    done = processes.run_logged(command, log, cwd=_ROOT, on_output=lambda output: _show_headings(name, output))
    if not done.ok:
        last = log.read_text(errors="replace").strip().rpartition("\n")[2]
        raise ConfigError(f"optimize: {last.removeprefix('error: ')}")
    kept, folders = _kept(output)
    echo(f"{name}: measures it")
    training_s = Benchmark.of(training, _TIMEOUT_S).reference(folders[0]).wall_s
    builds = _builds(program, program.commands(program.measuring, own / "inputs"), folders)
    return Record(name, debian_programs.version(unpacked), program.language, kept, training_s, *builds)


def _objective() -> list[str]:
    """The flags of `optimize`."""
    minutes = [f"--minutes={_SEARCH_MINUTES.value:g}"] if _OBJECTIVE.value == _SPEED else []
    return [f"--objective={_OBJECTIVE.value}", *minutes]


def _kept(output: Path) -> tuple[str, list[Path]]:
    """What an optimisation kept, in words, and the folders of its builds: plain, with the profile, and optimised."""
    kept = parse_json((output / "report" / "summary.json").read_bytes())["kept"]
    if _OBJECTIVE.value == _SPEED:
        text, without = ", ".join(kept), "profiled"
    else:
        text, without = step_name(kept) if kept is not None else "", "default"
    return text, [output / f"build-{each}" for each in ("default", "profiled", "optimized" if text else without)]


def _show_headings(name: str, output: bytes) -> None:
    for line in output.decode(errors="replace").splitlines():
        if line.startswith("== "):
            echo(f"{name}: {line[3:]}")


def _builds(program: DebianProgram, lines: Sequence[str], folders: Sequence[Path]) -> list[Build]:
    """The builds in folders, of which the first is plain, measured with command lines."""
    benchmark = Benchmark.of(lines, _TIMEOUT_S)
    reference = benchmark.reference(folders[0])
    if not any(reference.outputs):
        raise ConfigError(f"{lines[0]}: expected it to print something")
    counts = [benchmark.measure(folder, reference).total for folder in folders]
    times = wall_times(benchmark, folders, reference, rounds=_ROUNDS.value)
    parts = [read_parts(folder / program.file) for folder in folders]
    return [
        Build(count.instructions, count.cycles, part.total, part.code, time.seconds, time.ratio)
        for count, part, time in zip(counts, parts, times, strict=True)
    ]


if __name__ == "__main__":
    entry()
