"""Writing files so that nobody ever sees half of one."""

import contextlib
import os
import tempfile
from pathlib import Path

from compiler_opt.errors import OutputError


def write_atomically(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all; what stood there stays until the new content is safely on disk.

    Raises:
      OutputError: the folder is not writable or the disk is full.
    """
    partial: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, partial = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes files for their owner only; these are ordinary ones.
        os.chmod(partial, 0o666 & ~_umask())
        os.replace(partial, path)
    except OSError as error:
        if partial is not None:
            with contextlib.suppress(OSError):
                os.unlink(partial)
        raise OutputError(
            f"{path}: cannot be written: {error.strerror}; what was there before is untouched; free space or choose another folder"
        ) from error


def _umask() -> int:
    value = os.umask(0)
    os.umask(value)
    return value
