"""Libraries and objects that take seconds to build, kept in a folder that processes share.

    path = user_builds().get("mlgo-driver-1f2e.o", lambda: compile_it())    # builds it the first time

The name says all that the content depends on: `digest_of` identifies files and commands. Compilers load what is in the
folder, so nobody else may be able to change it: neither the files, nor the folder, nor one that it is in.
"""

import contextlib
import fcntl
import functools
import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from compiler_opt.errors import OutputError
from compiler_opt.files import default_cache_dir, write_atomically


class BuildCache:
    """Builds files and keeps them in a folder; only one process builds at a time."""

    def __init__(self, folder: Path):
        self._folder = folder

    def get(self, name: str, build: Callable[[], bytes]) -> Path:
        """The file of a name, built if the folder has none.

        Raises:
          OutputError: the folder cannot be written, or others can; also whatever `build` raises.
        """
        found = self.find(name)
        if found is not None:
            return found
        path = self._folder / name
        with self._locked():
            if not _is_own_file(path):
                write_atomically(path, build())
                path.chmod(0o644)  # also with a umask that lets others write
        return path

    def find(self, name: str) -> Path | None:
        """The file of a name, if the folder has it.

        Raises:
          OutputError: others can change the folder or the file.
        """
        path = self._folder / name
        if not os.path.lexists(path):
            return None
        check_own_folder(self._folder)
        return path if _is_own_file(path) else None

    def content(self, name: str, build: Callable[[], bytes]) -> bytes:
        """The content of that file; it is built each time if the folder cannot be written."""
        try:
            return self.get(name, build).read_bytes()
        except OutputError:
            return build()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Waits while another process builds something in the folder."""
        folder = self._folder
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            check_own_folder(folder)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            lock = os.fdopen(os.open(folder / "lock", flags, 0o600), "w")
        except OSError as error:
            raise OutputError(f"{folder}: cannot be written: {error.strerror}; set XDG_CACHE_HOME") from error
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def check_own_folder(folder: Path) -> None:
    """Checks that nobody but this user and root can put or replace anything in a folder, which exists.

    The same holds for the folders that it is in, and, if some are links, for those in which they end.

    Raises:
      OutputError: somebody else can; the message names the folder.
      OSError: a folder cannot be looked at.
    """
    resolved = folder.resolve()
    for place in dict.fromkeys((folder.absolute(), *folder.absolute().parents, resolved, *resolved.parents)):
        status = place.lstat()
        if status.st_uid not in _trusted_users():
            raise OutputError(
                f"{folder}: {place} belongs to another user, who could replace what compilers load from it; set "
                "XDG_CACHE_HOME to a folder of your own"
            )
        # In a folder with the sticky bit, such as /tmp, others cannot replace what is ours.
        is_shared = stat.S_ISDIR(status.st_mode) and _others_write(status) and not status.st_mode & stat.S_ISVTX
        if is_shared or (place == resolved and _others_write(status)):
            raise OutputError(
                f"{folder}: other users can write to {place}, and compilers load files from it; chmod go-w it, "
                "or set XDG_CACHE_HOME to another folder"
            )


def _is_own_file(path: Path) -> bool:
    """Whether there is a file.

    Raises:
      OutputError: it is a link or no file, or others can write it.
    """
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(status.st_mode) or status.st_uid not in _trusted_users() or _others_write(status):
        raise OutputError(f"{path}: expected a file that only you can write, found something else; remove it")
    return True


def _others_write(status: os.stat_result) -> bool:
    """Whether others may write, among whom is not the group of a user alone, which has his number."""
    mode = status.st_mode & (stat.S_IWOTH | (0 if status.st_gid == os.getuid() else stat.S_IWGRP))
    return bool(mode) and not stat.S_ISLNK(status.st_mode)


@functools.cache
def _trusted_users() -> frozenset[int]:
    """This user and root, who appears as nobody in a user namespace that has no number for him."""
    users = {0, os.getuid()}
    with contextlib.suppress(OSError, ValueError):
        if Path("/proc/self/uid_map").read_text().split() != ["0", "0", str((1 << 32) - 1)]:
            users.add(int(Path("/proc/sys/kernel/overflowuid").read_text()))
    return frozenset(users)


@functools.cache
def user_builds() -> BuildCache:
    """The one in the user's cache folder."""
    return BuildCache(default_cache_dir() / "plugins")


def digest_of(flags: Iterable[str], sources: Iterable[Path], binaries: Iterable[Path]) -> str:
    """20 hexadecimal digits that identify flags, sources by content, and binaries by path, size and time."""
    digest = hashlib.sha256(" ".join(flags).encode())
    for source in sources:
        digest.update(hashlib.sha256(source.read_bytes()).digest())
    for path in (binary.resolve() for binary in binaries):
        status = path.stat()
        digest.update(f"{path} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:20]
