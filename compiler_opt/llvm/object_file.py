"""Measures text bytes: of an object file, its functions and its COMDAT groups, and of objects linked together.

*Text* is defined as by `llvm-size`: allocated sections that are executable or not writable, including read-only data
and `.eh_frame`; `TextParts` has these apart. C++ objects have many functions in COMDAT groups, of which a linker keeps
one copy per program.

A function that is removed takes its unwind entry with it (a linker drops the entries of dropped COMDAT groups), so each
entry of `.eh_frame` counts with its function and group.
"""

import dataclasses
import operator
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from elftools.elf import enums
from elftools.elf.constants import SH_FLAGS

from compiler_opt.errors import CompileError
from compiler_opt.llvm import elf, processes
from compiler_opt.llvm.elf import Array, ElfFile
from compiler_opt.llvm.sandbox import Sandbox
from compiler_opt.llvm.scratch import scratch_directory

_GRP_COMDAT = 1
_CONSTANT_POINTERS = ".data.rel.ro"
_DYNAMIC_RELOCATION_BYTES = 24  # Elf64_Rela
_MAX_VALUE_BITS = 40  # of an offset within a section, packed with the section's index into a key
_UNWIND_TABLES = (".eh_frame", ".gcc_except_table", ".ARM.exidx", ".ARM.extab")
_DYNAMIC_TYPES = (
    *(elf.SHT_RELA, elf.SHT_REL, enums.ENUM_SH_TYPE_BASE["SHT_RELR"]),
    *(enums.ENUM_SH_TYPE_BASE[f"SHT_{name}"] for name in ("DYNSYM", "STRTAB", "HASH", "DYNAMIC")),
    *(enums.ENUM_SH_TYPE_BASE[f"SHT_GNU_{name}"] for name in ("HASH", "verdef", "verneed", "versym")),
)
_INTERPRETER = ".interp"


@dataclasses.dataclass(frozen=True)
class TextParts:
    """Text bytes by what they are for.

    Attributes:
      code: executable sections, such as `.text` and `.plt`.
      constants: read-only data, and all text that is in no other part.
      unwind: tables for exceptions and backtraces: `.eh_frame`, `.eh_frame_hdr`, `.gcc_except_table`, ARM's index.
      dynamic: what the dynamic linker reads: symbols and their names, hashes, versions, relocations. None in objects.
    """

    code: int
    constants: int = 0
    unwind: int = 0
    dynamic: int = 0

    @property
    def total(self) -> int:
        """The text column of `llvm-size`."""
        return self.code + self.constants + self.unwind + self.dynamic

    def __sub__(self, other: "TextParts") -> "TextParts":
        """The difference of each part."""
        return TextParts(*map(operator.sub, dataclasses.astuple(self), dataclasses.astuple(other)))

    def is_better(self, other: "TextParts") -> bool:
        """Whether it is smaller than another, and has no more code."""
        return self.total < other.total and self.code <= other.code


@dataclasses.dataclass(frozen=True)
class ObjectSizes:
    """The sizes of one object file, in bytes.

    Attributes:
      text_bytes: allocated sections that are executable or not writable; equals the text column of `llvm-size`.
      comdats: by signature of a COMDAT group, the text bytes of its sections plus its functions' unwind entries.
      functions: by function symbol, its code plus its unwind entry. Aliases count the same bytes again.
      function_comdats: by function symbol, the signature of its COMDAT group, if it is in one.
      relocation_bytes: what constant pointers of position-independent code cost in the text of a program or shared
        library: each takes a dynamic relocation. No part of `text_bytes`.
    """

    text_bytes: int
    comdats: dict[str, int]
    functions: dict[str, int]
    function_comdats: dict[str, str]
    relocation_bytes: int = 0

    def with_added(self, num_bytes: Mapping[str, int]) -> "ObjectSizes":
        """The sizes with further bytes of functions, as for what they cost when they run.

        What is not in `functions` counts only in the text.
        """
        functions, comdats = dict(self.functions), dict(self.comdats)
        for name in num_bytes.keys() & functions.keys():
            functions[name] += num_bytes[name]
            if name in self.function_comdats:
                comdats[self.function_comdats[name]] += num_bytes[name]
        text_bytes = self.text_bytes + sum(num_bytes.values())
        return dataclasses.replace(self, text_bytes=text_bytes, functions=functions, comdats=comdats)


