"""Checked, vectorised access to the tables of an ELF file: section headers, symbols, relocations, groups, strings.

Training reads one object per compilation, so this must cost far less than compiling: tables are numpy views of the
file, never one Python object per entry. The file is untrusted: every offset, size and index is checked, and nothing
larger than a small multiple of the file is allocated.

Format: System V ABI, gABI chapters 4 "Object Files" (https://www.sco.com/developers/gabi/latest/contents.html). Little
and big endian, 32 and 64 bits.
"""

import functools
import os
from pathlib import Path
from typing import Any

import numpy as np
from elftools.construct import ConstructError
from elftools.elf import enums
from elftools.elf.structs import ELFStructs
from numpy.typing import NDArray

from compiler_opt.errors import ProtocolError

MAX_FILE_BYTES = 1 << 31
"""Far above any object or program of interest; a bigger file is a mistake."""

SHT_SYMTAB = enums.ENUM_SH_TYPE_BASE["SHT_SYMTAB"]
SHT_RELA = enums.ENUM_SH_TYPE_BASE["SHT_RELA"]
SHT_NOBITS = enums.ENUM_SH_TYPE_BASE["SHT_NOBITS"]
SHT_REL = enums.ENUM_SH_TYPE_BASE["SHT_REL"]
SHT_GROUP = enums.ENUM_SH_TYPE_BASE["SHT_GROUP"]
SHT_SYMTAB_SHNDX = enums.ENUM_SH_TYPE_BASE["SHT_SYMTAB_SHNDX"]
STT_FUNC = enums.ENUM_ST_INFO_TYPE["STT_FUNC"]
SHN_LORESERVE = 0xFF00
SHN_XINDEX = 0xFFFF

_MAX_HEADER_BYTES = 64  # the 64-bit file header

# The names are those of pyelftools' `Elf_Shdr`, `Elf_Sym`, ..., without the prefix.
_SHDR_64 = "name:u4 type:u4 flags:u8 addr:u8 offset:u8 size:u8 link:u4 info:u4 addralign:u8 entsize:u8"
_SHDR_32 = "name:u4 type:u4 flags:u4 addr:u4 offset:u4 size:u4 link:u4 info:u4 addralign:u4 entsize:u4"
_SYM_64 = "name:u4 info:u1 other:u1 shndx:u2 value:u8 size:u8"
_SYM_32 = "name:u4 value:u4 size:u4 info:u1 other:u1 shndx:u2"
_REL_64 = "offset:u8 info:u8"
_REL_32 = "offset:u4 info:u4"
_RELA_64 = f"{_REL_64} addend:i8"
_RELA_32 = f"{_REL_32} addend:i4"

Array = NDArray[Any]  # structured or plain, as docstrings say; `[N]` is a shape


@functools.cache
def _dtype(fields: str, order: str) -> np.dtype:
    pairs = (field.split(":") for field in fields.split())
    return np.dtype([(name, order + kind) for name, kind in pairs])


@functools.cache
def _structs(little_endian: bool, bits: int) -> ELFStructs:
    structs = ELFStructs(little_endian, bits)
    structs.create_basic_structs()
    return structs


class FileRange:
    """A part of an open file that supports `len()` and slices like bytes, but is not in memory.

    The caller keeps the descriptor open and closes it. Reading beyond the end of the file raises OSError.
    """

    def __init__(self, descriptor: int, offset: int, size: int) -> None:
        self._descriptor = descriptor
        self._offset = offset
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> bytes:
        start, stop, _ = part.indices(self._size)
        wanted = max(0, stop - start)
        chunks = []
        while wanted:
            # One system call reads 2 GiB at most.
            chunk = os.pread(self._descriptor, wanted, self._offset + start)
            if not chunk:
                raise OSError(0, "the file became shorter while it was read")
            chunks.append(chunk)
            start += len(chunk)
            wanted -= len(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)


