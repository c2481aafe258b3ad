"""Compiles a corpus once under options of LLVM's passes with all of LLVM's verifiers on, and names what they refuse.

    python -m studies.verify_options --data_path=$CORPUS/train --clang_path=clang-22 [--options=FILE] [--menu]

LLVM's IR is checked after every pass (`-llvm-verify-each`), and its machine code after every pass of the code generator
(`-verify-machineinstrs`). The verifiers change nothing: the objects must be those of compilations without them. The
options are those of each module's level in a file, by default the set that ships.

`--menu` adds the sets that single functions may have, which the plugin sets in all functions: each object must also be
that of the same set on the command line. (What the command line does not have, the attribute `optsize` for the code
generator, is checked by the verifiers alone.) `--noverify` leaves out the verifiers, which take most of the time.
Exit status: 1 if anything is refused, is not equal, or fails only with the options.
"""

import concurrent.futures
import dataclasses
from collections.abc import Iterator
from pathlib import Path

from absl import flags

from compiler_opt.corpus.command_lines.command_line import optimization_level
from compiler_opt.corpus.module import Module
from compiler_opt.cost_models.compiling import compile_object
from compiler_opt.deploy.pass_options import AUTO, usable_options
from compiler_opt.errors import CompileError, CorpusError
from compiler_opt.llvm.options_plugin import FOR_SIZE, FunctionOptions
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.pass_options.sets import OptionSets
from compiler_opt.progress_bar import progress_bar
from compiler_opt.tools import entry_point, shared_flags
from compiler_opt.tools.entry_point import echo

_CORPUS = shared_flags.CorpusFlags(module_filter=False, projects=True)
_OPTIONS = shared_flags.path("options", "A file of option sets; by default the one that ships for the compiler.")
_MENU = flags.DEFINE_bool("menu", False, "Also check the sets that single functions may have.")
_VERIFY = flags.DEFINE_bool("verify", True, "Compile again with LLVM's verifiers.")
_MODULES = flags.DEFINE_integer("modules_per_project", None, "Modules of each project; by default all.", 1)
_CLANG_PATH = shared_flags.clang_path()
_NUM_WORKERS = shared_flags.num_workers()

_VERIFIERS = ("-llvm-verify-each", "-mllvm", "-verify-machineinstrs")
_TIMEOUT_S = 600.0


@entry_point.command
def entry() -> int:
    corpus, toolchain = _CORPUS.read(_CLANG_PATH.value)
    corpus = corpus.sample(_MODULES.value, seed=0)
    chosen = usable_options(OptionSets.load(_OPTIONS.value) if _OPTIONS.value else AUTO, toolchain).sets

    def compilations() -> Iterator[tuple[Module, tuple[str, ...]]]:
        """Modules that have their options, and the same as a set of the command line, if it can be one."""
        for module in corpus.modules:
            level, target = optimization_level(module.options()), module.target() or toolchain.target
            menu = chosen.menu(level.removeprefix("-"), target.partition("-")[0]) if _MENU.value else ()
            constant = chosen.of_module(module, toolchain)
            yield dataclasses.replace(module, pass_options=constant), constant
            for number, options in enumerate(menu):
                yield module.with_function_options(FunctionOptions(menu, default=number)), options

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
    how = "with all verifiers" if _VERIFY.value else "without verifiers"
    echo(f"{len(jobs)} compilations of {len(corpus.modules)} modules {how}: {failures} with a difference")
    return 1 if failures else 0


def _problem(module: Module, options: tuple[str, ...], toolchain: Toolchain) -> str:
    """What is wrong with a module that has these options; empty if nothing is."""
    with scratch_directory() as scratch:
        paths = [scratch / name / "module.o" for name in ("unchecked", "checked", "by_command")]
        for path in paths:
            path.parent.mkdir()
        unchecked, checked, by_command = paths
        try:
            compile_object(module, toolchain, unchecked, timeout_s=_TIMEOUT_S)
        except (CompileError, CorpusError) as error:
            return f"is not compiled: {error}" if _compiles_plainly(module, toolchain, unchecked) else ""
        try:
            if _VERIFY.value:
                compile_object(module, toolchain, checked, _VERIFIERS, timeout_s=_TIMEOUT_S)
                if checked.read_bytes() != unchecked.read_bytes():
                    return "another object with the verifiers"
            if module.function_options is not None and FOR_SIZE not in options:
                constant = dataclasses.replace(module, function_options=None, pass_options=options)
                compile_object(constant, toolchain, by_command, timeout_s=_TIMEOUT_S)
                if by_command.read_bytes() != unchecked.read_bytes():
                    return "another object by the command line than by the plugin"
        except (CompileError, CorpusError) as error:
            return str(error)
    return ""


def _compiles_plainly(module: Module, toolchain: Toolchain, path: Path) -> bool:
    try:
        plain = dataclasses.replace(module, function_options=None, pass_options=())
        compile_object(plain, toolchain, path, timeout_s=_TIMEOUT_S)
    except (CompileError, CorpusError):
        return False
    return True


if __name__ == "__main__":
    entry()
