"""Reads the basic blocks of an object or a linked program that was compiled with an address map.

The compiler writes the sections `.llvm_bb_addr_map` (LLVM's `AsmPrinter.cpp: emitBBAddrMapSection`), which list the
blocks of each function with their places and estimated frequencies. Code is the same with and without them.
`llvm-readobj` reads them; its JSON has one key `BBAddrMap` for each section of code:

    [{"FileSummary": {...},
      "BBAddrMap": [{"Function": {"At": 0, "Name": "f",
                                  "BB Ranges": [{"Base Address": 0, "BB Entries": [{"ID": 0, "Offset": 0, "Size": 4}]}],
                                  "PGO analyses": {"FuncEntryCount": 5, "PGO BB entries": [{"Frequency": 123, ...}]}}}],
      "BBAddrMap": [...]}]

Addresses are offsets in the section of an object, and virtual addresses in a program, as it was linked.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from elftools.elf.constants import SH_FLAGS

from compiler_opt.cost_models.throughput.blocks import Block
from compiler_opt.errors import ProtocolError
from compiler_opt.llvm import processes
from compiler_opt.llvm.elf import ElfFile
from compiler_opt.llvm.sandbox import Sandbox
from compiler_opt.llvm.toolchain import Toolchain

FLAGS = ("-fbasic-block-address-map", "-mllvm", "-pgo-analysis-map=func-entry-count,bb-freq,br-prob")
"""Options of cc1 that make the compiler write the map."""

SHT_LLVM_BB_ADDR_MAP = 0x6FFF4C0A
MACHINE = "EM_X86_64"
_KEY = "BBAddrMap"
_MAX_STDOUT_BYTES = 1 << 30


@dataclasses.dataclass(frozen=True)
class PlacedBlock:
    """A block in a file.

    Attributes:
      block: the block.
      address: its virtual address in a program, as it was linked; in an object, its offset in the section.
      offset: where its code begins in the file.
      entry_count: how often its function was called in the profile that the compiler used; 0 without one.
    """

    block: Block
    address: int
    offset: int
    entry_count: int = 0

    @property
    def size(self) -> int:
        """Its bytes."""
        return len(self.block.code)


def read_object(path: Path, toolchain: Toolchain, module: str = "") -> list[Block]:
    """The blocks of an x86-64 object in the order of their code, empty ones left out, as blocks of `module`.

    Raises:
      ProtocolError: it is no such object, is damaged, or has no map.
      ToolchainError: llvm-readobj is not installed.
    """
    return [placed.block for placed in read_placed(path, toolchain, module)]


def read_placed(path: Path, toolchain: Toolchain, module: str = "") -> list[PlacedBlock]:
    """As `read_object`, with places and calls of the functions."""
    return _read(path, toolchain, module, linked=False)


def read_program(path: Path, toolchain: Toolchain, module: str = "") -> list[PlacedBlock]:
    """The blocks of a linked x86-64 program in the order of their addresses, as blocks of `module`.

    Code without a map is not in the list; code that the linker has folded is in it once.

    Raises:
      ProtocolError: it is no such program, is damaged, or has no map.
      ToolchainError: llvm-readobj is not installed.
    """
    by_address = {placed.address: placed for placed in _read(path, toolchain, module, linked=True)}
    if not by_address:
        raise ProtocolError(f"{path}: expected an address map of its blocks; compile it with {' '.join(FLAGS)}")
    return [by_address[address] for address in sorted(by_address)]


def _read(path: Path, toolchain: Toolchain, module: str, *, linked: bool) -> list[PlacedBlock]:
    readobj = toolchain.tool("llvm-readobj")
    file = ElfFile.read(path)
    if file.machine != MACHINE:
        raise file.error(f"expected an object for x86-64, found one for {file.machine}")
    command = [str(readobj), "--elf-output-style=JSON", "--bb-addr-map", str(path.absolute())]
    result = processes.run(command, max_stdout_bytes=_MAX_STDOUT_BYTES, sandbox=Sandbox.for_folder(None))
    if not result.ok:
        raise file.error(f"its blocks cannot be read: {result.describe()}")
    sections = np.flatnonzero(file.sections["type"] == SHT_LLVM_BB_ADDR_MAP).tolist()
    has_code = (file.sections["flags"] & SH_FLAGS.SHF_EXECINSTR != 0) & (file.sections["size"] > 0)
    if not sections and not has_code.any():
        return []
    if not sections:
        raise file.error(f"expected an address map of its blocks; compile it with {' '.join(FLAGS)}")
    try:
        maps = json.loads(result.stdout, object_pairs_hook=_object)[0][_KEY]
        if len(maps) != len(sections):
            raise file.error(f"expected the blocks of {len(sections)} sections, found those of {len(maps)}")
        blocks: list[PlacedBlock] = []
        for section, functions in zip(sections, maps, strict=True):
            index = int(file.sections["link"][section])
            code = file.section_bytes(index)
            header = file.sections[index]
            address = int(header["addr"]) if linked else 0
            for function in functions:
                blocks += _function_blocks(file, code, address, int(header["offset"]), function["Function"], module)
        return blocks
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise file.error(f"its blocks are not as expected: {type(error).__name__}: {error}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; all values of the key that may come several times are in one list."""
    result = dict(pairs)
    if _KEY in result:
        result[_KEY] = [value for name, value in pairs if name == _KEY]
    return result


def _function_blocks(
    file: ElfFile, code: bytes, address: int, offset: int, function: Mapping[str, Any], module: str
) -> Iterator[PlacedBlock]:
    """The blocks of a function in the code of a section that is at this address, and at this offset in the file."""
    analyses = function.get("PGO analyses", {})
    frequencies = [entry["Frequency"] for entry in analyses.get("PGO BB entries", ())]
    entry_count = int(analyses.get("FuncEntryCount", 0))
    entry = frequencies[0] if frequencies and frequencies[0] > 0 else 1
    number = 0
    for part in function["BB Ranges"]:
        for place in part["BB Entries"]:
            start = part["Base Address"] - address + place["Offset"]
            end = start + place["Size"]
            if not 0 <= start <= end <= len(code):
                raise file.error(f"a block of {function['Name']} is outside of its section; the file is corrupt")
            frequency = frequencies[number] / entry if number < len(frequencies) else 1.0
            number += 1
            if end > start:
                block = Block(code[start:end], module, str(function["Name"]), int(place["ID"]), frequency)
                yield PlacedBlock(block, start + address, start + offset, entry_count)