def read_parts(path: Path) -> TextParts:
    """The text of an object, a shared library or a program; raises ProtocolError if it is not well-formed ELF."""
    return text_parts(ElfFile.read(path))


def text_parts(file: ElfFile) -> TextParts:
    """The text of a file in memory; see `read_parts`."""
    text = _section_text_bytes(file)  # [S]
    is_code = file.sections["flags"] & SH_FLAGS.SHF_EXECINSTR != 0
    is_dynamic = ~is_code & np.isin(file.sections["type"], _DYNAMIC_TYPES)
    is_unwind = np.zeros(len(text), bool)
    for index in np.flatnonzero((text > 0) & ~is_code & ~is_dynamic).tolist():
        name = file.section_name(index)
        is_unwind[index], is_dynamic[index] = name.startswith(_UNWIND_TABLES), name == _INTERPRETER
    code, unwind, dynamic = (int(text[mask].sum()) for mask in (is_code, is_unwind, is_dynamic))
    return TextParts(code, int(text.sum()) - code - unwind - dynamic, unwind, dynamic)


def read_object_sizes(path: Path) -> ObjectSizes:
    """Reads a relocatable object, 1,000 sections in about a millisecond; raises ProtocolError if it is malformed."""
    return object_sizes(ElfFile.read(path))


def object_sizes(file: ElfFile) -> ObjectSizes:
    """The sizes of an object in memory; see `read_object_sizes`."""
    text = _section_text_bytes(file)
    tables = np.flatnonzero(file.sections["type"] == elf.SHT_SYMTAB)
    relocations = _relocation_bytes(file)
    if not len(tables):
        return ObjectSizes(int(text.sum()), {}, {}, {}, relocations)
    table = int(tables[0])
    names_table = int(file.sections["link"][table])
    symbols, symbol_sections = file.symbols(table)

    signatures, group_of_section = _comdat_groups(file, table, names_table, symbols, symbol_sections)  # [G], [S]
    is_function = ((symbols["info"] & 0xF) == elf.STT_FUNC) & (symbol_sections >= 0)
    function_sections = symbol_sections[is_function]  # [F]
    function_bytes = symbols["size"][is_function].astype(np.int64)
    if ((function_bytes < 0) | (function_bytes > elf.MAX_FILE_BYTES)).any():
        raise file.error("a function symbol has an impossible size; the file is corrupt")
    function_keys = _keys(function_sections, symbols["value"][is_function].astype(np.int64))
    function_groups = group_of_section[function_sections]

    group_bytes = np.zeros(len(signatures) + 1, np.int64)  # the last is for sections in no group (index -1)
    np.add.at(group_bytes, group_of_section, text)
    entry_keys, entry_sections, entry_bytes = _unwind_entries(file, symbols, symbol_sections)  # [E] each
    np.add.at(group_bytes, group_of_section[entry_sections], entry_bytes)
    if len(entry_keys):
        nearest = np.minimum(np.searchsorted(entry_keys, function_keys), len(entry_keys) - 1)
        function_bytes = function_bytes + np.where(entry_keys[nearest] == function_keys, entry_bytes[nearest], 0)

    names = file.strings(names_table, symbols["name"][is_function])
    functions = dict(zip(names, function_bytes.tolist(), strict=True))
    function_comdats = {
        name: signatures[group] for name, group in zip(names, function_groups.tolist(), strict=True) if group >= 0
    }
    comdats = dict(zip(signatures, group_bytes.tolist(), strict=False))
    return ObjectSizes(int(text.sum()), comdats, functions, function_comdats, relocations)


