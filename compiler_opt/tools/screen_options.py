"""Finds which options of LLVM's passes a compiler has do anything, and what each gains in bytes, by function.

    python -m compiler_opt.tools.screen_options --data_path=CORPUS/train --output_dir=OUTPUT

tries all hidden options that may change code: flags both ways, small and large numbers, each choice. Those that change
an object are then measured on a sample of modules of every project. It prints the best; `OUTPUT/options.csv` has all,
and docs/pass_options.md explains the other files. After an interruption, the same command continues.
"""

import contextlib
from pathlib import Path

from absl import flags

from compiler_opt.collect.workers import WorkerPool
from compiler_opt.errors import ConfigError, told_if_interrupted
from compiler_opt.files import exclusive_directory, write_text
from compiler_opt.llvm.pass_options import list_pass_options, parse_option
from compiler_opt.pass_options.candidates import candidates, other_target_prefixes
from compiler_opt.pass_options.measuring import WHOLE_OBJECTS
from compiler_opt.pass_options.report import options_table
from compiler_opt.pass_options.screening import (
    DETECTED_FILE,
    MEASURED_FILE,
    Screening,
    ScreeningSettings,
    worth_measuring,
    worth_refining,
)
from compiler_opt.progress_bar import progress_bar
from compiler_opt.report.table import csv_text
from compiler_opt.tools import entry_point, shared_flags
from compiler_opt.tools.entry_point import echo

_CORPUS = shared_flags.CorpusFlags(projects=True)
_OUTPUT_DIR = shared_flags.required_path("output_dir", "Folder for the results.")
_MODULES = flags.DEFINE_integer("modules_per_project", 4, "Modules of each project to measure, drawn at random.", 1)
_DETECTING = flags.DEFINE_integer("detecting", 4, "Modules of each language on which options are tried first.", 1)
_OPTIONS = flags.DEFINE_multi_string("option", [], "Measure this option only, such as -enable-load-pre=false.")
_TOP = flags.DEFINE_integer("top", 40, "Options to print, the best first.", 1)
_SEED = shared_flags.seed("the sample")
_CLANG_PATH = shared_flags.clang_path()
_NUM_WORKERS = shared_flags.num_workers()


@entry_point.command
def entry() -> None:
    corpus, toolchain = _CORPUS.read(_CLANG_PATH.value)
    folder = _OUTPUT_DIR.value
    listed = list_pass_options(toolchain.clang)
    for option in _OPTIONS.value:
        if parse_option(option)[0] not in listed:
            raise ConfigError(f"--option={option}: {toolchain.clang} has no such option (-mllvm -help-list-hidden)")
    targets = set(corpus.targets(toolchain.target))
    others = [other_target_prefixes(toolchain.clang, target) for target in targets]
    tried = _OPTIONS.value or candidates(listed.values(), set(others[0]).intersection(*others[1:]))
    with contextlib.ExitStack() as stack:
        stack.enter_context(exclusive_directory(folder, "--output_dir"))
        stack.enter_context(told_if_interrupted(lambda: _how_far(folder)))
        pool = stack.enter_context(WorkerPool(toolchain, WHOLE_OBJECTS, entry_point.num_workers(_NUM_WORKERS.value)))
        bar = stack.enter_context(progress_bar(unit="compile", smoothing=0.05))
        settings = ScreeningSettings(_DETECTING.value, _MODULES.value, _SEED.value)
        screening = Screening(corpus, pool, toolchain.identity(), folder, settings, bar)
        detected = screening.detect(tried)
        if not _OPTIONS.value:
            refined = [option for option in worth_refining(detected, listed) if option not in set(tried)]
            detected += screening.detect(refined)
        measured = worth_measuring(detected, len(screening.detecting))
        results = screening.measure(measured)
    languages = {name: modules[0].language() for name, modules in corpus.projects().items()}
    table = options_table(results, languages)
    write_text(folder / "options.csv", csv_text(table.records()))
    failed = [each for each in detected if each.failures]
    echo(
        f"{len(listed)} options; {len(tried)} settings of them tried on {len(screening.detecting)} modules; "
        f"with {sum(each.changed > 0 for each in detected)} something changes, with {len(failed)} a compilation fails; "
        f"{len(results)} measured on {len(screening.sample)} modules of {len(languages)} projects"
    )
    for line in options_table(results, languages, _TOP.value).lines():
        echo(line)
    for each in failed:
        module, reason = next(iter(each.failures.items()))
        echo(f"{each.option}: fails in {len(each.failures)} modules, such as {module}: {reason}")


def _how_far(folder: Path) -> str:
    """How far an interrupted screening was, and how to resume it."""
    paths = (folder / DETECTED_FILE, folder / MEASURED_FILE)
    detected, measured = (path.read_bytes().count(b"\n") if path.exists() else 0 for path in paths)
    return f"{detected:,} settings tried, {measured:,} of these measured; the same command resumes"


if __name__ == "__main__":
    entry()
