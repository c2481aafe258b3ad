"""The program that starts compilers for a worker: `native/launcher.c`, built in a moment and kept in the user's cache.

It takes the place of what Python would do between fork and exec, which costs several milliseconds of every compilation.
"""

import hashlib
import os
import shutil
from pathlib import Path

from compiler_opt.errors import CompilerOptError, ToolchainError
from compiler_opt.files import default_cache_dir, write_atomically
from compiler_opt.llvm import processes
from compiler_opt.llvm.scratch import scratch_directory

SOURCE = Path(__file__).parents[1] / "native" / "launcher.c"

_TIMEOUT_S = 120.0


def find_launcher(clang: Path, cache_dir: Path | None = None) -> Path | None:
    """The launcher, from the cache or built now; None when it cannot be had, which only costs time.

    Args:
      clang: compiles it; it needs the C library's headers.
      cache_dir: by default the user's.
    """
    folder = (cache_dir or default_cache_dir()) / "plugins"
    path = folder / f"launcher-{hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:20]}"
    try:
        if not path.is_file():
            write_atomically(path, _build(clang), executable=True)
        trial = processes.run([str(path), str(os.getpid()), str(1 << 30), shutil.which("true") or "true"])
    except (CompilerOptError, OSError):
        return None
    return path if trial.ok else None


def _build(clang: Path) -> bytes:
    with scratch_directory() as scratch:
        program = scratch / "launcher"
        # Without shared libraries it is there sooner; not every system has what that takes.
        for linking in ("-static", "-pie"):
            command = [str(clang), "-O2", "-s", "-fPIE", linking, str(SOURCE), "-o", str(program)]
            result = processes.run(command, timeout_s=_TIMEOUT_S)
            if result.ok:
                return program.read_bytes()
    raise ToolchainError(f"{clang}: cannot build {SOURCE.name}: {result.describe()}")
