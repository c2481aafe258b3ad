"""Compares two relocatable ELF objects section by section, ignoring some sections.

Removing a section moves others, renumbers sections and symbols, and changes the string table. References by number are
therefore compared by their targets: relocations and groups by symbols and sections, symbols by their names. All other
contents are compared byte by byte. Objects without differences become identical when the ignored sections are removed
from both (a test does this with `llvm-objcopy`).
"""

import dataclasses
import re
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
from elftools.elf import enums

from compiler_opt.files import printable
from compiler_opt.llvm import elf
from compiler_opt.llvm.elf import Array, ElfFile

HEADER = "ELF header"
ORDER = "order of sections"
"""Names of differences that are not in one section."""

_SHT_STRTAB = enums.ENUM_SH_TYPE_BASE["SHT_STRTAB"]
_SHT_ADDRSIG = 0x6FFF4C03
"""LLVM's table of address-significant symbols: indices as ULEB128."""

_NUMBERED = re.compile(r"((?:\..*\.)?\.L.*)\.\d+")
"""Private names that the compiler gives to constants, with the number that distinguishes them; with `-fdata-sections`
they are part of section names such as `.rodata..Lswitch.table.f.41`."""

_Key = tuple[str, int]
"""A section: its name, and how many sections of that name precede it."""


@dataclasses.dataclass(frozen=True)
class SectionDifference:
    """A section that differs between two objects.

    Attributes:
      section: its name, or `HEADER` or `ORDER`.
      original_bytes: its size in the first object; None if that has no such section.
      rebuilt_bytes: the same for the second.
      num_different: how many bytes, or entries of a table, differ or are in one object only; 0 if only the section
        header differs.
    """

    section: str
    original_bytes: int | None
    rebuilt_bytes: int | None
    num_different: int

    def describe(self) -> str:
        """A few words, e.g. `.text: 12 differences in 345 bytes`."""
        name = printable(self.section)
        if self.section in (HEADER, ORDER):
            return name
        if self.original_bytes is None:
            return f"{name}: not in the original"
        if self.rebuilt_bytes is None:
            return f"{name}: missing"
        if self.num_different == 0:
            return f"{name}: flags or links"
        if self.original_bytes != self.rebuilt_bytes:
            return f"{name}: {self.original_bytes} bytes became {self.rebuilt_bytes}"
        return f"{name}: {self.num_different} differences in {self.original_bytes} bytes"


def compare(
    original: ElfFile, rebuilt: ElfFile, ignored: Collection[str] = (), *, private_numbers: bool = True
) -> tuple[SectionDifference, ...]:
    """The sections that differ between two relocatable objects, in the order of the original.

    Sections with `ignored` names are ignored in both. Without `private_numbers`, `.Lstr.3` and `.Lstr.52` are the same,
    as symbols and as parts of section names. Raises ProtocolError if an object is malformed.
    """
    numbers: dict[Any, int] = {}
    first, second = (_Contents(file, ignored, numbers, private_numbers) for file in (original, rebuilt))
    differences = []
    if original.identity() != rebuilt.identity():
        differences.append(SectionDifference(HEADER, None, None, 0))
    for key, index in first.sections.items():
        if key not in second.sections:
            differences.append(SectionDifference(key[0], first.size(index), None, first.size(index)))
            continue
        other = second.sections[key]
        count = _num_different(first.contents(index), second.contents(other))
        if count or first.header(index) != second.header(other):
            differences.append(SectionDifference(key[0], first.size(index), second.size(other), count))
    for key, index in second.sections.items():
        if key not in first.sections:
            differences.append(SectionDifference(key[0], None, second.size(index), second.size(index)))
    if not differences and list(first.sections) != list(second.sections):
        differences.append(SectionDifference(ORDER, None, None, 0))
    return tuple(differences)


