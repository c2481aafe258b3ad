"""Finds the menu of sets of options of which single functions may have one, and what choosing by function gains.

    python -m studies.function_options --data_path=$CORPUS/train --screening=$SCREENING --output_dir=$OUTPUT

Each candidate is an option of the screening that may be chosen (`option_trust`), on top of the set that ships; at -O2
and -O3, also the attribute `optsize`, alone and with each of these options.

1. One that the plugin can set, since only the code generator reads it, for each function: where the plugin sets it for
   all of them, objects equal those of the command line, byte for byte.
2. Code of a sample of modules is generated with each; each next set of the menu adds most to those before it, in the
   mean of C and C++, if each function has its best of those that are fast enough.
3. So it is for all modules of the projects that have programs, with each set of the menu. With the best set for each
   function, they are compiled once more: their functions' bytes, and the instructions of the programs, are compared
   with those of plain clang and of the set that ships.

What is measured is kept in the folder, and the same command continues. OUTPUT/menu.json has the menu.
"""

import dataclasses
import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from absl import flags

from benchmarks.corpus_programs import compile_objects, programs_of
from benchmarks.program_builds import PLAIN, ProgramBuilds
from compiler_opt.array_files import load_arrays, save_arrays
from compiler_opt.checked_values import parse_json
from compiler_opt.collect.schedule import Job
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.command_lines.command_line import optimization_level
from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.module import Module
from compiler_opt.decisions.inlining import DECISION
from compiler_opt.errors import BenchmarkError, CompileError, ConfigError
from compiler_opt.files import exclusive_directory, write_json
from compiler_opt.kept_results import RecordFile, check_conditions
from compiler_opt.llvm.options_plugin import FOR_SIZE, MAX_INSTRUCTIONS, FunctionOptions
from compiler_opt.llvm.pass_options import parse_option
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.objectives.objective import Reader
from compiler_opt.pass_options.screening import read_detected
from compiler_opt.pass_options.sets import changed, shipped
from compiler_opt.problem import CompileTask
from compiler_opt.progress_bar import progress_bar
from compiler_opt.search.function_options import SETTINGS, measure, task
from compiler_opt.tools import entry_point, shared_flags
from compiler_opt.tools.entry_point import echo
from studies.option_choice import greedy_menu
from studies.option_trust import reason_against

_CORPUS = shared_flags.CorpusFlags(module_filter=False, projects=True)
_SCREENING = shared_flags.required_path("screening", "The folder of `screen_options`.")
_OUTPUT_DIR = shared_flags.required_path("output_dir", "Folder for the results.")
_MODULES = flags.DEFINE_integer("modules_per_project", 2, "Modules of each project that candidates are measured on.", 1)
_CHECKED = flags.DEFINE_integer("checked_modules", 8, "Modules on which what the plugin sets is checked.", 1)
_MAX_INSTRUCTIONS = flags.DEFINE_float(
    "max_instructions",
    None,
    "How many times the estimated instructions of the set that ships a function may execute; by default as what ships.",
    0.0,
)
_SIZE = flags.DEFINE_integer("size", 16, "Sets in the menu, besides the one that ships.", 1)
_REFUSED = flags.DEFINE_list("refused", [], "Options that are no candidates: by name, or -NAME=VALUE.")
_SEED = shared_flags.seed("the sample")
_CLANG_PATH = shared_flags.clang_path()
_NUM_WORKERS = shared_flags.num_workers()

_MAX_BYTES = 1 << 28
_MAX_GROWTH = 0.2
"""Of text: an option that makes it so much larger is no candidate."""


def _digest(object_path: Path, remarks: bytes) -> str:
    del remarks
    return hashlib.sha256(object_path.read_bytes()).hexdigest()


OBJECTS = CompileTask(DECISION, Reader(_digest))


@dataclasses.dataclass(frozen=True)
class Checked:
    """A candidate: in how many modules the plugin's object is the command line's, of how many that it changes."""

    option: str
    modules: int
    changed: int
    equal: int

    @property
    def usable(self) -> bool:
        """Whether the plugin can set it."""
        return bool(self.changed) and self.equal == self.modules