class ElfFile:
    """The tables of one ELF file.

    Attributes:
      path: the file, for messages.
      data: its content; a `FileRange` if only parts are needed.
      sections: `[S]` section headers, structured (`name type flags addr offset size link info addralign entsize`).

    Raises (every method):
      ProtocolError: the file is not ELF, is truncated, or a table points outside it.
    """

    def __init__(self, path: Path, data: bytes | FileRange) -> None:
        self.path = path
        self.data = data
        head = data[:_MAX_HEADER_BYTES]
        if len(head) < 16 or head[:4] != b"\x7fELF" or head[4] not in (1, 2) or head[5] not in (1, 2):
            raise self.error(f"expected an ELF object, found {head[:4]!r} of {len(data)} bytes; compile it again")
        self.bits = 32 * head[4]
        self.order = "<" if head[5] == 1 else ">"
        try:
            header = _structs(head[5] == 1, self.bits).Elf_Ehdr.parse(head)
        except ConstructError:
            raise self.error(f"truncated ELF header ({len(data)} bytes)") from None
        self.machine = header["e_machine"]
        self.sections = self._section_headers(header["e_shoff"], header["e_shnum"], header["e_shentsize"])
        self._name_table = header["e_shstrndx"]
        if self._name_table == SHN_XINDEX and len(self.sections):
            self._name_table = int(self.sections["link"][0])

    @classmethod
    def read(cls, path: Path) -> "ElfFile":
        """Reads a whole file."""
        try:
            size = path.stat().st_size
            if size > MAX_FILE_BYTES:
                raise ProtocolError(f"{path}: {size} bytes is over the limit of {MAX_FILE_BYTES} for an object file")
            data = path.read_bytes()
        except OSError as error:
            raise ProtocolError(f"{path}: cannot read the object file: {error.strerror}") from None
        return cls(path, data)

    def error(self, message: str) -> ProtocolError:
        return ProtocolError(f"{self.path}: {message}")

    def _section_headers(self, offset: int, count: int, entry_bytes: int) -> Array:
        dtype = _dtype(_SHDR_64 if self.bits == 64 else _SHDR_32, self.order)
        if offset == 0:
            return np.zeros(0, dtype)
        if entry_bytes != dtype.itemsize:
            raise self.error(f"expected section headers of {dtype.itemsize} bytes, found {entry_bytes}")
        if count == 0:  # more than 65,279: the count is in the first header
            count = int(self._table(offset, dtype.itemsize, dtype, "the first section header")["size"][0])
        return self._table(offset, count * dtype.itemsize, dtype, "the section headers")

    def _table(self, offset: int, size: int, dtype: np.dtype, what: str) -> Array:
        """A view of `size` bytes at `offset` as entries of `dtype`."""
        if offset < 0 or size < 0 or offset + size > len(self.data):
            raise self.error(
                f"{what} end at byte {offset + size} of a file of {len(self.data)}; it is cut short or corrupt"
            )
        if isinstance(self.data, bytes):
            return np.frombuffer(self.data, dtype, size // dtype.itemsize, offset)
        return np.frombuffer(self.data[offset : offset + size], dtype, size // dtype.itemsize)

    def section_table(self, index: int, dtype: np.dtype) -> Array:
        """The contents of section `index` as entries of `dtype`; empty for NOBITS."""
        section = self.sections[self.checked_index(index)]
        if section["type"] == SHT_NOBITS:
            return np.zeros(0, dtype)
        return self._table(int(section["offset"]), int(section["size"]), dtype, f"the contents of section {index}")

    def section_bytes(self, index: int) -> bytes:
        return self.section_table(index, np.dtype("u1")).tobytes()

    def checked_index(self, index: int) -> int:
        if not 0 <= index < len(self.sections):
            raise self.error(f"section index {index} is out of range; there are {len(self.sections)} sections")
        return index

    def strings(self, table: int, offsets: Array) -> list[str]:
        """The NUL-terminated strings at `offsets` of string table `table`.

        Their total length is bounded, as a hostile file may point many entries into one huge string.
        """
        contents = self.section_bytes(table)
        if not len(offsets):
            return []
        starts = offsets.astype(np.int64)
        ends_of_strings = np.flatnonzero(np.frombuffer(contents, np.uint8) == 0)
        which = np.searchsorted(ends_of_strings, starts)
        if int(which.max()) >= len(ends_of_strings):
            raise self.error(f"a name at byte {starts.max()} is outside string table {table} of {len(contents)} bytes")
        ends = ends_of_strings[which]
        if int((ends - starts).sum()) > 16 * len(self.data):
            raise self.error("names overlap so much that the file must be corrupt")
        return [
            contents[start:end].decode("utf-8", "backslashreplace")
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        ]

    def sections_named(self, name: str) -> list[int]:
        """Indices of the sections called `name`, found without decoding every name."""
        if not len(self.sections):
            return []
        names, wanted = self.section_bytes(self._name_table), name.encode() + b"\0"
        matches = []
        position = names.find(wanted)
        while position >= 0:  # a name may be the tail of another (`.eh_frame` of `.rela.eh_frame`)
            matches.append(position)
            position = names.find(wanted, position + 1)
        return np.flatnonzero(np.isin(self.sections["name"], matches)).tolist()

    def section_name(self, index: int) -> str:
        return self.strings(self._name_table, self.sections["name"][self.checked_index(index)][None])[0]

    def section_names(self) -> list[str]:
        return self.strings(self._name_table, self.sections["name"]) if len(self.sections) else []

    def identity(self) -> bytes:
        """The header's class, byte order, ABI, type, machine and machine flags."""
        flags = 48 if self.bits == 64 else 36
        return self.data[:20] + self.data[flags : flags + 4]

    def symbols(self, index: int) -> tuple[Array, Array]:
        """The symbol table in section `index`: `[N]` structured symbols (`name info shndx value size ...`).

        Also returns the `[N]` int64 section of each, -1 if it is undefined, absolute or common.
        """
        dtype = _dtype(_SYM_64 if self.bits == 64 else _SYM_32, self.order)
        symbols = self.section_table(index, dtype)
        sections = symbols["shndx"].astype(np.int64)
        extended = np.flatnonzero(sections == SHN_XINDEX)
        outside = (sections == 0) | (sections >= SHN_LORESERVE)
        sections[outside] = -1
        if len(extended):
            sections[extended] = self._extended_indices(index, len(symbols))[extended]
        if len(sections) and int(sections.max()) >= len(self.sections):
            raise self.error(f"a symbol is in section {sections.max()}; there are {len(self.sections)} sections")
        return symbols, sections

    def _extended_indices(self, symbol_table: int, num_symbols: int) -> Array:
        """`[N]` section indices of the symbols in an object with more than 65,279 sections."""
        is_table = (self.sections["type"] == SHT_SYMTAB_SHNDX) & (self.sections["link"] == symbol_table)
        for index in np.flatnonzero(is_table):
            indices = self.section_table(int(index), np.dtype(self.order + "u4"))
            if len(indices) >= num_symbols:
                return indices.astype(np.int64)
        raise self.error("symbols have extended section indices, but there is no table of them")

    def relocations(self, index: int) -> tuple[Array, Array, Array, Array | None]:
        """The relocations in section `index` (REL or RELA).

        Returns `[R]` int64 offsets, symbol indices, machine-specific types, and addends; None for the addends of REL,
        which are in the bytes to be relocated.
        """
        wide = self.bits == 64
        has_addends = self.sections["type"][self.checked_index(index)] == SHT_RELA
        layout = (_RELA_64 if wide else _RELA_32) if has_addends else (_REL_64 if wide else _REL_32)
        entries = self.section_table(index, _dtype(layout, self.order))
        info = entries["info"]
        if wide and self.machine == "EM_MIPS" and self.order == "<":  # its own layout: the symbol is the low half
            symbols, types = info & 0xFFFFFFFF, info >> 32
        elif wide:
            symbols, types = info >> 32, info & 0xFFFFFFFF
        else:
            symbols, types = info >> 8, info & 0xFF
        addends = entries["addend"].astype(np.int64) if has_addends else None
        return entries["offset"].astype(np.int64), symbols.astype(np.int64), types.astype(np.int64), addends

    def words(self, indices: Array) -> tuple[Array, Array]:
        """The concatenated contents of `[G]` sections of 32-bit words (groups).

        Returns `[W]` int64 words, and for each the position of its section in `indices`.
        """
        chosen = self.sections[indices]
        starts = chosen["offset"].astype(np.uint64)
        counts = chosen["size"].astype(np.uint64) // np.uint64(4)
        limit = np.uint64(len(self.data))
        if (starts > limit).any() or (counts > limit).any() or int(counts.sum()) * 4 > len(self.data):
            raise self.error("the section groups are larger than the file; it is cut short or corrupt")
        if ((starts + counts * np.uint64(4)) > limit).any():
            raise self.error("a section group ends after the file; it is cut short or corrupt")
        counts = counts.astype(np.int64)
        owner = np.repeat(np.arange(len(indices)), counts)
        within = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
        offsets = starts.astype(np.int64)[owner] + 4 * within
        file = np.frombuffer(self.data[:], np.uint8)
        words = file[offsets[:, None] + np.arange(4)]  # [W, 4]; a hostile file may not align them
        return words.view(self.order + "u4")[:, 0].astype(np.int64), owner