class _Contents:
    """The compared sections of one object, with contents that are comparable between objects.

    Args:
      numbers: numbers of symbols and sections, shared by both objects: equal ones get the same number.

    Attributes:
      sections: indices by key, in the order of the file.
    """

    def __init__(self, file: ElfFile, ignored: Collection[str], numbers: dict[Any, int], private_numbers: bool):
        self._file = file
        self._private_numbers = private_numbers
        self._numbers = numbers
        self._keys: list[_Key | None] = []
        self.sections: dict[_Key, int] = {}
        counts: dict[str, int] = {}
        names = file.section_names()
        shown = names if private_numbers else [_without_number(name) for name in names]
        for index, name in enumerate(names):
            target = int(file.sections["info"][index]) if _is_relocation(file, index) else index
            if name in ignored or (target < len(names) and names[target] in ignored):
                self._keys.append(None)
                continue
            key = (shown[index], counts.get(shown[index], 0))
            counts[key[0]] = key[1] + 1
            self._keys.append(key)
            self.sections[key] = index
        self._symbols: dict[int, tuple[Array, Array]] = {}

    def size(self, index: int) -> int:
        return int(self._file.sections["size"][index])

    def header(self, index: int) -> tuple[Any, ...]:
        """The section header, except where the contents are."""
        header = self._file.sections[index]
        kind = int(header["type"])
        info: Any = int(header["info"])
        if kind == elf.SHT_GROUP:
            info = self._symbols_of(int(header["link"]), np.array([info])).tolist()
        elif kind == elf.SHT_SYMTAB:
            info = None  # the number of local symbols, which the entries show too
        elif _is_relocation(self._file, index):
            info = self._key(info)
        link = int(header["link"])
        fields = tuple(int(header[name]) for name in ("type", "flags", "addr", "addralign", "entsize"))
        return (*fields, self._key(link) if link else None, info)

    def contents(self, index: int) -> Array:
        """`[N]` bytes, or `[N, K]` int64 entries."""
        kind = int(self._file.sections["type"][self._file.checked_index(index)])
        if kind == elf.SHT_SYMTAB:
            numbers, kept = self._symbol_table(index)
            return numbers[kept][:, None]
        if kind == elf.SHT_GROUP:
            return self._group(index)
        if kind == elf.SHT_SYMTAB_SHNDX or kind == _SHT_STRTAB:
            # Their entries are compared where they are used.
            return np.zeros(0, np.uint8)
        if kind == elf.SHT_NOBITS:
            return np.full((1, 1), self.size(index), np.int64)
        if _is_relocation(self._file, index):
            return self._relocations(index)
        if kind == _SHT_ADDRSIG:
            indices = _uleb128(self._file.section_bytes(index))
            return self._symbols_of(int(self._file.sections["link"][index]), indices)[:, None]
        return self._file.section_table(index, np.dtype(np.uint8))

    def _numbered(self, things: Iterator[Any]) -> Array:
        numbers = self._numbers
        return np.fromiter((numbers.setdefault(thing, len(numbers)) for thing in things), np.int64)

    def _key(self, index: int) -> _Key | None:
        return self._keys[self._file.checked_index(index)]

    def _group(self, index: int) -> Array:
        words, _ = self._file.words(np.array([index]))
        members = (self._key(member) for member in words[1:].tolist())
        kept = self._numbered(member for member in members if member is not None)
        return np.concatenate([words[:1], kept])[:, None]

    def _relocations(self, index: int) -> Array:
        offsets, symbols, types, addends = self._file.relocations(index)
        columns = [offsets, types, self._symbols_of(int(self._file.sections["link"][index]), symbols)]
        return np.stack(columns if addends is None else [*columns, addends], axis=1)

    def _symbols_of(self, table: int, indices: Array) -> Array:
        """The `[N]` numbers of the symbols at these indices of a symbol table."""
        numbers, _ = self._symbol_table(table)
        if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < len(numbers):
            raise self._file.error(f"symbol {indices.max()} is referred to; there are {len(numbers)} symbols")
        return numbers[indices]

    def _symbol_table(self, index: int) -> tuple[Array, Array]:
        """The `[N]` number of each symbol, and `[N]` whether its section is compared."""
        if index not in self._symbols:
            symbols, sections = self._file.symbols(self._file.checked_index(index))
            names = self._file.strings(int(self._file.sections["link"][index]), symbols["name"])
            if not self._private_numbers:
                names = [_without_number(name) for name in names]
            # Without a section it is undefined, absolute or common, according to the field itself.
            keys = [
                self._keys[section] if section >= 0 else (f"#{shndx}", 0)
                for section, shndx in zip(sections.tolist(), symbols["shndx"].tolist(), strict=True)
            ]
            fields = (symbols[name].tolist() for name in ("info", "other", "value", "size"))
            numbers = self._numbered(zip(names, keys, *fields, strict=True))
            self._symbols[index] = numbers, np.array([key is not None for key in keys], bool)
        return self._symbols[index]


def _without_number(name: str) -> str:
    return match[1] if (match := _NUMBERED.fullmatch(name)) else name


def _is_relocation(file: ElfFile, index: int) -> bool:
    return int(file.sections["type"][index]) in (elf.SHT_RELA, elf.SHT_REL)


def _num_different(first: Array, second: Array) -> int:
    """How many entries differ by position, plus the difference in length."""
    shared = min(len(first), len(second))
    same = first[:shared] == second[:shared] if first.shape[1:] == second.shape[1:] else np.zeros(shared, bool)
    return int(shared - np.count_nonzero(same.all(axis=tuple(range(1, same.ndim))))) + abs(len(first) - len(second))


def _uleb128(data: bytes) -> Array:
    """`[N]` int64: the numbers of a ULEB128 table; bits above 63 are dropped."""
    values, value, shift = [], 0, 0
    for byte in data:
        if shift < 56:
            value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            values.append(value)
            value = shift = 0
    return np.array(values, np.int64)
