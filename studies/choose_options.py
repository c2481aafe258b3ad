"""Chooses a set of options of LLVM's passes for a level, by what `screen_options` has found: smaller, and not slower.

    python -m studies.choose_options --data_path=$CORPUS/train --screening=$SCREENING --output_dir=$OUTPUT

The gain of a set is the mean over languages of the mean over projects of the change of weighted text. A set is refused
if a module fails to compile with it, if a project gets larger than `--max_project` allows, or if the programs of
`benchmarks/programs/` of these projects execute more instructions (under callgrind) than `--max_mean` and
`--max_program` allow; what a corpus of another architecture executes is not measured. What is measured is kept in the
folder, and the same command continues. It prints each step; `OUTPUT/steps.json` has them, `OUTPUT/options.json` the
set. `studies.function_options` finds what single functions may have besides.
"""

import collections
import concurrent.futures
import contextlib
import dataclasses
import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from absl import flags

from benchmarks.corpus_programs import ProgramSource, compile_objects, programs_of
from benchmarks.program_builds import PLAIN, ProgramBuilds
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.command_lines.command_line import optimization_level
from compiler_opt.corpus.description import Corpus
from compiler_opt.errors import BenchmarkError, CompileError
from compiler_opt.files import exclusive_directory, write_json
from compiler_opt.kept_results import RecordFile
from compiler_opt.llvm.pass_options import parse_option
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.pass_options.measuring import WHOLE_OBJECTS
from compiler_opt.pass_options.report import gain, options_table
from compiler_opt.pass_options.screening import (
    Measured,
    Screening,
    ScreeningSettings,
    read_detected,
    read_languages,
    read_measured,
)
from compiler_opt.pass_options.sets import OptionSets
from compiler_opt.progress_bar import progress_bar
from compiler_opt.tools import entry_point, shared_flags
from compiler_opt.tools.entry_point import echo
from studies.option_choice import OptionSet, Step, choose
from studies.option_trust import reason_against

_CORPUS = shared_flags.CorpusFlags(module_filter=False, projects=True)
_SCREENING = shared_flags.path("screening", "The folder of `screen_options`; without it, --start only loses options.")
_OUTPUT_DIR = shared_flags.required_path("output_dir", "Folder for the results.")
_MODULES = flags.DEFINE_integer("modules_per_project", 10, "Modules of each project that sets are measured on.", 1)
_START = flags.DEFINE_string("start", "", "Options to begin with, with spaces between them.")
_REFUSED = flags.DEFINE_list("refused", [], "Names of options that are not chosen, besides those of option_trust.py.")
_MAX_MEAN = flags.DEFINE_float("max_mean", 0.001, "Relative growth of instructions, mean of the programs.")
_MAX_PROGRAM = flags.DEFINE_float("max_program", 0.01, "Relative growth of instructions of each program.")
_MAX_PROJECT = flags.DEFINE_float("max_project", 0.02, "Relative growth of text of each project.")
_AT_LEAST = flags.DEFINE_float("at_least", 2e-4, "Relative change of text that a further option has to make.", 0.0)
_PAIRS = flags.DEFINE_integer("pairs", 8, "Options that remain of which pairs are tried.", 0)
_SEED = shared_flags.seed("the sample")
_CLANG_PATH = shared_flags.clang_path()
_NUM_WORKERS = shared_flags.num_workers()


@dataclasses.dataclass(frozen=True)
class Executed:
    """Instructions that a program executes under options, which have spaces between them."""

    options: str
    program: str
    instructions: int


class Programs:
    """The programs of a corpus's projects: what they execute under options, by callgrind; kept in a file."""

    def __init__(
        self, programs: Sequence[ProgramSource], corpus: Corpus, toolchain: Toolchain, folder: Path, num_workers: int
    ):
        self._toolchain, self._folder, self._num_workers = toolchain, folder, num_workers
        self._programs = {program.name: program for program in programs}
        self._modules = corpus.projects()
        self._builds: dict[str, ProgramBuilds] = {}
        self._file = RecordFile(folder / "programs.jsonl", Executed)

    def changes(self, options: OptionSet, limit: float = math.inf) -> dict[str, float]:
        """By program, the relative change of instructions; with a limit, only until one is over it.

        Raises:
          BenchmarkError, CompileError: a program prints something else, or cannot be compiled.
        """
        plain = dict(self._instructions(()))
        changes: dict[str, float] = {}
        for name, instructions in self._instructions(options):
            changes[name] = instructions / plain[name] - 1
            if changes[name] > limit:
                break
        return changes

    def _instructions(self, options: OptionSet) -> Iterator[tuple[str, int]]:
        """Those of each program, the ones that options have made slowest first."""
        key = " ".join(options)
        known = {each.program: each.instructions for each in self._file.records if each.options == key}
        yield from known.items()
        slowest: dict[str, int] = collections.defaultdict(int)
        for each in self._file.records:
            slowest[each.program] = max(slowest[each.program], each.instructions)
        plain = {each.program: each.instructions for each in self._file.records if not each.options}
        missing = self._programs.keys() - known
        order = sorted(missing, key=lambda name: (-slowest[name] / plain.get(name, 1), name))
        threads = concurrent.futures.ThreadPoolExecutor(self._num_workers)
        try:
            futures = [threads.submit(self._run, name, options) for name in order]
            done = zip(order, futures, strict=True)
            for name, future in progress_bar(done, "programs", len(order), unit="program"):
                self._file.append([Executed(key, name, future.result())])
                yield name, self._file.records[-1].instructions
        finally:
            threads.shutdown(cancel_futures=True)

    def _run(self, name: str, options: OptionSet) -> int:
        program = self._programs[name]
        if name not in self._builds:
            folder = self._folder / "programs" / name
            self._builds[name] = ProgramBuilds(program, self._modules[program.project], self._toolchain, folder)
        builds = self._builds[name]
        variant = hashlib.sha256(" ".join(options).encode()).hexdigest()[:16] if options else PLAIN
        added = [word for option in options for word in ("-mllvm", option)]
        modules = self._modules[program.project]
        builds.link(variant, compile_objects(modules, self._toolchain, builds.folder / "objects", added))
        return builds.measure(variant, simulate=False).total.instructions


