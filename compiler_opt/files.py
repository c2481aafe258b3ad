"""Files and folders: written so that nobody sees half of one; read though others may mean ill; kept to one process."""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from compiler_opt.errors import OutputError


def write_atomically(path: Path, content: bytes, *, executable: bool = False) -> None:
    """Writes a file whole or not at all; what stood there stays until the new content is safely on disk.

    Args:
      path: the file.
      content: all of it.
      executable: whether it is a program.

    Raises:
      OutputError: the folder is not writable or the disk is full.
    """
    partial: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent)
        partial = Path(name)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes files for their owner only; these are ordinary ones.
        partial.chmod((0o777 if executable else 0o666) & ~_umask())
        partial.replace(path)
    except OSError as error:
        if partial is not None:
            with contextlib.suppress(OSError):
                partial.unlink()
        raise OutputError(
            f"{path}: cannot be written: {error.strerror}; what was there before is untouched; "
            "free space or choose another folder"
        ) from error


def write_json(path: Path, content: object) -> None:
    """Writes JSON for people to read, too, see `write_atomically`."""
    write_atomically(path, (json.dumps(content, indent=1) + "\n").encode())


def open_regular(path: Path) -> int:
    """A descriptor of a regular file, to read; anything else might block or have no end.

    Raises:
      OSError: it cannot be opened, or is something else.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, "expected a file, found something else")
    return descriptor


def read_regular(path: Path, max_bytes: int) -> bytes:
    """The contents of a regular file, as much as there is when it is opened; a larger one is not read at all.

    Raises:
      OSError: it cannot be read, is something else, or is larger; `strerror` says so.
    """
    with os.fdopen(open_regular(path), "rb") as file:
        size_bytes = os.fstat(file.fileno()).st_size
        if size_bytes > max_bytes:
            raise OSError(errno.EFBIG, f"expected at most {max_bytes} bytes, found {size_bytes}")
        return file.read(size_bytes)


def size_and_sha256(path: Path) -> tuple[int, str]:
    """Of a file, in bytes and in hexadecimal, however large it is.

    Raises:
      OSError: it cannot be read.
    """
    digest, size_bytes = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
            size_bytes += len(chunk)
    return size_bytes, digest.hexdigest()


def check_writable(path: Path) -> None:
    """Finds out before the work whether a file can be written after it; leaves everything as it is.

    Raises:
      OutputError: its folder cannot be made or written, or a folder is in the file's place.
    """
    if path.is_dir():
        raise OutputError(f"{path}: expected the name of a file, found a folder; add a name to it")
    check_folder_writable(path.parent, naming=path)


def check_folder_writable(folder: Path, *, naming: Path | None = None) -> None:
    """Finds out before the work whether files can be written into a folder after it; does not make it yet.

    Args:
      folder: the folder, which may still be missing.
      naming: what the message is to name instead.

    Raises:
      OutputError: it can be neither made nor written.
    """
    try:
        with tempfile.TemporaryFile(dir=nearest_folder(folder)):
            pass
    except OSError as error:
        raise OutputError(f"{naming or folder}: cannot be written: {error.strerror}; choose another folder") from error


@contextlib.contextmanager
def alone_in(folder: Path, flag: str) -> Iterator[None]:
    """Makes a folder, and sees to it that one process at a time works in it; goes without it when nothing comes of it.

    Args:
      folder: where the work is done.
      flag: by which the user gives another, for messages.

    Raises:
      OutputError: it cannot be made, or another process is at work in it.
    """
    try:
        is_new = not folder.is_dir()
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise OutputError(f"{folder}: cannot be written: {error.strerror}; give another {flag}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OutputError(
                f"{folder}: another process is working in it; wait for it, or give another {flag}"
            ) from None
        except OSError:
            # Some network file systems lock no folders. There, it is up to the user.
            pass
        try:
            yield
        finally:
            if is_new:
                with contextlib.suppress(OSError):
                    folder.rmdir()
    finally:
        os.close(descriptor)


def remove_oldest(paths: Iterable[Path], keep: int) -> None:
    """Removes all of some files and folders but so many, those that were changed last."""
    by_age = sorted(paths, key=lambda path: path.stat().st_mtime_ns)
    for path in by_age[: max(0, len(by_age) - keep)]:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def nearest_folder(folder: Path) -> Path:
    """The folder itself or, while it is missing, whatever exists of its parents: where it would be made."""
    absolute = folder.absolute()
    return next(place for place in (absolute, *absolute.parents) if os.path.lexists(place))


def default_cache_dir() -> Path:
    """Where what can be had again is kept: `$XDG_CACHE_HOME/compiler_opt`, or `~/.cache/compiler_opt`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "compiler_opt"


def printable(text: object) -> str:
    """A path or name as it can stand in a message of one line: control characters and stray bytes are escaped."""
    text = str(text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def shown(value: object) -> str:
    """A value of foreign input as it can stand in a message: as Python writes it, and not too long."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."


def _umask() -> int:
    value = os.umask(0)
    os.umask(value)
    return value
