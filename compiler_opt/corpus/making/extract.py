"""Extracts a corpus from a build whose objects embed their bitcode and command line.

With `-Xclang -fembed-bitcode=all`, clang puts the bitcode from before optimisation into section `.llvmbc` and the cc1
options, each terminated by NUL, into `.llvmcmd`. Names and layout are those of LLVM's mlgo-utils. An object that `ld
-r` made of several becomes the modules `X.o.0`, `X.o.1`, ...

`builds` lists the objects of a build; `thinlto.py` reads ThinLTO indexes. ELF is read in this process, and only the
headers, names and the two sections; other formats by `llvm-objcopy`.
"""

import contextlib
import dataclasses
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from compiler_opt.corpus import bitcode
from compiler_opt.corpus.builds.objects import BITCODE, ObjectFile, kind_of
from compiler_opt.corpus.making import thinlto
from compiler_opt.corpus.making.writing import CorpusWriter, MadeCorpus, map_with_failures
from compiler_opt.corpus.module import parse_options
from compiler_opt.corpus.validation import reading
from compiler_opt.errors import CorpusError
from compiler_opt.files import open_regular
from compiler_opt.llvm import processes
from compiler_opt.llvm.elf import MAX_FILE_BYTES, ElfFile, FileRange
from compiler_opt.llvm.sandbox import Sandbox
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
      check: whether the sections must hold bitcode and cc1 options.
    """

    bitcode_section: str = BITCODE_SECTION
    command_section: str = COMMAND_SECTION
    llvm_objcopy: Path | None = None
    check: bool = True

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
        if not self.check:
            return [Embedded(code, parse_options(commands))]
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
    """Reads a whole object file or archive member; raises CorpusError if it cannot be read, or is too large."""
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
        source = item.path.absolute()  # what begins with - or @ would not be taken for a file
        if item.member is not None:
            source = scratch / "member"
            source.write_bytes(read_object(item))
        for name in names:
            target = scratch / "section"
            command = [str(llvm_objcopy), f"--dump-section={name}={target}", str(source), os.devnull]
            result = processes.run(command, sandbox=Sandbox.for_folder(scratch))
            if not result.ok and "not found" not in result.stderr_tail:
                raise CorpusError(f"{item.shown}: {result.describe()}")
            contents.append(target.read_bytes() if result.ok else b"")
            target.unlink(missing_ok=True)
    return contents


def extract(
    objects: Sequence[ObjectFile],
    output_dir: Path,
    *,
    num_workers: int = 1,
    cmd_filter: str | None = None,
    llvm_objcopy: Path | None = None,
    bitcode_section: str = BITCODE_SECTION,
    command_section: str = COMMAND_SECTION,
    thinlto_base: Path | None = None,
    check: bool = True,
    overwrite: bool = False,
    progress: Callable[[int], Any] = lambda _: None,
) -> MadeCorpus:
    """Writes the modules of `objects` as a corpus; the description comes last, so a partial corpus has none.

    Args:
      objects: the objects to read.
      output_dir: the corpus folder.
      num_workers: objects read at a time.
      cmd_filter: keep only modules with an option in which this regular expression is found.
      llvm_objcopy: read sections with this program, for objects that are not ELF; by default with our ELF reader.
      bitcode_section: section with the bitcode.
      command_section: section with the options.
      thinlto_base: for the objects of a distributed ThinLTO build: the folder that its backends ran in; copies the
        ThinLTO index of each module.
      check: without it, each object is one module, whatever its sections hold.
      overwrite: write into a folder that is not empty.
      progress: called with 1 for each object done.

    Raises:
      CorpusError: no object has a usable module, or the filter is not a regular expression.
      OutputError: the folder cannot be written, or is not empty.
    """
    try:
        pattern = re.compile(cmd_filter or "")
    except re.error as error:
        raise CorpusError(f"--cmd_filter: {cmd_filter!r} is not a regular expression ({error})") from None
    reader = Reader(bitcode_section, command_section, llvm_objcopy, check)
    writer = CorpusWriter(output_dir, overwrite)
    taken = {item.name for item in objects}

    def extract_one(item: ObjectFile) -> int:
        """Writes the modules of an object; returns how many the filter dropped."""
        found = reader.read(item)
        compilations = {item.name if len(found) == 1 else f"{item.name}.{n}": each for n, each in enumerate(found)}
        if len(found) > 1 and (clash := next((name for name in compilations if name in taken), None)):
            raise CorpusError(
                f"{item.shown}: holds several modules, but {clash} is another object's name; extract it alone"
            )
        indexes: dict[str, bytes | None] = {}
        for name, (_, options) in compilations.items():
            if any(pattern.search(option) for option in options):
                indexes[name] = thinlto.read_index(item, options, thinlto_base) if thinlto_base is not None else None
        for name, index in indexes.items():
            writer.write_module(name, *compilations[name], index)
        return len(compilations) - len(indexes)

    dropped, refused = map_with_failures(extract_one, objects, num_workers, progress)
    if refused:
        if_empty = f"none of the {len(objects)} objects holds a module"
    elif objects:
        if_empty = f"--cmd_filter drops all {sum(dropped)} modules; give another one"
    else:
        if_empty = "there is no object to extract; give a build that has objects"
    failures = [(item.path, reason) for item, reason in refused]
    return writer.finish(failures, if_empty, filtered=sum(dropped), has_thinlto=thinlto_base is not None)