@dataclasses.dataclass(frozen=True)
class Built:
    """A project in which each function has its best set, in bytes of functions, and its programs in instructions.

    Attributes:
      plain, constant: with plain clang, and with the set that ships.
      predicted: sum of the functions' best.
      composed: as compiled with these.
      instructions: by program, of these three: plain, constant, composed.
    """

    project: str
    functions: int
    plain: int
    constant: int
    predicted: int
    composed: int
    instructions: dict[str, tuple[int, int, int]]


@entry_point.command
def entry() -> None:
    corpus, toolchain = _CORPUS.read(_CLANG_PATH.value)
    constant = shipped(toolchain.version[0]).of_module(corpus.modules[0], toolchain)
    level = optimization_level(corpus.modules[0].options()).removeprefix("-")
    if level not in MAX_INSTRUCTIONS:
        raise ConfigError(f"--data_path: expected modules of one of {', '.join(MAX_INSTRUCTIONS)}, found -{level}")
    limit = MAX_INSTRUCTIONS[level] if _MAX_INSTRUCTIONS.value is None else _MAX_INSTRUCTIONS.value
    folder: Path = _OUTPUT_DIR.value
    num_workers = entry_point.num_workers(_NUM_WORKERS.value)
    with exclusive_directory(folder, "--output_dir"):
        candidates = _candidates(_SCREENING.value, constant)
        usable = _check(candidates, corpus, constant, toolchain, folder, num_workers)
        echo(f"{len(usable)} of {len(candidates)} options can be set by function")
        if level in ("O2", "O3"):
            usable = [FOR_SIZE, *usable, *(f"{FOR_SIZE} {option}" for option in usable)]
        sample = corpus.sample(_MODULES.value, _SEED.value)
        menu = _menu(usable, limit, sample, constant, toolchain, folder, num_workers)
        write_json(folder / "menu.json", menu)
        _build(menu, level, limit, corpus, constant, toolchain, folder, num_workers)


def _candidates(screening: Path, constant: Sequence[str]) -> list[str]:
    """Values of options that change something, that may be chosen, and that the constant set does not have."""
    detected = [each for each in read_detected(screening) if each.changed and not each.failures]
    best = {(parse_option(each.option)[0], each.relative): each.option for each in detected}
    trusted = [
        (relative, option)
        for (name, relative), option in best.items()
        if not (reason_against(name) or reason_against(option.lstrip("-")))
        and not {name, option} & set(_REFUSED.value)
        and relative < _MAX_GROWTH
        and option not in constant
    ]
    return [option for _, option in sorted(trusted)]


def _check(
    candidates: Sequence[str],
    corpus: Corpus,
    constant: tuple[str, ...],
    toolchain: Toolchain,
    folder: Path,
    num_workers: int,
) -> list[str]:
    file = RecordFile(folder / "checked.jsonl", Checked)
    known = {each.option for each in file.records}
    left = [option for option in candidates if option not in known]
    if left:
        small = [module for module in corpus.modules if module.bitcode_bytes() < 400_000]
        modules = dataclasses.replace(corpus, modules=tuple(small)).sample(1, _SEED.value).modules[: _CHECKED.value]
        with WorkerPool(toolchain, OBJECTS, num_workers) as pool:
            plain = _compile(pool, modules, constant)
            for option in progress_bar(left, "checking", len(left), unit="option"):
                options = changed(constant, option.split())
                by_command = _compile(pool, modules, options)
                by_plugin = _compile(pool, modules, FunctionOptions((constant, options), default=1))
                checked = Checked(
                    option,
                    len(modules),
                    sum(by_command[name] != plain[name] for name in plain),
                    sum(by_command[name] == by_plugin[name] is not None for name in plain),
                )
                file.append([checked])
    usable = {each.option for each in file.records if each.usable}
    return [option for option in candidates if option in usable]


def _compile(
    pool: WorkerPool, modules: Sequence[Module], options: tuple[str, ...] | FunctionOptions
) -> Mapping[str, str | None]:
    def with_options(module: Module) -> Module:
        if isinstance(options, FunctionOptions):
            return module.with_function_options(options)
        return dataclasses.replace(module, pass_options=options)

    jobs = (Job(with_options(module), None, settings=SETTINGS) for module in modules)
    return {result.module: result.measurement for _, result in pool.rollouts(jobs)}


