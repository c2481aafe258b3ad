"""Checked reading of untrusted input: the paths and files of builds, and the files of a corpus.

The files of a corpus must be regular, its bitcode must be whole, and no symlink may leave it. `FileChecker` looks at
metadata and bitcode headers only. Its paths are plain strings: `Path` objects would double the time for a large corpus.
"""

import contextlib
import errno
import io
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from compiler_opt.checked_values import convert
from compiler_opt.corpus import bitcode
from compiler_opt.errors import CorpusError
from compiler_opt.files import parse_json, printable, read_regular, shown

REMAKE = "extract the corpus again"


@contextlib.contextmanager
def reading(path: object, remedy: str) -> Iterator[None]:
    """Makes an OSError a CorpusError: the path (or its name in messages) cannot be read, and the remedy."""
    try:
        yield
    except OSError as error:
        raise CorpusError(f"{printable(path)}: cannot be read ({error.strerror}); {remedy}") from None


def checked_path(text: object, where: str) -> str:
    """Returns a path from untrusted input if the operating system accepts it.

    Raises CorpusError, whose message starts with `where`, if it does not.
    """
    if not isinstance(text, str) or not text:
        raise CorpusError(f"{where}: expected a path, found {shown(text)}")
    try:
        # Python decodes bytes that are not UTF-8 to surrogates U+DC80 to U+DCFF; no path contains others.
        os.fsencode(text)
    except UnicodeEncodeError:
        raise CorpusError(f"{where}: expected a path, found characters that none can have ({shown(text)})") from None
    if "\0" in text:
        raise CorpusError(f"{where}: expected a path, found one with a NUL ({shown(text)})")
    return text


def resolved_within(path: Path, root: Path, remedy: str) -> Path:
    """Resolves the symlinks of a path, which must not leave the folder `root`.

    Raises:
      CorpusError: it leaves the folder, or is a dangling link; the message ends with the remedy.
    """
    try:
        resolved = path.resolve(strict=True)
    except (OSError, RuntimeError):
        raise CorpusError(f"{printable(path)}: is a dangling link; {remedy}") from None
    if not resolved.is_relative_to(root.resolve()):
        raise CorpusError(f"{printable(path)}: is a link that leaves the folder (to {printable(resolved)}); {remedy}")
    return resolved


class FileChecker:
    """Validates the files of one corpus; lists each folder once, which is cheaper than a stat per file."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._resolved_root = os.path.realpath(root)
        self._folders: dict[str, Mapping[str, bool]] = {}

    def check_module(self, name: str, *, has_command: bool) -> None:
        """Validates a module's bitcode, its `.cmd` file (if it needs one), and its ThinLTO index if present.

        Raises:
          CorpusError: a file is missing, truncated, not regular, or reached by a symlink out of the corpus.
        """
        path = os.path.join(self._root, name)  # noqa: PTH118
        folder, _, short = path.rpartition("/")
        bitcode_path = f"{path}.bc"
        try:
            files = self._folders.get(folder) or self._list(folder)
        except OSError as error:
            raise _unreadable(bitcode_path, error) from None
        self._check_bitcode(bitcode_path)
        for ending, is_needed in ((".thinlto.bc", False), (".cmd", has_command)):
            # True: a regular file, not a symlink.
            is_file = files.get(f"{short}{ending}")
            if is_file is False or (is_needed and is_file is None):
                self._check_file(f"{path}{ending}")

    def _list(self, folder: str) -> Mapping[str, bool]:
        """Lists a folder inside the corpus: whether each name is a regular file."""
        self._check_resolved(folder or "/")
        with os.scandir(folder or "/") as entries:
            files = {entry.name: entry.is_file(follow_symlinks=False) for entry in entries}
        self._folders[folder] = files
        return files

    def _check_file(self, path: str) -> None:
        """Raises CorpusError if a file is missing, not regular, or reached by a symlink out of the corpus."""
        try:
            mode = os.lstat(path).st_mode
            if stat.S_ISLNK(mode):
                self._check_resolved(path)
                mode = os.stat(path).st_mode  # noqa: PTH116
        except OSError as error:
            raise _unreadable(path, error) from None
        _check_regular(mode, path)

    def _check_bitcode(self, path: str) -> None:
        """Raises CorpusError if a file is missing or not whole bitcode."""
        try:
            descriptor = self._open(path)
            try:
                status = os.fstat(descriptor)
                _check_regular(status.st_mode, path)
                with io.FileIO(descriptor, closefd=False) as file:
                    wrong = bitcode.problem(file, status.st_size)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise _unreadable(path, error) from None
        if wrong:
            raise CorpusError(f"{printable(path)}: {wrong}; {REMAKE}")

    def _open(self, path: str) -> int:
        # O_NONBLOCK: opening a FIFO without a writer would block.
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            return os.open(path, flags | os.O_NOFOLLOW)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
        self._check_resolved(path)
        return os.open(path, flags)

    def _check_resolved(self, path: str) -> None:
        target = os.path.realpath(path, strict=True)
        if target != self._resolved_root and not target.startswith(self._resolved_root.rstrip("/") + "/"):
            raise CorpusError(f"{printable(path)}: is a link that leaves the corpus (to {printable(target)}); {REMAKE}")


def read_bitcode(path: Path, remedy: str, *, shown_as: object = None, max_bytes: int = bitcode.MAX_FILE_BYTES) -> bytes:
    """Reads a bitcode file of a build.

    Args:
      path: the file.
      remedy: what the user can do if it cannot be read.
      shown_as: its name in messages; by default the path.
      max_bytes: a larger file is not read.

    Raises:
      CorpusError: it cannot be read, is not bitcode, or is truncated.
    """
    name = path if shown_as is None else shown_as
    with reading(name, remedy):
        data = read_regular(path, max_bytes)
    bitcode.check(data, printable(name), "build it again")
    return data


def check_whole_bitcode(path: Path) -> None:
    """Raises CorpusError, without the path, if a file in our cache is not whole bitcode."""
    with path.open("rb") as file:
        wrong = bitcode.problem(file, os.fstat(file.fileno()).st_size)
    if wrong:
        raise CorpusError(f"{wrong}; {REMAKE}")


def _check_regular(mode: int, path: str) -> None:
    if not stat.S_ISREG(mode):
        raise CorpusError(f"{printable(path)}: expected a file, found something else; {REMAKE}")


def _unreadable(path: str, error: OSError) -> CorpusError:
    if isinstance(error, FileNotFoundError):
        return CorpusError(f"{printable(path)}: no such file, though the corpus lists its module; {REMAKE}")
    return CorpusError(f"{printable(path)}: cannot be read ({error.strerror}); {REMAKE}")


_Model = TypeVar("_Model")


def read_text(path: Path, max_bytes: int, wanted: str) -> str:
    """Reads UTF-8 or, with a byte order mark, UTF-16; raises CorpusError, which asks for `wanted`."""
    with reading(path, f"give {wanted}"):
        data = read_regular(path, max_bytes)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace")
    return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")


def read_json(path: Path, model: type[_Model], max_bytes: int, wanted: str) -> _Model:
    """Reads a JSON file into a model, see `checked_values`; raises CorpusError, which asks for `wanted`."""
    try:
        content = parse_json(read_text(path, max_bytes, wanted))
    except ValueError as error:
        raise CorpusError(f"{path}: expected JSON, found something else ({error}); give {wanted}") from None
    try:
        return convert(content, model)
    except ValueError as error:
        raise CorpusError(f"{path}: {error}; give {wanted}") from None
