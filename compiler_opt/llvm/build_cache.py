"""Files that take seconds to build, kept in a folder that processes share.

    path = user_builds().get("mlgo-driver-1f2e.o", lambda: compile_it())    # builds it the first time

The name says all that the content depends on: `digest_of` identifies files and commands.
"""

import contextlib
import fcntl
import functools
import hashlib
import os
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
          OutputError: the folder cannot be written; also whatever `build` raises.
        """
        path = self._folder / name
        with self._locked():
            if not path.is_file():
                write_atomically(path, build())
        return path

    def find(self, name: str) -> Path | None:
        """The file of a name, if the folder has it."""
        path = self._folder / name
        return path if path.is_file() else None

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
            if folder.stat().st_uid != os.getuid():
                raise OutputError(f"{folder}: belongs to another user; set XDG_CACHE_HOME to a folder of your own")
            lock = (folder / "lock").open("w")
        except OSError as error:
            raise OutputError(f"{folder}: cannot be written: {error.strerror}; set XDG_CACHE_HOME") from error
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


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