def _menu(
    candidates: Sequence[str],
    limit: float,
    sample: Corpus,
    constant: tuple[str, ...],
    toolchain: Toolchain,
    folder: Path,
    num_workers: int,
) -> list[str]:
    projects = sample.projects()
    changes: dict[str, list[np.ndarray]] = {option: [] for option in candidates}  # of functions
    kept: dict[str, list[np.ndarray]] = {option: [] for option in candidates}  # of those that are better with it
    plain: list[np.ndarray] = []
    of_language: list[np.ndarray] = []
    of_project: list[np.ndarray] = []
    languages = {name: modules[0].language() for name, modules in projects.items()}
    for index, (name, modules) in enumerate(projects.items()):
        path, listed = folder / "sample" / f"{name}.npz", folder / "sample" / f"{name}.json"
        measured = parse_json(listed.read_bytes()) if listed.exists() and path.exists() else []
        if not set(candidates) <= set(measured):
            menu = [constant, *(changed(constant, option.split()) for option in candidates)]
            with (
                WorkerPool(toolchain, task(len(menu)), num_workers) as pool,
                progress_bar(total=len(modules), description=name, unit="module") as bar,
            ):
                found = measure(modules, None, pool, menu, bar.update)
            path.parent.mkdir(exist_ok=True)
            save_arrays(path, {"bytes": found.bytes, "is_slow": found.is_slow(limit)}, compressed=True)
            write_json(listed, measured := list(candidates))
        arrays = load_arrays(path, _MAX_BYTES)
        table = arrays["bytes"]  # [F, 1 + options that were measured]
        is_slow = arrays.get("is_slow", np.zeros(table.shape, bool))
        plain.append(table[:, 0].astype(float))
        of_project.append(np.full(len(table), index))
        of_language.append(np.full(len(table), languages[name] == "C"))
        for option in candidates:
            number = measured.index(option) + 1
            change = np.minimum(table[:, number] - table[:, 0], 1 << 20).astype(float)
            changes[option].append(change)
            kept[option].append(np.where(is_slow[:, number], 0.0, np.minimum(change, 0.0)))
    together = {option: np.concatenate(each) for option, each in changes.items()}
    # The set that ships is the first; each function may keep it.
    chosen = {option: np.concatenate(each) for option, each in kept.items()}
    bytes_, projects_, is_c = np.concatenate(plain), np.concatenate(of_project), np.concatenate(of_language)
    menu_entries = greedy_menu(bytes_, chosen, projects_, size=_SIZE.value)
    best = np.zeros(len(bytes_))
    shares = {language: _share(bytes_, projects_, is_c == language) for language in (True, False)}
    for number, entry in enumerate(menu_entries, 1):
        best = np.minimum(best, chosen[entry.options])
        alone = [100 * float((together[entry.options] * shares[language]).sum()) for language in (True, False)]
        sums = [100 * float((best * shares[language]).sum()) for language in (True, False)]
        echo(
            f"{number:2} {entry.options:44} for all functions C {alone[0]:+6.2f}%, C++ {alone[1]:+6.2f}%; "
            f"best so far C {sums[0]:+6.2f}%, C++ {sums[1]:+6.2f}%"
        )
    every = np.minimum.reduce(list(chosen.values()))
    sums = [100 * float((every * shares[language]).sum()) for language in (True, False)]
    echo(f"all {len(chosen)}: C {sums[0]:+.2f}%, C++ {sums[1]:+.2f}%")
    return [entry.options for entry in menu_entries]


