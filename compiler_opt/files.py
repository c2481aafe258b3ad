"""Files and folders: atomic writes, bounded reads of untrusted files, exclusive folders, and text for messages."""

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
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from compiler_opt.errors import OutputError

_PARTIAL, _OLD = ".partial", ".old"
_TEMPORARY = re.compile(r"\.(.+)\.[a-z0-9_]{8}\.(partial|old)", re.DOTALL)
"""Temporary names of `write_atomically` and `replaced_folder`."""

_CHECKSUM = "sha256"
_SKEW_NS = 60 * 10**9
"""Files that others write at the same time may be newer than `newest` by so much."""
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
_MAX_DEPTH, _MAX_BITS = 64, 128
_TOO_DEEP = f"nested deeper than {_MAX_DEPTH} levels"


def write_atomically(path: Path, content: bytes, *, executable: bool = False, durable: bool = True) -> None:
    """Writes a file whole or not at all: an existing file stays until the new content is on disk.

    A durable file also survives a loss of power, at the cost of waiting for the disk.

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


def write_text(path: Path, text: str) -> None:
    """Writes UTF-8 text by `write_atomically`; stray bytes of names (lone surrogates) are escaped."""
    write_atomically(path, text.encode("utf-8", "backslashreplace"))


def write_json(path: Path, content: object) -> None:
    """Writes indented JSON by `write_atomically`."""
    write_atomically(path, (json.dumps(content, indent=1) + "\n").encode())


def write_checked_json(path: Path, content: Mapping[str, Any]) -> None:
    """Writes a JSON object with a checksum, for `read_checked_json`, by `write_atomically`."""
    write_atomically(path, json.dumps({**content, _CHECKSUM: _json_sha256(content)}).encode())


def parse_json(content: bytes | str) -> Any:
    """Parses JSON that anybody may have written: any number in it is a float, and any list can be walked by recursion.

    Raises:
      ValueError: it is not JSON, or refused by `check_plain`; the message is one line.
    """
    try:
        value = json.loads(content)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except ValueError as error:
        # Python itself refuses integers of thousands of digits, with advice for programmers.
        raise ValueError(one_line(str(error).partition(";")[0])) from None
    check_plain(value)
    return value


def check_plain(value: object) -> None:
    """Checks a value that was made of text: dictionaries, lists and tuples of numbers and text.

    Raises:
      ValueError: it is nested deeper than 64 levels, or has an integer of more than 128 bits, the largest that we write
        (of random generators).
    """
    level = [value]
    for _ in range(_MAX_DEPTH + 1):
        if any(type(each) is int and each.bit_length() > _MAX_BITS for each in level):
            raise ValueError(f"an integer of more than {_MAX_BITS} bits")
        inner = (
            each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list | tuple)
        )
        level = [each for values in inner for each in values]
        if not level:
            return
    raise ValueError(_TOO_DEEP)


def read_checked_json(path: Path, max_bytes: int = 1 << 30) -> dict[str, Any]:
    """Reads a file that `write_checked_json` has written.

    Raises:
      OSError: it cannot be read.
      ValueError: it is damaged; the message is one line.
    """
    try:
        content = parse_json(read_regular(path, max_bytes))
        if isinstance(content, dict) and content.pop(_CHECKSUM, None) == _json_sha256(content):
            return content
    except ValueError:
        raise ValueError("not JSON") from None
    raise ValueError("does not match its checksum")


def set_aside(path: Path) -> Path:
    """Renames a damaged file or folder to a free name `NAME.damaged[.N]`, and returns its new path.

    Raises:
      OutputError: it cannot be renamed.
    """
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
    """Yields a new folder, which replaces `folder`, if any, when the block ends without an exception.

    At every moment either the old folder or the new one exists, even if the process is killed. A folder has one writer
    at a time; temporaries of earlier writers are removed.

    Raises:
      OSError: something cannot be written.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    sweep_temporaries(folder.parent, folder.name)
    partial = _temporary_name(folder)
    partial.mkdir()
    try:
        yield partial
        _flush_tree(partial)
        if folder.is_dir():
            _exchange(partial, folder)
        else:
            partial.rename(folder)
        _flush(folder.parent)
    finally:
        # After an exchange, this is the old folder.
        shutil.rmtree(partial, ignore_errors=True)


def sweep_temporaries(folder: Path, name: str | None = None) -> None:
    """Removes temporaries, of `name` if given, that killed writers left in a folder that only this process writes.

    If a killed writer had moved a folder away and not replaced it yet, the folder is moved back.
    """
    with contextlib.suppress(OSError):
        for path in list(folder.iterdir()):
            found = _TEMPORARY.fullmatch(path.name)
            if found and name in (None, found[1]):
                moved = path / found[1]
                if moved.is_dir() and path.name.endswith(_OLD) and not (folder / found[1]).exists():
                    moved.rename(folder / found[1])
                _remove(path)


def _flush_tree(folder: Path) -> None:
    """Flushes all files of a folder, and their names, to disk."""
    for place, _, names in os.walk(folder):
        for path in (*(Path(place, name) for name in names), Path(place)):
            if not path.is_symlink():
                _flush(path)


