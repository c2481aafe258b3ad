"""Compiles programs that have one thing up to 300 times, plainly and by mlgo-clang, and compares their text.

    python -m benchmarks.scaled_programs [--policy_path=$POLICY] [--output_path=scaled.csv]

What a policy decides wrongly about one call costs little in ordinary code. In generated code and in test suites it is
repeated, and features reach values that no training has seen. The programs are the files of benchmarks/scaled: of each,
the lines with `@` are repeated, `@` being a number from 0, and `$` is how many they are.

Exit status: 1 if a program grows by more than --max_growth; 2 if one is not compiled, or not with the policy.
"""

import concurrent.futures
import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

from absl import flags

from benchmarks.deployments import policy_requests
from compiler_opt.deploy.deployment import Deployment, deploy
from compiler_opt.errors import CompileError, ConfigError
from compiler_opt.files import write_text
from compiler_opt.llvm import processes
from compiler_opt.llvm.object_file import TextParts, read_parts
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.toolchain import Toolchain, probe
from compiler_opt.progress_bar import progress_bar
from compiler_opt.report.table import Change, Table, csv_text, size_cells
from compiler_opt.tools import entry_point, shared_flags
from compiler_opt.tools.entry_point import echo
from compiler_opt.tools.options_flag import OptionsFlag

_CLANG_PATH = shared_flags.clang_path()
_POLICY_PATH = shared_flags.policy(
    "policy_path", "The policy; by default the one that ships and suits the compiler; `none` for none."
)
_OPTIONS = OptionsFlag("Options of LLVM's passes that are deployed, too: {forms}.", default="none", has_trials=True)
_COUNTS = flags.DEFINE_multi_integer("count", [1, 3, 10, 30, 100, 300], "How often each thing is repeated.", 1, 1000)
_PROGRAM = flags.DEFINE_multi_string("program", None, "Only this program; may be repeated. By default all.")
_LEVEL = flags.DEFINE_string("level", "Oz", "Optimisation level.")
_MAX_GROWTH = flags.DEFINE_float("max_growth", 1.0, "Allowed growth of a program's text, in percent.", 0.0)
_OUTPUT_PATH = shared_flags.path("output_path", "CSV file for the sizes of all programs, in bytes; by default none.")
_NUM_WORKERS = shared_flags.num_workers()

_SOURCES = Path(__file__).with_name("scaled")
_COMPILE_TIMEOUT_S = 300.0
_ROWS = 5
"""Rows of the table, or more if more programs grow."""


@dataclasses.dataclass(frozen=True)
class ScaledProgram:
    """A program with one thing several times, and its text in bytes if it is compiled plainly and with the policy."""

    name: str
    count: int
    plain: TextParts
    policy: TextParts

    @property
    def growth(self) -> float:
        """Relative change of text."""
        return self.policy.total / self.plain.total - 1

    @property
    def code_growth(self) -> float:
        """Relative change of code; 0 without code."""
        return self.policy.code / self.plain.code - 1 if self.plain.code else 0.0


def scaled(source: str, count: int) -> str:
    """A source file whose lines with `@` are repeated: see the head of this file."""
    lines = []
    for line in source.replace("$", str(count)).splitlines():
        lines += [line.replace("@", str(number)) for number in range(count)] if "@" in line else [line]
    return "\n".join([*lines, ""])


@entry_point.command
def entry() -> int:
    sources = _sources()
    toolchain = probe(_CLANG_PATH.value)
    with scratch_directory() as scratch:
        deployment = deploy(
            policy_requests(_POLICY_PATH.value, [_LEVEL.value]),
            scratch / "prefix",
            [toolchain.clang],
            options=_OPTIONS.read(),
            option_trials=_OPTIONS.trials,
            pass_plugin=_OPTIONS.pass_plugin,
        )
        jobs = [(source, count) for count in _COUNTS.value for source in sources]
        with concurrent.futures.ThreadPoolExecutor(entry_point.num_workers(_NUM_WORKERS.value)) as pool:
            measured = pool.map(lambda job: _measure(job[0], job[1], toolchain, deployment, scratch), jobs)
            programs = list(progress_bar(measured, total=len(jobs), unit="program"))
    if _OUTPUT_PATH.value:
        write_text(_OUTPUT_PATH.value, csv_text(map(_row, programs)))
    return _report(programs)


def _sources() -> list[Path]:
    """Raises ConfigError if there is no program of a name."""
    by_name = {path.stem: path for path in sorted(_SOURCES.iterdir())}
    names = _PROGRAM.value or list(by_name)
    if unknown := [name for name in names if name not in by_name]:
        raise ConfigError(f"--program={unknown[0]}: expected one of {', '.join(by_name)}")
    return [by_name[name] for name in names]


def _report(programs: Sequence[ScaledProgram]) -> int:
    by_growth = sorted(programs, key=lambda program: program.growth, reverse=True)
    grown = [program for program in by_growth if 100 * program.growth > _MAX_GROWTH.value]
    rows = [
        [p.name, f"{p.count:,}", *size_cells(p.plain.total, p.policy.total, p.growth), Change(p.code_growth)]
        for p in by_growth[: max(_ROWS, len(grown))]
    ]
    for line in Table(["program", "times", "text, plain", "policy", "more", "change", "code"], rows).lines():
        echo(line)
    smaller = sum(program.growth < 0 for program in programs)
    echo(
        f"{len(programs)} programs: {smaller} smaller; {len(grown)} larger by more than {_MAX_GROWTH.value:g}%; worst "
        f"{by_growth[0].growth:+.2%}"
    )
    return int(bool(grown))


def _row(program: ScaledProgram) -> dict[str, object]:
    parts = {"plain": program.plain, "policy": program.policy}
    sizes = {f"{name}_{part}": size for name, each in parts.items() for part, size in dataclasses.asdict(each).items()}
    return {"program": program.name, "times": program.count, **sizes}


def _measure(source: Path, count: int, toolchain: Toolchain, deployment: Deployment, scratch: Path) -> ScaledProgram:
    with scratch_directory(scratch) as folder:
        (folder / source.name).write_text(scaled(source.read_text(encoding="utf-8"), count), encoding="utf-8")
        driver = deployment.driver(major=toolchain.version[0])
        plain, policy = (_text(compiler, source.name, folder) for compiler in (toolchain.clang, driver))
    return ScaledProgram(source.stem, count, plain, policy)


def _text(compiler: Path, source: str, folder: Path) -> TextParts:
    words = [str(compiler), f"-{_LEVEL.value}", "-w", "-c", source, "-o", "object.o"]
    # Nothing of the user's settings of mlgo-clang, such as one that switches it off.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MLGO_")}
    environment["MLGO_STRICT"] = "1"
    compiled = processes.run(words, timeout_s=_COMPILE_TIMEOUT_S, cwd=folder, environment=environment)
    if not compiled.ok or "mlgo:" in compiled.stderr_tail:
        raise CompileError(f"{source}: {compiled.describe()} {compiled.stderr_tail}")
    return read_parts(folder / "object.o")


if __name__ == "__main__":
    entry()