def _share(bytes_: np.ndarray, projects: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Of a byte of each function, in the mean of the projects of a language."""
    sums = np.bincount(projects, bytes_)
    return np.where(mask, 1.0 / np.maximum(sums, 1.0)[projects] / max(1, len(set(projects[mask].tolist()))), 0.0)


def _build(
    menu: Sequence[str],
    level: str,
    limit: float,
    corpus: Corpus,
    constant: tuple[str, ...],
    toolchain: Toolchain,
    folder: Path,
    num_workers: int,
) -> None:
    conditions = {"menu": list(menu), "constant": list(constant), "max_instructions": limit}
    check_conditions(folder / "built.json", {"compiler": toolchain.version_text, **conditions})
    file = RecordFile(folder / "built.jsonl", Built)
    known = {each.project for each in file.records}
    sets = [constant, *(changed(constant, option.split()) for option in menu)]
    sources = programs_of(corpus)
    projects = corpus.projects()
    # The smallest first.
    bytes_of = {name: sum(module.bitcode_bytes() for module in modules) for name, modules in projects.items()}
    for project in sorted({source.project for source in sources} - known, key=lambda name: bytes_of[name]):
        modules = projects[project]
        with (
            WorkerPool(toolchain, task(len(sets)), num_workers) as pool,
            progress_bar(total=len(modules), description=project, unit="module") as bar,
        ):
            found = measure(modules, None, pool, sets, bar.update)
            chosen = found.choose(sets, level, limit)
            plain, composed = (_functions_bytes(pool, modules, options) for options in (FunctionOptions(((),)), chosen))
        instructions = {}
        for source in (each for each in sources if each.project == project):
            builds = ProgramBuilds(source, modules, toolchain, folder / "programs" / source.name)
            try:
                instructions[source.name] = tuple(_instructions(builds, toolchain, modules, constant, chosen))
            except (BenchmarkError, CompileError) as error:
                echo(f"{source.name}: {error}")
        file.append(
            [
                Built(
                    project,
                    len(found.bodies),
                    plain,
                    found.before,
                    found.after(limit),
                    composed,
                    instructions,  # type: ignore[arg-type]
                )
            ]
        )
        _echo_built(file.records[-1])
    _summarise(file.records, {name: modules[0].language() for name, modules in projects.items()})


def _functions_bytes(pool: WorkerPool, modules: Sequence[Module], options: FunctionOptions) -> int:
    jobs = (Job(module.with_function_options(options), None, settings=SETTINGS) for module in modules)
    measured = (result.measurement for _, result in pool.rollouts(jobs))
    return sum(
        size for each in measured if each is not None for name, size in each.functions.items() if name in each.bodies
    )


def _instructions(
    builds: ProgramBuilds,
    toolchain: Toolchain,
    modules: Sequence[Module],
    constant: tuple[str, ...],
    chosen: FunctionOptions,
) -> Iterator[int]:
    yield builds.measure(PLAIN, simulate=False).total.instructions
    for name, made in (
        ("constant", [dataclasses.replace(module, pass_options=constant) for module in modules]),
        ("chosen", [module.with_function_options(chosen) for module in modules]),
    ):
        builds.link(name, compile_objects(made, toolchain, builds.folder / "objects"))
        yield builds.measure(name, simulate=False).total.instructions


def _echo_built(built: Built) -> None:
    speed = "; ".join(
        f"{name} {100 * (constant / plain - 1):+.2f}, {100 * (chosen / plain - 1):+.2f}%"
        for name, (plain, constant, chosen) in built.instructions.items()
    )
    changes = [100 * (size / built.plain - 1) for size in (built.constant, built.predicted, built.composed)]
    echo(
        f"{built.project}: {built.functions} functions, {changes[0]:+.2f}% with the constant set, {changes[1]:+.2f}% "
        f"predicted, {changes[2]:+.2f}% composed; instructions {speed}"
    )


def _summarise(records: Sequence[Built], languages: Mapping[str, str]) -> None:
    for language in ("C", "C++"):
        of_language = [each for each in records if languages.get(each.project) == language]
        if of_language:
            means = [
                100 * math.fsum(size(each) / each.plain - 1 for each in of_language) / len(of_language)
                for size in (lambda each: each.constant, lambda each: each.predicted, lambda each: each.composed)
            ]
            named = zip(("constant", "predicted", "composed"), means, strict=True)
            changes_text = ", ".join(f"{name} {mean:+.2f}%" for name, mean in named)
            echo(f"{language}, {len(of_language)} projects: {changes_text}")
    changes = [(chosen / plain - 1, name) for each in records for name, (plain, _, chosen) in each.instructions.items()]
    if changes:
        worst, name = max(changes)
        mean = math.fsum(change for change, _ in changes) / len(changes)
        echo(
            f"instructions of {len(changes)} programs: {100 * mean:+.2f}% in the mean, worst {name} {100 * worst:+.2f}%"
        )


if __name__ == "__main__":
    entry()
