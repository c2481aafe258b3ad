"""Why a compiler asks no policy about a module: its bitcode was made at -O0, which marks functions as `optnone`."""

import re
from collections.abc import Sequence
from pathlib import Path

from compiler_opt.corpus.command_lines.command_line import optimization_level
from compiler_opt.corpus.module import Module
from compiler_opt.errors import CorpusError, ToolchainError
from compiler_opt.llvm import processes
from compiler_opt.llvm.sandbox import Sandbox

_MAX_READ = 16
_MAX_BYTES = 1 << 28
_OPTNONE = re.compile(rb"^attributes #\d+ = \{[^\n]*\boptnone\b", re.MULTILINE)


def why_undecided(modules: Sequence[Module], clang: Path) -> str:
    """Why none of these modules has a decision, for a message; empty if the reason is not known.

    The bitcode of the first modules is read, by the compiler, which writes nothing.
    """
    read = modules[:_MAX_READ]
    marked = sum(_is_optnone(module, clang) for module in read)
    if not marked:
        return ""
    of_first = f"{marked} of the first {len(read)}" if len(read) < len(modules) else f"{marked} of {len(modules)}"
    return (
        f"{of_first} modules have functions that are optnone, which no optimisation touches, because they were "
        "compiled at -O0: build again at the level that the policy is for, such as -Oz, and extract the corpus again"
    )


def _is_optnone(module: Module, clang: Path) -> bool:
    try:
        if optimization_level(module.options()) == "-O0":
            return True
        command = [str(clang), "-cc1", "-emit-llvm", "-disable-llvm-passes", "-o", "-", "-x", "ir"]
        command.append(str(module.bitcode_path.absolute()))
        result = processes.run(command, max_stdout_bytes=_MAX_BYTES, sandbox=Sandbox.for_folder(None))
    except (CorpusError, ToolchainError):
        return False
    return _OPTNONE.search(result.stdout) is not None
