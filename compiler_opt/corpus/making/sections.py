"""Reads the bitcode and the options embedded in objects.

ELF is read in this process, and only the headers, names and the two sections; other formats by `llvm-objcopy`.
"""

import contextlib
import dataclasses
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from compiler_opt.corpus import bitcode
from compiler_opt.corpus.builds.objects import BITCODE, ObjectFile, kind_of
from compiler_opt.corpus.module import parse_options
from compiler_opt.corpus.validation import reading
from compiler_opt.errors import CorpusError
from compiler_opt.files import open_regular
from compiler_opt.llvm import processes
from compiler_opt.llvm.elf import MAX_FILE_BYTES, ElfFile, FileRange
from compiler_opt.llvm.scratch import scratch_directory

BITCODE_SECTION = ".llvmbc"
COMMAND_SECTION = ".llvmcmd"

MAX_SECTION_BYTES = 1 << 30

_COMMAND_START = re.compile(rb"(?<=\0)(?=-cc1\0)")
_EMBED = "compile with -Xclang -fembed-bitcode=all"


class Embedded(NamedTuple):
    """A compilation embedded in an object: its bitcode and its cc1 options."""

    code: bytes
    options: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Reader:
    """Reads embedded compilations.

    Attributes:
      bitcode_section: section with the bitcode.
      command_section: section with the options.
      llvm_objcopy: the program to read them with; None for our ELF reader.
    """

    bitcode_section: str = BITCODE_SECTION
    command_section: str = COMMAND_SECTION
    llvm_objcopy: Path | None = None

    def read(self, item: ObjectFile) -> list[Embedded]:
        """Reads the compilations in an object; several if a linker made it of several (`ld -r`).

        Raises:
          CorpusError: the object has none, or different numbers of bitcode files and command lines.
          ProtocolError: it is not an object, or damaged.
        """
        names = (self.bitcode_section, self.command_section)
        if self.llvm_objcopy is None:
            code, commands = _read_sections(item, names)
        else:
            code, commands = _dump_sections(item, names, self.llvm_objcopy)
        missing = [name for name, content in zip(names, (code, commands), strict=True) if not content]
        if missing:
            raise CorpusError(f"{item.shown}: has no section {' and '.join(missing)}; {_EMBED}")
        if code == b"\0":
            raise CorpusError(
                f"{item.shown}: {self.bitcode_section} is a marker without bitcode (-fembed-bitcode=marker); {_EMBED}"
            )
        self._check_bitcode(item, code)
        try:
            # Each command line starts with `-cc1`.
            command_lines = [parse_options(part) for part in _COMMAND_START.split(commands)]
        except CorpusError as error:
            raise CorpusError(f"{item.shown}: {self.command_section}: {error}; compile it again") from None
        try:
            codes = bitcode.split(code)
        except ValueError as error:
            raise CorpusError(f"{item.shown}: {self.bitcode_section}: {error}; compile it again") from None
        if len(codes) != len(command_lines):
            raise CorpusError(
                f"{item.shown}: holds {len(codes)} pieces of bitcode and {len(command_lines)} command lines (ld -r); "
                "give the objects that it was made of"
            )
        for piece in codes[1:]:
            self._check_bitcode(item, piece)
        return [Embedded(*pair) for pair in zip(codes, command_lines, strict=True)]

    def _check_bitcode(self, item: ObjectFile, code: bytes) -> None:
        bitcode.check(code, f"{item.shown}: {self.bitcode_section}", "compile it again")


def read_object(item: ObjectFile) -> bytes:
    """Reads a whole object file or archive member.

    Raises:
      CorpusError: it cannot be read, or is too large.
    """
    with _opened(item) as content:
        return content[:]


def _read_sections(item: ObjectFile, names: Sequence[str]) -> list[bytes]:
    """Reads sections of an ELF object by name; empty for those that it lacks."""
    with _opened(item) as data:
        if kind_of(data[:20], item.path.name) == BITCODE:
            raise CorpusError(
                f"{item.shown}: is LLVM bitcode, of a build with -flto; extract the objects that its backends make, or "
                "the link's files, see --thinlto_build"
            )
        elf = ElfFile(Path(item.shown), data)
        contents = []
        for name in names:
            sections = elf.sections_named(name)
            if sum(int(elf.sections["size"][index]) for index in sections) > MAX_SECTION_BYTES:
                raise CorpusError(f"{item.shown}: expected at most {MAX_SECTION_BYTES} bytes in {name}, found more")
            contents.append(b"".join(elf.section_bytes(index) for index in sections))
        return contents


@contextlib.contextmanager
def _opened(item: ObjectFile) -> Iterator[FileRange]:
    """The contents of an object file or archive member; raises CorpusError if they cannot be read or are too large."""
    with reading(item.shown, "build it again"):
        descriptor = open_regular(item.path)
        try:
            file_bytes = os.fstat(descriptor).st_size
            offset, size = (0, file_bytes) if item.member is None else (item.member.offset, item.member.size)
            if offset + size > file_bytes:
                raise CorpusError(
                    f"{item.shown}: ends at byte {offset + size} of {file_bytes}; build the archive again"
                )
            if size > MAX_FILE_BYTES:
                raise CorpusError(
                    f"{item.shown}: {size} bytes is over the limit of {MAX_FILE_BYTES} for an object file"
                )
            yield FileRange(descriptor, offset, size)
        finally:
            os.close(descriptor)


def _dump_sections(item: ObjectFile, names: Sequence[str], llvm_objcopy: Path) -> list[bytes]:
    """Reads sections by name with `llvm-objcopy`; empty for those that the object lacks."""
    contents = []
    with scratch_directory() as scratch:
        source = item.path
        if item.member is not None:
            source = scratch / "member"
            source.write_bytes(read_object(item))
        for name in names:
            target = scratch / "section"
            command = [str(llvm_objcopy), f"--dump-section={name}={target}", str(source), os.devnull]
            result = processes.run(command)
            if not result.ok and "not found" not in result.stderr_tail:
                raise CorpusError(f"{item.shown}: {result.describe()}")
            contents.append(target.read_bytes() if result.ok else b"")
            target.unlink(missing_ok=True)
    return contents
