"""Objects of a build, their module names, and file types by magic bytes.

Build descriptions are untrusted input: paths may contain any bytes, and module names must stay inside the corpus.
"""

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from compiler_opt.errors import CorpusError
from compiler_opt.files import open_regular, printable

OBJECT_SUFFIXES = (".o", ".obj", ".lo")

HEAD_BYTES = 20
"""How many bytes of a file `kind_of` needs."""

ELF_OBJECT = "an object"
OTHER_OBJECT = "an object that is not ELF"
BITCODE = "LLVM bitcode"
ARCHIVE = "an archive"
THIN_ARCHIVE = "a thin archive"
OTHER = "no object"

_ELF_RELOCATABLE = 1
_MACH_O_MAGICS = (b"\xfe\xed\xfa\xce", b"\xfe\xed\xfa\xcf", b"\xce\xfa\xed\xfe", b"\xcf\xfa\xed\xfe")
_COFF_MACHINES = (b"\x4c\x01", b"\x64\x86", b"\x64\xaa", b"\xc4\x01")
"""x86, x86-64, AArch64 and ARM: COFF objects start with the machine type instead of a magic number."""


@dataclasses.dataclass(frozen=True)
class Member:
    """A member of an archive: its name, and the offset and size of its contents, in bytes.

    Linkers name a member by the offset of its header instead.
    """

    name: str
    offset: int
    size: int


@dataclasses.dataclass(frozen=True)
class ObjectFile:
    """An object of the build, and its module name.

    Attributes:
      path: the object or, for a member, its archive.
      name: the module's name.
      member: the object's place in an archive; None for a file.
    """

    path: Path
    name: str
    member: Member | None = None

    @property
    def shown(self) -> str:
        """Its name in messages."""
        return printable(self.path if self.member is None else f"{self.path}({self.member.name})")


@dataclasses.dataclass(frozen=True)
class Build:
    """The content of a build description.

    Attributes:
      objects: each once, with distinct names.
      skipped: paths that are not extracted, by reason (`archives`, ...).
      link_options: if the description is a link: options of the driver or of the linker itself.
    """

    objects: tuple[ObjectFile, ...]
    skipped: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    link_options: tuple[str, ...] = ()


def name_below(base: Path, path: Path) -> str | None:
    """The path relative to `base`, as a module name; None if it is outside. Both are absolute and normalised."""
    if path == base or not path.is_relative_to(base):
        return None
    return PurePosixPath(path.relative_to(base)).as_posix()


def normal(path: Path) -> Path:
    """Makes a path absolute and removes `..`, without resolving symlinks: build systems use unresolved paths."""
    return Path(os.path.normpath(path.absolute()))


def unique(objects: Iterable[ObjectFile], where: str) -> tuple[ObjectFile, ...]:
    """Removes duplicate objects, keeping the order.

    Raises CorpusError, whose message starts with `where`, if two objects have the same module name.
    """
    known: dict[str, ObjectFile] = {}
    for item in objects:
        first = known.setdefault(item.name, item)
        if first != item:
            raise CorpusError(
                f"{where}: {first.shown} and {item.shown} would both be module {printable(item.name)}; "
                "give the folder of all objects with --obj_base_dir"
            )
    return tuple(known.values())


def kind_of(head: bytes, name: str) -> str:
    """The type of a file: one of the constants above.

    Args:
      head: its first `HEAD_BYTES`.
      name: its name; a file with an object's suffix counts as one, so that extraction refuses it with a reason.
    """
    if head.startswith(b"!<arch>\n"):
        return ARCHIVE
    if head.startswith(b"!<thin>\n"):
        return THIN_ARCHIVE
    if head.startswith((b"BC\xc0\xde", b"\xde\xc0\x17\x0b")):
        return BITCODE
    if head.startswith(b"\x7fELF"):
        order = "big" if head[5:6] == b"\x02" else "little"
        return ELF_OBJECT if int.from_bytes(head[16:18], order) == _ELF_RELOCATABLE else OTHER  # type: ignore[arg-type]
    if head.startswith(_MACH_O_MAGICS):
        return OTHER_OBJECT
    if name.endswith(OBJECT_SUFFIXES):
        return OTHER_OBJECT if head.startswith(_COFF_MACHINES) else ELF_OBJECT
    return OTHER


def kind_of_file(path: Path) -> str | None:
    """The type of a file; None if it cannot be read and has no object's suffix: extraction reports objects."""
    try:
        descriptor = open_regular(path)
        try:
            return kind_of(os.pread(descriptor, HEAD_BYTES, 0), path.name)
        finally:
            os.close(descriptor)
    except OSError:
        return kind_of(b"", path.name) if path.name.endswith(OBJECT_SUFFIXES) else None


def listed(paths: Sequence[str], limit: int = 3) -> str:
    """Formats the first few paths for a message."""
    return ", ".join(map(printable, paths[:limit])) + (f" and {len(paths) - limit} more" if len(paths) > limit else "")


MAX_FILES = 1 << 22


def objects_of_directory(folder: Path, base: Path | None = None) -> Build:
    """Finds the objects in a tree, sorted by name. Module names are relative to `base`, by default the folder.

    Files with an object's suffix count as objects whatever they contain; extraction refuses them with a reason.
    Symlinks are skipped, since their targets would count twice or be outside the tree, and so are archives, since their
    objects are usually in the tree as well.

    Raises:
      CorpusError: it is not a folder, cannot be read, or is outside the base folder.
    """
    root = normal(folder)
    names_from = root if base is None else normal(base)
    objects: list[ObjectFile] = []
    skipped: dict[str, list[str]] = {}
    for path in _files_below(root, folder):
        name = name_below(names_from, path)
        if name is None:
            raise CorpusError(f"{folder}: is outside of {base}; give a folder that holds it with --obj_base_dir")
        if path.is_symlink():
            skipped.setdefault("links", []).append(name)
            continue
        kind = kind_of_file(path)
        if kind in (ARCHIVE, THIN_ARCHIVE):
            skipped.setdefault("archives", []).append(name)
        elif kind in (None, OTHER) or (kind == BITCODE and path.suffix == ".bc"):
            skipped.setdefault("files that are not objects", []).append(name)
        else:
            objects.append(ObjectFile(path, name))
    objects.sort(key=lambda item: item.name)
    return Build(tuple(objects), skipped)


def _files_below(root: Path, shown: Path) -> list[Path]:
    def fail(error: OSError) -> None:
        raise CorpusError(
            f"{error.filename}: cannot be read ({error.strerror}); give a folder of objects that can be read"
        ) from None

    if not root.is_dir():
        raise CorpusError(f"{shown}: expected a folder of objects, found none; give the folder of a build")
    paths: list[Path] = []
    for parent, _, names in os.walk(root, onerror=fail):
        paths += (Path(parent) / name for name in names)
        if len(paths) > MAX_FILES:
            raise CorpusError(f"{shown}: expected at most {MAX_FILES} files, found more; give a part of it")
    return paths