def open_regular(path: Path) -> int:
    """Opens a regular file for reading and returns its descriptor. Other kinds of files may block or never end.

    Raises:
      OSError: it cannot be opened, or is not a regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, "expected a file, found something else")
    return descriptor


def read_regular(path: Path, max_bytes: int) -> bytes:
    """Reads a regular file, up to its size when it is opened; refuses a larger one without reading it.

    Raises:
      OSError: it cannot be read, is not a regular file, or is too large; `strerror` says so.
    """
    with os.fdopen(open_regular(path), "rb") as file:
        size_bytes = os.fstat(file.fileno()).st_size
        if size_bytes > max_bytes:
            raise OSError(errno.EFBIG, f"expected at most {max_bytes} bytes, found {size_bytes}")
        return file.read(size_bytes)


def size_and_sha256(path: Path) -> tuple[int, str]:
    """Size in bytes and hexadecimal SHA-256 of a file of any size.

    Raises:
      OSError: it cannot be read, or is not a regular file.
    """
    digest, size_bytes = hashlib.sha256(), 0
    with os.fdopen(open_regular(path), "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
            size_bytes += len(chunk)
    return size_bytes, digest.hexdigest()


def check_writable(path: Path) -> None:
    """Checks, before the work, that its result can be written to a file; creates nothing.

    Raises:
      OutputError: the path is a folder, or its folder can be neither created nor written.
    """
    if path.is_dir():
        raise OutputError(f"{path}: expected the name of a file, found a folder; add a name to it")
    check_folder_writable(path.parent, naming=path)


def check_folder_writable(folder: Path, *, naming: Path | None = None) -> None:
    """Checks, before the work, that its results can be written into a folder, which may not exist yet.

    Raises:
      OutputError: it can be neither created nor written; the message names the folder, or `naming`.
    """
    try:
        with tempfile.TemporaryFile(dir=nearest_folder(folder)):
            pass
    except OSError as error:
        raise OutputError(f"{naming or folder}: cannot be written: {error.strerror}; choose another folder") from error


@contextlib.contextmanager
def exclusive_directory(folder: Path, flag: str) -> Iterator[None]:
    """Creates a folder and locks it against other processes; removes it afterwards if it was new and is still empty.

    Temporaries of killed processes are removed.

    Raises:
      OutputError: it cannot be created or written, or another process works in it; the message asks for another one.
    """
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder}: expected the name of a folder, found a file; give another {flag}")
    check_folder_writable(folder)
    with contextlib.ExitStack() as cleanup:
        try:
            missing = [place for place in (folder, *folder.parents) if not place.is_dir()]
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise OutputError(f"{folder}: cannot be written: {error.strerror}; give another {flag}") from error
        cleanup.callback(os.close, descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OutputError(
                f"{folder}: another process is working in it; wait for it, or give another {flag}"
            ) from None
        except OSError:
            # Some network file systems cannot lock folders; there, avoiding conflicts is up to the user.
            pass
        else:
            sweep_temporaries(folder)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                for place in missing:
                    place.rmdir()


def remove_oldest(paths: Iterable[Path], keep: int, newest: Path | None = None) -> None:
    """Removes files and folders except the `keep` most recently modified ones.

    Those from the future, which a wrong clock has dated, count as the oldest. `newest` was just written, and stays: it
    tells the time of its file system, which may not be this machine's.
    """
    dates_ns: dict[Path, int] = {}
    for path in paths:
        # Another process may remove it at this moment.
        with contextlib.suppress(FileNotFoundError):
            dates_ns[path] = path.stat().st_mtime_ns
    now_ns = dates_ns.get(newest, time.time_ns()) if newest else time.time_ns()
    by_age = sorted(dates_ns, key=lambda path: (path == newest, dates_ns[path] <= now_ns + _SKEW_NS, dates_ns[path]))
    for path in by_age[: max(0, len(by_age) - keep)]:
        _remove(path)


def nearest_folder(folder: Path) -> Path:
    """The folder itself or, if it does not exist, its nearest existing parent."""
    absolute = folder.absolute()
    return next(place for place in (absolute, *absolute.parents) if os.path.lexists(place))


def default_cache_dir() -> Path:
    """The user's cache folder for this project: `$XDG_CACHE_HOME/compiler_opt`, or `~/.cache/compiler_opt`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "compiler_opt"


def printable(text: object) -> str:
    """A path or name for a message of one line: control characters and stray bytes are escaped."""
    text = str(text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def shown(value: object) -> str:
    """The `repr` of an untrusted value, cut to 80 characters for a message."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."


def one_line(text: str) -> str:
    """The text with each run of white space replaced by one space."""
    return " ".join(text.split())


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
    """Swaps the names of two folders, atomically if the file system can."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        failed = libc.renameat2(_AT_FDCWD, os.fsencode(new), _AT_FDCWD, os.fsencode(place), _RENAME_EXCHANGE)
    except AttributeError:  # Some C libraries lack it.
        failed = -1
    if failed:
        # If the process is killed between the two renames, `sweep_temporaries` moves the folder back.
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
    # The content as it is read back: all keys are strings.
    content = json.loads(json.dumps(content))
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _temporary_name(path: Path) -> Path:
    # File systems limit names to 255 bytes, so long ones are cut.
    return path.parent / f".{path.name[:200]}.{secrets.token_hex(4)}{_PARTIAL}"
