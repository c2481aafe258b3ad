"""Compiles a corpus once under options of LLVM's passes with all of LLVM's verifiers on, and names what they refuse.

    python -m studies.verify_options --data_path=$CORPUS/train --clang_path=clang-22 [--options=FILE]

LLVM's IR is checked after every pass (`-llvm-verify-each`), and its machine code after every pass of the code generator
(`-verify-machineinstrs`). The verifiers change nothing: the objects must be those of compilations without them. The
options are those of each module's level in a file, by default the set that ships; `--menu` adds those that
single functions may have.
Exit status: 1 if anything is refused, or fails only with the options.
"""

import concurrent.futures
from collections.abc import Iterator
from pathlib import Path

from absl import flags

from compiler_opt.corpus.command_lines.command_line import optimization_level
from compiler_opt.corpus.module import Module
from compiler_opt.cost_models.compiling import compile_object
from compiler_opt.errors import CompileError, CorpusError
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.pass_options.sets import OptionSets, shipped
from compiler_opt.progress_bar import progress_bar
from compiler_opt.tools import entry_point, shared_flags
from compiler_opt.tools.entry_point import echo

_CORPUS = shared_flags.CorpusFlags(module_filter=False, projects=True)
_OPTIONS = shared_flags.path("options", "A file of option sets; by default the one that ships for the compiler.")
_MENU = flags.DEFINE_bool("menu", False, "Also check the sets that single functions may have.")
_CLANG_PATH = shared_flags.clang_path()
_NUM_WORKERS = shared_flags.num_workers()

_VERIFIERS = ("-llvm-verify-each", "-mllvm", "-verify-machineinstrs")
_TIMEOUT_S = 600.0


@entry_point.command
def entry() -> int:
    corpus, toolchain = _CORPUS.read(_CLANG_PATH.value)
    chosen = OptionSets.load(_OPTIONS.value) if _OPTIONS.value else shipped(toolchain.version[0])

    def compilations() -> Iterator[tuple[Module, tuple[str, ...]]]:
        for module in corpus.modules:
            level, target = optimization_level(module.options()), module.target() or toolchain.target
            menu = chosen.menu(level.removeprefix("-"), target.partition("-")[0]) if _MENU.value else ()
            for options in dict.fromkeys([chosen.of_module(module, toolchain), *menu]):
                yield module, options

    jobs = list(compilations())
    failures = 0
    with concurrent.futures.ThreadPoolExecutor(entry_point.num_workers(_NUM_WORKERS.value)) as threads:
        results = threads.map(lambda job: _problem(job[0], job[1], toolchain), jobs)
        for (module, options), problem in zip(
            jobs, progress_bar(results, total=len(jobs), unit="compile"), strict=True
        ):
            if problem:
                failures += 1
                echo(f"{module.name} with {' '.join(options)}: {problem}")
    echo(f"{len(jobs)} compilations of {len(corpus.modules)} modules with all verifiers: {failures} with a difference")
    return 1 if failures else 0


def _problem(module: Module, options: tuple[str, ...], toolchain: Toolchain) -> str:
    """What is wrong with a module under options; empty if nothing is."""
    added = [word for option in options for word in ("-mllvm", option)]
    with scratch_directory() as scratch:
        checked, unchecked = scratch / "checked" / "module.o", scratch / "unchecked" / "module.o"
        for path in (checked, unchecked):
            path.parent.mkdir()
        try:
            compile_object(module, toolchain, unchecked, added, timeout_s=_TIMEOUT_S)
        except (CompileError, CorpusError) as error:
            return f"is not compiled: {error}" if _compiles_plainly(module, toolchain, unchecked) else ""
        try:
            compile_object(module, toolchain, checked, [*added, *_VERIFIERS], timeout_s=_TIMEOUT_S)
        except (CompileError, CorpusError) as error:
            return str(error)
        return "" if checked.read_bytes() == unchecked.read_bytes() else "another object with the verifiers"


def _compiles_plainly(module: Module, toolchain: Toolchain, path: Path) -> bool:
    try:
        compile_object(module, toolchain, path, timeout_s=_TIMEOUT_S)
    except (CompileError, CorpusError):
        return False
    return True


if __name__ == "__main__":
    entry()
