"""The functions of a module, from one compilation: features right after inlining, and sizes in the object.

The inliner's plugin counts the features in the compiler, with the module's own options (`native/function_counter.h`).
By name (`native/function_features.h`), they are

- `op.*`: opcodes, and `cost.*`: the target's code-size cost, by opcode;
- `tok.*`: opcodes refined by what decides their encoding;
- `live.*`: estimates of live values;
- `prop.*`: LLVM's function properties;
- `fn.*`: linkage, attributes, parameters and frame.
"""

import dataclasses
from pathlib import Path

import numpy as np

from compiler_opt.corpus.command_lines.command_line import is_thinlto
from compiler_opt.corpus.module import Module
from compiler_opt.cost_models.compiling import compile_object
from compiler_opt.errors import CorpusError, ProtocolError
from compiler_opt.llvm import elf, inliner_plugin, processes
from compiler_opt.llvm.elf import ElfFile
from compiler_opt.llvm.plugin import load_option
from compiler_opt.llvm.toolchain import Toolchain

VERSION = 2
"""Of the features: whoever changes one adds one, and datasets and models of other versions are refused."""

MAX_FEATURES_BYTES = 1 << 28
_OPTIONS = ("-mllvm", "-enable-detailed-function-properties")


@dataclasses.dataclass(frozen=True)
class FunctionSizes:
    """The functions of an object.

    Attributes:
      by_symbol: the bytes of code of each function symbol, without its unwind entry.
      total: the sum over functions; those with several symbols (aliases, such as C++'s two names of a constructor)
        count once.
    """

    by_symbol: dict[str, int]
    total: int


def compile_functions(
    module: Module, toolchain: Toolchain, scratch: Path, *, timeout_s: float = processes.DEFAULT_TIMEOUT_S
) -> tuple[dict[str, dict[str, float]], FunctionSizes]:
    """Compiles a module: the features that are not zero, by symbol of each function, and the sizes in its object.

    Raises:
      CompileError, CorpusError: clang fails, or the module's options are not such as can be used.
      ProtocolError: the object or the plugin's file is malformed.
      ToolchainError: clang cannot be run, or there is no plugin for it; the message says what to install.
    """
    if is_thinlto(module.options()):
        raise CorpusError(f"{module.name}: modules of a ThinLTO link are not supported; leave them out")
    output, features = scratch / "module.o", scratch / "functions"
    plugin = load_option(inliner_plugin.inliner_plugin(toolchain))
    variables = inliner_plugin.environment(policy=None, functions=features)
    compile_object(module, toolchain, output, (plugin, *_OPTIONS), environment=variables, timeout_s=timeout_s)
    if not features.exists():
        raise CorpusError(f"{module.name}: is not optimised, so there is no IR right after inlining; leave it out")
    return read_features(features), read_function_sizes(output)


def read_features(path: Path) -> dict[str, dict[str, float]]:
    """Reads the plugin's file; raises ProtocolError if it is damaged."""
    try:
        if path.stat().st_size > MAX_FEATURES_BYTES:
            raise ValueError(f"at most {MAX_FEATURES_BYTES} bytes")
        *fields, end = path.read_bytes().decode("utf-8", "surrogateescape").split("\0")
        if end or len(fields) % 2:
            raise ValueError("symbols and features in turn")
        pairs = zip(fields[::2], fields[1::2], strict=True)
        return {
            symbol: {name: float(value) for name, value in (line.split(" ") for line in lines.splitlines())}
            for symbol, lines in pairs
        }
    except (OSError, ValueError) as error:
        raise ProtocolError(f"{path}: expected the plugin's features of functions: {error}") from None


def read_function_sizes(path: Path) -> FunctionSizes:
    """Reads an object; raises ProtocolError if it is malformed."""
    file = ElfFile.read(path)
    tables = np.flatnonzero(file.sections["type"] == elf.SHT_SYMTAB)
    if not len(tables):
        return FunctionSizes({}, 0)
    table = int(tables[0])
    symbols, sections = file.symbols(table)
    is_function = ((symbols["info"] & 0xF) == elf.STT_FUNC) & (sections >= 0)
    sizes = symbols["size"][is_function].astype(np.int64)
    if ((sizes < 0) | (sizes > elf.MAX_FILE_BYTES)).any():
        raise file.error("a function symbol has an impossible size; the file is corrupt")
    names = file.strings(int(file.sections["link"][table]), symbols["name"][is_function])
    places = zip(sections[is_function].tolist(), symbols["value"][is_function].tolist(), strict=True)
    total = sum(dict(zip(places, sizes.tolist(), strict=True)).values())
    return FunctionSizes(dict(zip(names, sizes.tolist(), strict=True)), total)