@entry_point.command
def entry() -> None:
    corpus, toolchain = _CORPUS.read(_CLANG_PATH.value)
    languages = {name: modules[0].language() for name, modules in corpus.projects().items()}
    folder: Path = _OUTPUT_DIR.value
    num_workers = entry_point.num_workers(_NUM_WORKERS.value)
    ranked = _ranked(_SCREENING.value) if _SCREENING.value else []
    architectures = {(target or toolchain.target).partition("-")[0] for target in (corpus.modules[0].target(), None)}
    sources = programs_of(corpus) if len(architectures) == 1 else []
    if not sources:
        echo("speed is not checked: programs of another architecture do not run here")
    with contextlib.ExitStack() as stack:
        stack.enter_context(exclusive_directory(folder, "--output_dir"))
        pool = stack.enter_context(WorkerPool(toolchain, WHOLE_OBJECTS, num_workers))
        settings = ScreeningSettings(1, _MODULES.value, _SEED.value)
        screening = Screening(corpus, pool, toolchain.identity(), folder, settings)
        programs = Programs(sources, corpus, toolchain, folder, num_workers)

        def measured(options: OptionSet) -> Measured:
            (found,) = screening.measure([" ".join(options)])
            return found

        def set_gain(options: OptionSet) -> float:
            found = measured(options)
            return math.inf if found.failures else gain(found, languages)

        def constraint(options: OptionSet) -> str:
            found = measured(options)
            largest = max(found.projects, key=found.text)
            if found.text(largest) > _MAX_PROJECT.value:
                return f"text of {largest} {100 * found.text(largest):+.2f}%"
            try:
                changes = programs.changes(options, _MAX_PROGRAM.value)
            except (BenchmarkError, CompileError) as error:
                return str(error)
            return _too_slow(changes)

        steps: list[Step] = []
        start = tuple(_START.value.split())
        for step in choose(ranked, set_gain, constraint, at_least=_AT_LEAST.value, start=start, pairs=_PAIRS.value):
            speed = "" if step.refused else f"; instructions {_speed(programs.changes(step.options))}"
            echo(f"{step.what}: {100 * step.gain:+.2f}%{speed}{f'; refused: {step.refused}' if step.refused else ''}")
            steps.append(step)
            write_json(folder / "steps.json", [dataclasses.asdict(each) for each in steps])
        chosen: OptionSet = steps[-1].options if steps else ()
        level = optimization_level(corpus.modules[0].options()).removeprefix("-")
        about = {"compiler": toolchain.version_text, "steps": [step.what for step in steps if not step.refused]}
        OptionSets({level: chosen}, about=about).save(folder / "options.json")
        final = measured(chosen)
        for line in options_table([final], languages).lines():
            echo(line)
        for name in sorted(final.projects, key=final.text):
            echo(f"{name:16} {languages[name]:4} {100 * final.text(name):+6.2f}% {100 * final.code(name):+6.2f}%")
        for name, change in programs.changes(chosen).items():
            echo(f"{name:24} {100 * change:+6.2f}% instructions")


def _ranked(folder: Path) -> list[tuple[float, str]]:
    """The options of a screening that may be chosen, each with what it gains alone."""
    # Of what has not been measured yet, the few modules on which everything is tried say enough for the order.
    estimates = {each.option: each.relative for each in read_detected(folder) if each.changed}
    languages = read_languages(folder)
    estimates |= {each.option: gain(each, languages) for each in read_measured(folder) if not each.failures}
    # Of values that do the same, the last: those between the extremes were tried last.
    different = {(parse_option(option)[0], estimate): option for option, estimate in estimates.items()}
    return [
        (estimate, option)
        for (name, estimate), option in different.items()
        if not reason_against(name) and name not in _REFUSED.value
    ]


def _too_slow(changes: Mapping[str, float]) -> str:
    if not changes:
        return ""
    mean, worst = math.fsum(changes.values()) / len(changes), max(changes, key=lambda name: changes[name])
    if changes[worst] > _MAX_PROGRAM.value:
        return f"instructions of {worst} {100 * changes[worst]:+.2f}%"
    return f"instructions {100 * mean:+.2f}% in the mean" if mean > _MAX_MEAN.value else ""


def _speed(changes: Mapping[str, float]) -> str:
    if not changes:
        return "not measured"
    worst = max(changes, key=lambda name: changes[name])
    return f"{100 * math.fsum(changes.values()) / len(changes):+.2f}%, at most {100 * changes[worst]:+.2f}% ({worst})"


if __name__ == "__main__":
    entry()