def _section_text_bytes(file: ElfFile) -> Array:
    """`[S]` int64: each section's size where it is text, else 0."""
    flags, types = file.sections["flags"], file.sections["type"]
    is_text = (flags & SH_FLAGS.SHF_ALLOC != 0) & (types != 0) & (types != elf.SHT_SYMTAB)
    is_text &= (flags & SH_FLAGS.SHF_EXECINSTR != 0) | (flags & SH_FLAGS.SHF_WRITE == 0)
    sizes = np.where(is_text, file.sections["size"], 0)
    if len(sizes) and int(sizes.max()) > elf.MAX_FILE_BYTES:
        raise file.error(f"a section claims {sizes.max()} bytes; the file is corrupt")
    return sizes.astype(np.int64)


def _relocation_bytes(file: ElfFile) -> int:
    """The bytes of the dynamic relocations that the linker makes for `.data.rel.ro`.

    Compilers put constants with addresses there, such as the table of a switch over strings, if the code may be loaded
    anywhere; otherwise they are in `.rodata`, and need none.
    """
    flags = file.sections["flags"]
    is_data = (flags & SH_FLAGS.SHF_ALLOC != 0) & (flags & SH_FLAGS.SHF_WRITE != 0)
    number = 0
    for index in np.flatnonzero(file.sections["type"] == elf.SHT_RELA).tolist():
        target = int(file.sections["info"][index])
        if target < len(is_data) and is_data[target] and file.section_name(target).startswith(_CONSTANT_POINTERS):
            number += len(file.relocations(index)[0])
    return number * _DYNAMIC_RELOCATION_BYTES


def _comdat_groups(
    file: ElfFile, table: int, names_table: int, symbols: Array, symbol_sections: Array
) -> tuple[list[str], Array]:
    """`[G]` signatures of the COMDAT groups, and the `[S]` group of each section, -1 for none."""
    group_of_section = np.full(len(file.sections), -1, np.int64)
    groups = np.flatnonzero(file.sections["type"] == elf.SHT_GROUP)
    words, owner = file.words(groups)
    is_first = np.ones(len(words), bool)  # the first word of a group has its flags, the others its sections
    is_first[1:] = owner[1:] != owner[:-1]
    is_comdat = np.zeros(len(groups), bool)
    is_comdat[owner[is_first]] = words[is_first] & _GRP_COMDAT != 0

    is_member = ~is_first & is_comdat[owner] if len(words) else is_first
    members, member_groups = words[is_member], np.cumsum(is_comdat)[owner[is_member]] - 1
    if len(members) and int(members.max()) >= len(file.sections):
        raise file.error(f"a group holds section {members.max()}; there are {len(file.sections)} sections")
    group_of_section[members] = member_groups

    headers = file.sections[groups[is_comdat]]
    signers = headers["info"].astype(np.int64)
    if (headers["link"] != table).any() or (len(signers) and int(signers.max()) >= len(symbols)):
        raise file.error("the signature of a section group is not in the symbol table; the file is corrupt")
    signatures = file.strings(names_table, symbols["name"][signers])
    for position, signature in enumerate(signatures):
        if not signature:  # a section symbol, as created by `ld -r`: use the section's name
            section = int(symbol_sections[signers[position]])
            signatures[position] = file.section_name(section) if section >= 0 else ""
    return signatures, group_of_section


def _unwind_entries(file: ElfFile, symbols: Array, symbol_sections: Array) -> tuple[Array, Array, Array]:
    """The entries (FDE) of `.eh_frame`, sorted by the code that they describe.

    An entry refers to its function by a relocation of its `pc_begin` field, 8 bytes after its start.

    Returns:
      `[E]` sorted keys of the functions' positions, `[E]` sections of the functions, and `[E]` sizes in bytes.
    """
    keys, sections, sizes = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    is_relocation = (file.sections["type"] == elf.SHT_RELA) | (file.sections["type"] == elf.SHT_REL)
    for frame in file.sections_named(".eh_frame"):
        frame_bytes = file.section_bytes(frame)
        starts, lengths = _unwind_records(file, frame_bytes)  # [K] each
        for index in np.flatnonzero(is_relocation & (file.sections["info"] == frame)):
            offsets, targets, _, addends = file.relocations(int(index))
            record = np.searchsorted(starts, offsets - 8)
            record[record == len(starts)] = 0
            is_begin = starts[record] + 8 == offsets if len(starts) else np.zeros(len(offsets), bool)
            record, targets = record[is_begin], targets[is_begin]
            if len(targets) and int(targets.max()) >= len(symbols):
                raise file.error(f"an unwind entry names symbol {targets.max()}; there are {len(symbols)} symbols")
            values = symbols["value"][targets].astype(np.int64)
            if addends is None:
                in_place = [struct.unpack_from(file.order + "i", frame_bytes, starts[k] + 8)[0] for k in record]
                values += np.array(in_place, np.int64)
            else:
                values += addends[is_begin]
            target_sections = symbol_sections[targets]
            is_here = target_sections >= 0
            keys.append(_keys(target_sections[is_here], values[is_here]))
            sections.append(target_sections[is_here])
            sizes.append(lengths[record[is_here]])
    all_keys = np.concatenate(keys)
    order = np.argsort(all_keys, kind="stable")
    return all_keys[order], np.concatenate(sections)[order], np.concatenate(sizes)[order]


