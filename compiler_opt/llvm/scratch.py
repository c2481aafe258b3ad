"""Temporary directories that are removed even if their owner is killed.

The owner of a directory holds a lock on it, which the kernel releases when the owner dies. The next process to create
one removes the directories whose lock is free.
"""

import contextlib
import fcntl
import os
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from compiler_opt.errors import OutputError
from compiler_opt.files import default_cache_dir

# Directories with this prefix are removed, even from a folder of the user's, so the name must be ours alone.
_PREFIX = "compiler_opt-scratch-"
_LOCK = "lock"
_MAX_ATTEMPTS = 100


@contextlib.contextmanager
def scratch_directory(parent: Path | None = None) -> Iterator[Path]:
    """Creates a directory and removes it at the end; also removes those of dead owners beside it.

    `parent` is by default a folder of the user's in the system's temporary directory or, if nothing can be executed
    there, in the user's cache: compilers load plugins from scratch directories.

    Raises:
      OutputError: the parent cannot be written.
    """
    base = parent if parent is not None else _default_base()
    try:
        path, lock = _created(base, follow_symlinks=parent is not None)
    except OSError as error:
        raise OutputError(f"{base}: cannot make a temporary directory: {error.strerror}; set TMPDIR") from error
    try:
        yield path
    finally:
        remove_folder(path)
        os.close(lock)
        if parent is None:
            # Succeeds only once it is empty.
            with contextlib.suppress(OSError):
                base.rmdir()


def _default_base() -> Path:
    temporary = Path(tempfile.gettempdir())
    if os.statvfs(temporary).f_flag & os.ST_NOEXEC:
        return default_cache_dir() / "scratch"
    return temporary / f"compiler_opt-{os.getuid()}"


def remove_folder(path: Path) -> None:
    """Removes a folder into which a compiler that was just killed may still be writing, whatever is in it."""
    for pause_s in (0.0, 0.01, 0.1):
        time.sleep(pause_s)
        with contextlib.suppress(RecursionError):
            shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            return
    # Folders of any depth and permissions, as a compiler that was taken over may leave.
    for command in (["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
        subprocess.run([*command, "--", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


@contextlib.contextmanager
def scratch_for_libraries() -> Iterator[Path]:
    """A scratch directory that libraries also use for their temporary files; for single-threaded programs.

    TensorFlow writes generated code to files that it removes only at the end of the program, so a killed program leaves
    them behind.
    """
    with scratch_directory() as path:
        before = tempfile.tempdir
        tempfile.tempdir = str(path)
        try:
            yield path
        finally:
            tempfile.tempdir = before


def sweep(base: Path) -> int:
    """Removes the scratch directories in `base` whose owners are dead; returns their number."""
    removed = 0
    for path in base.glob(f"{_PREFIX}*"):
        try:
            lock = os.open(path / _LOCK, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            # A new directory has no lock yet; after a minute, its owner must have died before locking it.
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < time.time() - 60:
                    remove_folder(path)
                    removed += 1
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        else:
            # An owner that is about to lock it will notice, and create another.
            remove_folder(path)
            removed += 1
        finally:
            os.close(lock)
    return removed


def _created(base: Path, *, follow_symlinks: bool) -> tuple[Path, int]:
    """A new directory in `base`, which is created if need be, and its lock."""
    attempts = 0
    while True:
        try:
            base.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Anybody may have made a link of our name in the system's folder.
            status = base.stat(follow_symlinks=follow_symlinks)
            if status.st_uid != os.getuid() or not stat.S_ISDIR(status.st_mode):
                raise OutputError(f"{base}: is a link, or belongs to another user; set TMPDIR to a folder of your own")
            sweep(base)
            return _locked_directory(base)
        except (FileNotFoundError, FileExistsError):
            # Another process has removed `base`, which was empty, between two of these steps, or within `mkdir`.
            attempts += 1
            if attempts == _MAX_ATTEMPTS:
                raise


def _locked_directory(base: Path) -> tuple[Path, int]:
    """Creates and locks a directory; creates another if it is removed before it is locked."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
        lock = os.open(path / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.fstat(lock).st_nlink:
            return path, lock
        os.close(lock)
