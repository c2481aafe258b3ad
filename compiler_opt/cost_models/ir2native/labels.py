"""The size of each function in the object of a module, compiled with the module's own options."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from compiler_opt.corpus.module import Module
from compiler_opt.cost_models.compiling import compile_object
from compiler_opt.llvm import elf, processes
from compiler_opt.llvm.elf import ElfFile
from compiler_opt.llvm.toolchain import Toolchain


@dataclass(frozen=True)
class FunctionSizes:
    """The functions of an object.

    Attributes:
      by_symbol: the bytes of code of each function symbol, without its unwind entry.
      total: the sum over functions; those with several symbols (aliases, such as C++'s two names of a constructor)
        count once.
      cpu_s: CPU seconds of the compilation.
    """

    by_symbol: dict[str, int]
    total: int
    cpu_s: float = 0.0


def read_function_sizes(path: Path, cpu_s: float = 0.0) -> FunctionSizes:
    """Reads an object; raises ProtocolError if it is malformed."""
    file = ElfFile.read(path)
    tables = np.flatnonzero(file.sections["type"] == elf.SHT_SYMTAB)
    if not len(tables):
        return FunctionSizes({}, 0, cpu_s)
    table = int(tables[0])
    symbols, sections = file.symbols(table)
    is_function = ((symbols["info"] & 0xF) == elf.STT_FUNC) & (sections >= 0)
    sizes = symbols["size"][is_function].astype(np.int64)
    if ((sizes < 0) | (sizes > elf.MAX_FILE_BYTES)).any():
        raise file.error("a function symbol has an impossible size; the file is corrupt")
    names = file.strings(int(file.sections["link"][table]), symbols["name"][is_function])
    places = zip(sections[is_function].tolist(), symbols["value"][is_function].tolist(), strict=True)
    total = sum(dict(zip(places, sizes.tolist(), strict=True)).values())
    return FunctionSizes(dict(zip(names, sizes.tolist(), strict=True)), total, cpu_s)


def compiled_sizes(
    module: Module, toolchain: Toolchain, scratch: Path, *, timeout_s: float = processes.DEFAULT_TIMEOUT_S
) -> FunctionSizes:
    """Compiles a module, and reads its object.

    Raises:
      CompileError, CorpusError: clang fails, or the module's options are not such as can be used.
      ProtocolError: the object is malformed.
      ToolchainError: clang cannot be run.
    """
    output = scratch / "module.o"
    cpu_s = compile_object(module, toolchain, output, timeout_s=timeout_s)
    sizes = read_function_sizes(output, cpu_s)
    output.unlink()
    return sizes
