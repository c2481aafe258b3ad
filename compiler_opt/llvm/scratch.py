"""Temporary directories that do not stay behind, not even when their owner is killed.

Each holds a lock for as long as its owner lives. A lock is dropped by the kernel however the owner dies, so whoever
comes next can tell a directory in use from one that was left, and removes the latter.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from compiler_opt.errors import OutputError

# Whatever else is called so in a folder of the user's is not ours to remove: the name is one that nobody gives.
_PREFIX = "compiler_opt-scratch-"
_LOCK = "lock"


@contextlib.contextmanager
def scratch_directory(parent: Path | None = None) -> Iterator[Path]:
    """A fresh directory, removed at the end; siblings whose owners are dead are removed at the start.

    Args:
      parent: where to make it; by default the system's temporary directory, in a folder of the user's own.

    Raises:
      OutputError: the parent cannot be written.
    """
    base = parent if parent is not None else Path(tempfile.gettempdir()) / f"compiler_opt-{os.getuid()}"
    try:
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        if base.stat().st_uid != os.getuid():
            raise OutputError(f"{base}: belongs to another user; set TMPDIR to a folder of your own")
        sweep(base)
        path, lock = _locked_directory(base)
    except OSError as error:
        raise OutputError(f"{base}: cannot make a temporary directory: {error.strerror}; set TMPDIR") from error
    try:
        yield path
    finally:
        remove_folder(path)
        os.close(lock)
        if parent is None:
            # Only succeeds for the last one out.
            with contextlib.suppress(OSError):
                base.rmdir()


def remove_folder(path: Path) -> None:
    """Removes a folder into which a compiler that was killed a moment ago may still be writing."""
    for pause_s in (0.0, 0.01, 0.1):
        time.sleep(pause_s)
        shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            return


@contextlib.contextmanager
def scratch_for_libraries() -> Iterator[Path]:
    """A scratch directory that is also where libraries put their temporary files; for programs of one thread.

    TensorFlow writes the code that it generates into files that it removes at the program's end, so a killed program
    leaves them.
    """
    with scratch_directory() as path:
        before = tempfile.tempdir
        tempfile.tempdir = str(path)
        try:
            yield path
        finally:
            tempfile.tempdir = before


def sweep(base: Path) -> int:
    """Removes the scratch directories below `base` whose owners are dead; returns how many."""
    removed = 0
    for path in base.glob(f"{_PREFIX}*"):
        try:
            lock = os.open(path / _LOCK, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            # Just made, its lock not yet there: whoever sweeps next will see it. A minute is ample.
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < time.time() - 60:
                    shutil.rmtree(path, ignore_errors=True)
                    removed += 1
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        else:
            # An owner that is about to lock it notices, and makes another one.
            shutil.rmtree(path, ignore_errors=True)
            removed += 1
        finally:
            os.close(lock)
    return removed


def _locked_directory(base: Path) -> tuple[Path, int]:
    """Makes a directory with its lock held; makes another one if it is swept before it is locked."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
        lock = os.open(path / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.fstat(lock).st_nlink:
            return path, lock
        os.close(lock)
