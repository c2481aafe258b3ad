"""Measures how fast programs run that are linked from the objects of an evaluation: by callgrind, and by wall time.

    compiler_opt evaluate --data_path=$CORPUS --policy_path=$POLICY --output_dir=$OUTPUT \
        --keep_objects=$OBJECTS
    python -m benchmarks.program_speed --data_path=$CORPUS --objects=$OBJECTS [--wall_rounds=21]

For each program of `benchmarks/programs/` whose project the corpus has, the objects of each build (plain, options, the
policy, both) are linked with the program's own file, which is always compiled plainly, and run under valgrind. All
builds must print the same. Counts include library functions and program start, which are the same in all. Wall times
are of runs in turn; the median of ratios to the plain build has a 95% interval (sign test).

Requires valgrind (`apt-get install valgrind`).
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from absl import flags

from benchmarks.corpus_programs import PROGRAM_FLAG, programs_of
from benchmarks.program_builds import measure_builds
from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.module import Module
from compiler_opt.errors import ConfigError
from compiler_opt.evaluation.results import DEFAULT
from compiler_opt.llvm.toolchain import probe
from compiler_opt.measure.callgrind import Counts
from compiler_opt.measure.wall_time import MIN_ROUNDS, WallTimes
from compiler_opt.progress_bar import progress_bar
from compiler_opt.report.formatting import change_text
from compiler_opt.report.table import Cell, Change, Table
from compiler_opt.tools import entry_point, shared_flags
from compiler_opt.tools.entry_point import echo

_DATA_PATH = shared_flags.required_path("data_path", "The corpus that was evaluated.")
_OBJECTS = shared_flags.required_path("objects", "The folder of `evaluate --keep_objects`.")
_BUILDS = flags.DEFINE_list("builds", [], "Builds to compare with the plain one; by default all in the folder.")
_PROGRAMS = flags.DEFINE_multi_string("program", [], PROGRAM_FLAG)
_WALL_ROUNDS = flags.DEFINE_integer("wall_rounds", 0, f"Timed runs of each build, at least {MIN_ROUNDS}; 0 for none.")
_CLANG_PATH = shared_flags.clang_path()


@entry_point.command
def entry() -> None:
    toolchain = probe(_CLANG_PATH.value)
    corpus = Corpus.load(str(_DATA_PATH.value))
    folder: Path = _OBJECTS.value
    names = _BUILDS.value or sorted(path.name for path in folder.glob("*") if path.name != DEFAULT)
    programs = programs_of(corpus, _PROGRAMS.value)
    counts: dict[str, dict[str, Counts]] = {}
    times: dict[str, dict[str, WallTimes]] = {}
    for program in progress_bar(programs, "programs", unit="program"):
        modules = corpus.projects()[program.project]
        objects = {name: _objects(folder / name, modules) for name in (DEFAULT, *names)}
        counts[program.name], times[program.name] = measure_builds(program, objects, toolchain, _WALL_ROUNDS.value)
    for name in names:
        for line in ("", f"{name}:", *_table(counts, times, name).lines()):
            echo(line)


def _objects(folder: Path, modules: Sequence[Module]) -> list[Path]:
    paths = [folder / (module.name if module.name.endswith(".o") else f"{module.name}.o") for module in modules]
    for path in paths:
        if not path.is_file():
            raise ConfigError(f"{path}: no such object; give --objects the folder of `evaluate --keep_objects`")
    return paths


def _table(
    counts: Mapping[str, Mapping[str, Counts]], times: Mapping[str, Mapping[str, WallTimes]], build: str
) -> Table:
    """A row for each program, and the mean of the programs."""

    def changes(program: str) -> list[float]:
        plain, changed = counts[program][DEFAULT], counts[program][build]
        pairs = [(each.instructions, each.reads, each.writes, each.cycles) for each in (plain, changed)]
        return [after / before - 1 for before, after in zip(*pairs, strict=True)]

    def wall(program: str) -> list[Cell]:
        if not (timed := times[program]):
            return []
        ratio, seconds = timed[build].ratio, timed[DEFAULT].seconds.value
        interval = f"{change_text(ratio.low - 1)} to {change_text(ratio.high - 1)}"
        return [f"{seconds:.2f} s", Change(ratio.value - 1), interval]

    rows: list[list[Cell]] = [
        [name, f"{of_builds[DEFAULT].instructions / 1e6:,.0f}", *map(Change, changes(name)), *wall(name)]
        for name, of_builds in counts.items()
    ]
    means = [Change(statistics.fmean(column)) for column in zip(*map(changes, counts), strict=True)]
    head = ["program", "million", "instructions", "loads", "stores", "cycles, estimated"]
    total: list[Cell] = ["mean of programs", "", *means]
    if _WALL_ROUNDS.value:
        head += ["wall", "change", "95%"]
        ratios = [of_builds[build].ratio.value for of_builds in times.values()]
        total += ["", Change(math.exp(statistics.fmean(map(math.log, ratios))) - 1), "geometric"]
    return Table(head, rows, total=total)


if __name__ == "__main__":
    entry()
