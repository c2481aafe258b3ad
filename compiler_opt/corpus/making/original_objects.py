"""Finds the objects of a build that the modules of a corpus were extracted from, by the modules' names.

Module `X.o` comes from file `X.o` of the build, and `libx.a/member.o` from an archive member. If `X.o` is bitcode, as
in a ThinLTO build, the linker made its object, which lld keeps only with `-Wl,--save-temps=prelink`: next to `X.o`, as
`PROGRAM.lto.X.o`.
"""

import dataclasses
import os
from pathlib import Path, PurePosixPath

from compiler_opt.corpus.builds import archive
from compiler_opt.corpus.builds.objects import ARCHIVE, BITCODE, ObjectFile, kind_of_file, listed, normal
from compiler_opt.corpus.making.extract import BITCODE_SECTION, read_object
from compiler_opt.corpus.making.thinlto import IMPORTED_SUFFIX
from compiler_opt.corpus.validation import resolved_within
from compiler_opt.errors import CorpusError
from compiler_opt.files import printable
from compiler_opt.llvm.elf import ElfFile

_LTO_INFIX = ".lto."
_KEEP = "link with -Wl,--save-temps=prelink by lld, which then keeps it next to the bitcode"


@dataclasses.dataclass(frozen=True)
class OriginalObject:
    """An object of the build.

    Attributes:
      file: the object.
      code: the bitcode that it was compiled from, possibly with that of other modules; empty if the build kept none.
    """

    file: ElfFile
    code: bytes


class OriginalObjects:
    """Finds the objects of one build; lists each archive and folder once.

    Args:
      root: the folder that module names are relative to. It is untrusted: symlinks out of it are refused.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._archives: dict[Path, dict[str, ObjectFile]] = {}
        self._kept_objects: dict[Path, dict[str, list[str]]] = {}

    def find(self, name: str) -> ObjectFile:
        """Finds the object that a module comes from; raises CorpusError if there is none, or it is outside the root."""
        path = self._root / name
        if not os.path.lexists(path):
            parents = (self._root / parent for parent in PurePosixPath(name).parents)
            if (holder := next((parent for parent in parents if parent.is_file()), None)) is not None:
                return self._member(holder, name)
            if linked := self._linked(path):
                return linked
            raise CorpusError(self._missing(name))
        self._check(path)
        if kind_of_file(path) != BITCODE:
            return ObjectFile(path, name)
        if linked := self._linked(path):
            return linked
        raise CorpusError(f"{printable(path)}: is LLVM bitcode, and the linker did not keep its object; {_KEEP}")

    def read(self, name: str) -> OriginalObject:
        """Reads the object that a module was extracted from.

        Raises:
          CorpusError: see `find`.
          ProtocolError: it is not an ELF object, or damaged.
        """
        found = self.find(name)
        file = ElfFile(Path(found.shown), read_object(found))
        code = b"".join(file.section_bytes(index) for index in file.sections_named(BITCODE_SECTION))
        imported = self._root / f"{name}{IMPORTED_SUFFIX}"
        if not code and os.path.lexists(imported):
            self._check(imported)
            code = read_object(ObjectFile(imported, name))
        return OriginalObject(file, code)

    def _check(self, path: Path) -> None:
        """Raises CorpusError unless the path is a file, and inside the folder."""
        if not resolved_within(path, self._root, "build it again, or give the folder of the objects").is_file():
            raise CorpusError(f"{printable(path)}: expected an object, found something else")

    def _member(self, holder: Path, name: str) -> ObjectFile:
        self._check(holder)
        if kind_of_file(holder) != ARCHIVE:
            raise CorpusError(f"{printable(holder)}: expected an archive with {printable(name)}, found something else")
        if holder not in self._archives:
            members = archive.objects_of_archive(holder, normal(self._root))
            self._archives[holder] = {item.name: item for item in members}
        try:
            return self._archives[holder][name]
        except KeyError:
            raise CorpusError(
                f"{printable(holder)}: has no member for module {printable(name)}: built again since the extraction"
            ) from None

    def _linked(self, path: Path) -> ObjectFile | None:
        """The object that lld compiled from a bitcode file and kept, if there is one."""
        folder = path.parent
        if folder not in self._kept_objects:
            self._kept_objects[folder] = _kept_by_linker(folder)
        found = self._kept_objects[folder].get(f"{path.name.removesuffix('.o')}.o", [])
        if len(found) > 1:
            raise CorpusError(
                f"{printable(path)}: several links made an object of it ({listed(sorted(found))}); keep those of one"
            )
        if not found:
            return None
        self._check(folder / found[0])
        return ObjectFile(folder / found[0], path.name)

    def _missing(self, name: str) -> str:
        path = self._root / name
        whole, _, part = str(path).rpartition(".")
        if part.isdigit() and Path(whole).is_file():
            return (
                f"{printable(path)}: is a part of an object that a linker made of several (ld -r), so there is no "
                "object to compare it with; extract the objects that it was made of"
            )
        return f"{printable(path)}: no such object; give the folder that module names are relative to"


def _kept_by_linker(folder: Path) -> dict[str, list[str]]:
    """The names of files `PROGRAM.lto.NAME` by `NAME`; `PROGRAM` may contain `.lto.`, too."""
    found: dict[str, list[str]] = {}
    try:
        names = [path.name for path in folder.iterdir()]
    except OSError:
        return {}
    for name in names:
        parts = name.split(_LTO_INFIX)
        for first in range(1, len(parts)):
            found.setdefault(_LTO_INFIX.join(parts[first:]), []).append(name)
    return found
