r"""Lists the members of static libraries without reading their contents.

An archive starts with `!<arch>\n`, and each member with a 60-byte header: name (16), date (12), owner (6), group (6),
mode (8), size (10, decimal), and a backquote and a newline; headers are aligned to even bytes. Long names are in the
member `//`, terminated by `/\n` or NUL (GNU: the header has `/` and the offset there), or before the contents (BSD:
`#1/` and the length). In a thin archive (`!<thin>\n`) members are separate files, named relative to the archive's
folder.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from compiler_opt.corpus.builds.objects import HEAD_BYTES, OTHER, Member, ObjectFile, kind_of, name_below, normal
from compiler_opt.corpus.validation import checked_path, reading
from compiler_opt.errors import CorpusError
from compiler_opt.files import open_regular, printable

_MAGIC_BYTES = 8
_HEADER_BYTES = 60
_MAX_NAMES_BYTES = 1 << 28
_MAX_MEMBERS = 1 << 20
_GIVE_BASE = "give the folder of all objects with --obj_base_dir"
_SPECIAL = ("/", "/SYM64/", "//", "__.SYMDEF", "__.SYMDEF SORTED", "__.SYMDEF_64")


def objects_of_archive(path: Path, base: Path) -> list[ObjectFile]:
    """Lists the objects in an archive inside the folder `base`, to which module names are relative.

    They are `lib/libx.a/member.o`, or the paths of a thin archive's members.

    Raises:
      CorpusError: it cannot be read, is not an archive, is truncated, or a member is outside the base folder.
    """
    with reading(path, "build it again"):
        descriptor = open_regular(path)
        try:
            return _Archive(path, descriptor).objects(normal(base))
        finally:
            os.close(descriptor)


class _Archive:
    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._shown = printable(path)
        self._descriptor = descriptor
        self._size = os.fstat(descriptor).st_size
        self._thin = os.pread(descriptor, _MAGIC_BYTES, 0) == b"!<thin>\n"
        self._long_names = b""

    def objects(self, base: Path) -> list[ObjectFile]:
        if self._thin:
            return [self._file_of(member, base) for member in self._members()]
        prefix = name_below(base, normal(self._path))
        if prefix is None:
            raise CorpusError(f"{self._shown}: is outside of {base}; {_GIVE_BASE}")
        objects = []
        times_seen: dict[str, int] = {}
        for member in self._members():
            if kind_of(os.pread(self._descriptor, HEAD_BYTES, member.offset), member.name) == OTHER:
                continue
            # Members may share a name; only its last component is used, so that it stays inside.
            short = member.name.rpartition("/")[2]
            times_seen[short] = times_seen.get(short, 0) + 1
            name = short if times_seen[short] == 1 else f"{short}.{times_seen[short]}"
            if short in (".", ".."):
                raise self._error(f"has a member called {member.name!r}")
            objects.append(ObjectFile(self._path, f"{prefix}/{name}", member))
        return objects

    def _file_of(self, member: Member, base: Path) -> ObjectFile:
        """The file of a thin archive's member."""
        path = normal(self._path.parent / member.name)
        name = name_below(base, path)
        if name is None:
            raise CorpusError(f"{self._shown}: its member {printable(path)} is outside of {base}; {_GIVE_BASE}")
        return ObjectFile(path, name)

    def _members(self) -> Iterator[Member]:
        position = _MAGIC_BYTES
        for _ in range(_MAX_MEMBERS):
            header = os.pread(self._descriptor, _HEADER_BYTES, position)
            if not header:
                return
            size_text = header[48:58].strip()
            if len(header) < _HEADER_BYTES or header[58:] != b"`\n" or not size_text.isdigit():
                raise self._error(f"expected the header of a member at byte {position}, found something else")
            raw_name, size, start = header[:16].rstrip(b" "), int(size_text), position + _HEADER_BYTES
            is_special = raw_name.decode("latin-1") in _SPECIAL
            stored = size if is_special or not self._thin else 0
            if start + stored > self._size:
                raise self._error(f"a member ends at byte {start + stored} of {self._size} (truncated)")
            position = start + stored + stored % 2
            if raw_name == b"//":
                self._long_names = self._read(start, size)
            elif not is_special:
                name, skipped = self._name(raw_name, start, size)
                if name not in _SPECIAL:
                    yield Member(
                        checked_path(name, f"{self._shown}: name of a member"), start + skipped, size - skipped
                    )
        raise self._error(f"expected at most {_MAX_MEMBERS} members, found more")

    def _name(self, raw: bytes, start: int, size: int) -> tuple[str, int]:
        """A member's name, and how many bytes of the contents the name occupies."""
        if raw.startswith(b"#1/") and raw[3:].isdigit():
            length = int(raw[3:])
            if length > size:
                raise self._error("the name of a member is longer than the member")
            return os.fsdecode(self._read(start, length).rstrip(b"\0")), length
        if raw.startswith(b"/") and raw[1:].isdigit():
            offset = int(raw[1:])
            if offset >= len(self._long_names):
                raise self._error(f"the name of a member is at byte {offset} of {len(self._long_names)} of its names")
            ends = [end for end in (self._long_names.find(e, offset) for e in (b"/\n", b"\0")) if end >= 0]
            return os.fsdecode(self._long_names[offset : min(ends, default=None)]), 0
        if raw.startswith(b"/"):
            raise self._error(f"contains a member of a nested thin archive ({raw!r}); give its objects instead")
        return os.fsdecode(raw.removesuffix(b"/")), 0

    def _read(self, start: int, size: int) -> bytes:
        if size > _MAX_NAMES_BYTES:
            raise self._error(f"expected at most {_MAX_NAMES_BYTES} bytes of names, found {size}")
        return os.pread(self._descriptor, size, start)

    def _error(self, message: str) -> CorpusError:
        return CorpusError(f"{self._shown}: {message}; build the archive again")
