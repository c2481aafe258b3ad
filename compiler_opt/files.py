"""Files and folders: written so that nobody sees half of one; read though others may mean ill; kept to one process."""

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from compiler_opt.errors import OutputError

_PARTIAL, _OLD = ".partial", ".old"
_TEMPORARY = re.compile(r"\.(.+)\.[a-z0-9_]{8}\.(partial|old)", re.DOTALL)
"""The temporary files and folders of `write_atomically` and `replaced_folder`."""

_CHECKSUM = "sha256"
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


def write_atomically(path: Path, content: bytes, *, executable: bool = False, durable: bool = True) -> None:
    """Writes a file whole or not at all; what stood there stays until the new content is safely on disk.

    Args:
      path: the file.
      content: all of it.
      executable: whether it is a program.
      durable: also survive a loss of power, at the cost of waiting for the disk.

    Raises:
      OutputError: the folder is not writable or the disk is full.
    """
    partial: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        name = _temporary_name(path)
        # Unlike tempfile's, an ordinary file, to which the system applies the umask. O_EXCL follows no symlink.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(name, flags, 0o777 if executable else 0o666)
        partial = name
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
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


def write_checked_json(path: Path, content: Mapping[str, Any]) -> None:
    """Writes a JSON object that `read_checked_json` knows to be whole, see `write_atomically`."""
    write_atomically(path, json.dumps({**content, _CHECKSUM: _json_sha256(content)}).encode())


def read_checked_json(path: Path, max_bytes: int = 1 << 30) -> dict[str, Any]:
    """Reads what `write_checked_json` has written.

    Raises:
      OSError: it cannot be read.
      ValueError: it is damaged; the message says so in one line.
    """
    try:
        content = json.loads(read_regular(path, max_bytes))
        if isinstance(content, dict) and content.pop(_CHECKSUM, None) == _json_sha256(content):
            return content
    except (ValueError, RecursionError):
        raise ValueError("not JSON") from None
    raise ValueError("not what its checksum says")


def set_aside(path: Path) -> Path:
    """Renames what is damaged, a file or a folder, so that it is out of the way and not lost; returns its new name."""
    for number in range(1, 1000):
        aside = path.with_name(f"{path.name}.damaged" + (f".{number}" if number > 1 else ""))
        if not os.path.lexists(aside):
            break
    try:
        path.rename(aside)
    except OSError as error:
        raise OutputError(f"{path}: is damaged, and cannot be renamed: {error.strerror}; remove it") from error
    return aside


@contextlib.contextmanager
def replaced_folder(folder: Path) -> Iterator[Path]:
    """A new folder that takes the place of another, or of none, when all went well; until then the old one stands.

    At no moment is there none: killed, the program has left the old folder or the new one. A folder has one writer at
    a time; what earlier ones have left half-written is removed.

    Args:
      folder: the place.

    Raises:
      OSError: something cannot be written.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    sweep_temporaries(folder.parent, folder.name)
    partial = _temporary_name(folder)
    partial.mkdir()
    try:
        yield partial
        flush_tree(partial)
        if folder.is_dir():
            _exchange(partial, folder)
        else:
            partial.rename(folder)
        _flush(folder.parent)
    finally:
        # The old one, if all went well.
        shutil.rmtree(partial, ignore_errors=True)


def sweep_temporaries(folder: Path, name: str | None = None) -> None:
    """Removes what killed writers have left beside the files and folders of a folder that is ours alone.

    A folder that one of them was about to replace, and had moved away, is put back.

    Args:
      folder: where they wrote.
      name: of the file or folder whose leftovers to remove; by default everyone's.
    """
    with contextlib.suppress(OSError):
        for path in list(folder.iterdir()):
            found = _TEMPORARY.fullmatch(path.name)
            if found and name in (None, found[1]):
                moved = path / found[1]
                if moved.is_dir() and path.name.endswith(_OLD) and not (folder / found[1]).exists():
                    moved.rename(folder / found[1])
                _remove(path)


def flush_tree(folder: Path) -> None:
    """Sees to it that all files of a folder, and their names, are on disk.

    Raises:
      OSError: they cannot be written.
    """
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place, name)
            if not path.is_symlink():
                _flush(path)
        _flush(Path(place))


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
def exclusive_directory(folder: Path, flag: str) -> Iterator[None]:
    """Makes a folder in which one process at a time works; removes it again if it was new and is still empty.

    Half-written files of killed processes are removed.

    Args:
      folder: where the work is done.
      flag: by which the user gives another, for messages.

    Raises:
      OutputError: it cannot be made, or another process is at work in it.
    """
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder}: expected the name of a folder, found a file; give another {flag}")
    try:
        missing = [place for place in (folder, *folder.parents) if not place.is_dir()]
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
        else:
            sweep_temporaries(folder)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                for place in missing:
                    place.rmdir()
    finally:
        os.close(descriptor)


def remove_oldest(paths: Iterable[Path], keep: int) -> None:
    """Removes all of some files and folders but so many, those that were changed last."""
    by_age = sorted(paths, key=lambda path: path.stat().st_mtime_ns)
    for path in by_age[: max(0, len(by_age) - keep)]:
        _remove(path)


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


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _exchange(new: Path, place: Path) -> None:
    """Has two folders change names: in one step, where the file system can."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        failed = libc.renameat2(_AT_FDCWD, os.fsencode(new), _AT_FDCWD, os.fsencode(place), _RENAME_EXCHANGE)
    except AttributeError:  # Not in every C library.
        failed = -1
    if failed:
        # Killed between the two renames, the program leaves what `sweep_temporaries` puts back.
        aside = Path(tempfile.mkdtemp(prefix=f".{place.name}.", suffix=_OLD, dir=place.parent))
        place.rename(aside / place.name)
        try:
            new.rename(place)
        except OSError:
            (aside / place.name).rename(place)
            raise
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def _json_sha256(content: Any) -> str:
    # As it comes back from the file, where all keys are strings.
    content = json.loads(json.dumps(content))
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _temporary_name(path: Path) -> Path:
    # A name of up to 255 bytes is possible: one that is longer than most is cut.
    return path.parent / f".{path.name[:200]}.{secrets.token_hex(4)}{_PARTIAL}"