def _unwind_records(file: ElfFile, frame: bytes) -> tuple[Array, Array]:
    """Start and length in bytes of each FDE of an `.eh_frame` section, without the CIEs, which functions share."""
    read_words = struct.Struct(file.order + "II").unpack_from
    starts, lengths = [], []
    position = 0
    while position + 8 <= len(frame):
        length, cie = read_words(frame, position)
        if length == 0 and not any(frame[position:]):
            break  # the terminator
        if length < 4 or position + 4 + length > len(frame):
            raise file.error(
                f"the unwind record at byte {position} of .eh_frame has length {length}; the file is corrupt"
            )
        if cie and length >= 8:
            starts.append(position)
            lengths.append(length + 4)
        position += 4 + length
    return np.array(starts, np.int64), np.array(lengths, np.int64)


def _keys(sections: Array, values: Array) -> Array:
    """A sortable integer for each position: section and offset in it."""
    return (sections << _MAX_VALUE_BITS) | (values & ((1 << _MAX_VALUE_BITS) - 1))


_OPTIONS = (
    "--unresolved-symbols=ignore-all",
    "-z",
    "muldefs",  # several programs of a project have a `main`
    "--no-gc-sections",
    "--noinhibit-exec",  # a jump to an undefined symbol may be out of range, which does not change sizes
    "--no-warnings",
    "--no-dependent-libraries",  # an object may name any file as one, such as a linker script
    "--strip-all",
    "--whole-archive",
    "--threads=1",
)


_PROGRAM = ("--entry=0",)
_SHARED_LIBRARY = ("-shared", "-z", "notext")
"""Code that is not position-independent gets relocations in its text, as none would in a program."""


def linked_parts(
    lld: Path, objects: Sequence[Path], *, shared: bool = False, scratch: Path | None = None, timeout_s: float = 600
) -> TextParts:
    """Links ELF objects, or archives of them, and returns the text of the result; none for no objects.

    The result is a program or, with `shared`, a shared library, which exports all symbols with default visibility.
    There is no entry point, and undefined symbols are ignored. As in the real build, equal constants are merged, and
    the first copy of each COMDAT group is kept, so the order matters. Nothing is garbage-collected, since without an
    entry point everything would be.

    Raises:
      CompileError: the linker failed.
      ProtocolError: its output is not an ELF file.
      ToolchainError: `lld` cannot be run.
    """
    if not objects:
        return TextParts(0)
    with scratch_directory(scratch) as directory:
        program, arguments = directory / "program", directory / "objects.rsp"
        # A large project has more objects than fit on a command line.
        arguments.write_text("".join(f"{_quoted(path)}\n" for path in objects))
        command = [str(lld), *_OPTIONS, *(_SHARED_LIBRARY if shared else _PROGRAM), "-o", str(program), f"@{arguments}"]
        result = processes.run(command, timeout_s=timeout_s, sandbox=Sandbox.for_folder(directory))
        if not result.ok or not program.exists():
            raise CompileError(f"linking {len(objects)} objects: {result.describe()}")
        return read_parts(program)


def _quoted(path: Path) -> str:
    """Quotes an argument in GNU response-file syntax."""
    escaped = str(path.resolve()).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
