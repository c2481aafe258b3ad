"""The cost of a command that the kernel starts directly, as in a build."""

import os
from collections.abc import Sequence
from pathlib import Path

from compiler_opt.errors import CompileError
from compiler_opt.files import one_line


def spawn(command: Sequence[str], scratch: Path) -> tuple[float, float]:
    """Runs a command; returns CPU seconds and peak bytes of the largest process, of it and all that it started.

    Args:
      command: argument list; the first is the program's path.
      scratch: a folder of the caller's own.

    Raises:
      CompileError: it failed.
    """
    output = (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)
    errors = (os.POSIX_SPAWN_OPEN, 2, str(scratch / "stderr"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    child = os.posix_spawn(command[0], list(command), os.environ, file_actions=[output, errors])
    _, status, usage = os.wait4(child, 0)
    if status != 0:
        said = one_line((scratch / "stderr").read_text(errors="replace"))
        raise CompileError(f"{' '.join(command)}: exit status {os.waitstatus_to_exitcode(status)}: {said[:500]}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024.0
