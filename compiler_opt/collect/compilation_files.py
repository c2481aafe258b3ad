"""The files of compilations, kept in a folder that the user names, to look into failures (`--explicit_temps_dir`).

    FOLDER/MODULE/POLICY-SEED/   command.txt   the command of each process, its exit status and the end of its stderr
                                 input.bc      the module
                                 and all that the compiler wrote: module.o, decisions.log, remarks.yaml, ...

Further compilations of a module under the same policy and seed get a number. When the folder's files are as large as
they may be, no more compilations are kept, and `FULL.txt` says so.
"""

import contextlib
import dataclasses
import fcntl
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

from compiler_opt.collect.compilation import Compilation
from compiler_opt.errors import CorpusError

COMMAND_FILE, INPUT_FILE, FULL_FILE = "command.txt", "input.bc", "FULL.txt"
_USED_FILE = ".bytes"


@dataclasses.dataclass(frozen=True)
class CompilationFiles:
    """A folder of compilations' files, into which several processes may write at a time; picklable.

    Attributes:
      folder: it; made if need be.
      max_bytes: how large all of its files together may be.
    """

    folder: Path
    max_bytes: int

    @contextlib.contextmanager
    def keeping(self, compilation: Compilation, policy: str) -> Iterator[None]:
        """On exit, also by an exception, moves what the compilation has written to a folder of its own."""
        before = set(compilation.scratch.iterdir())
        failure = ""
        try:
            yield
        except Exception as error:
            failure = str(error)
            raise
        finally:
            written = [path for path in compilation.scratch.iterdir() if path not in before and path.is_file()]
            # What cannot be kept, for lack of disk or of the module's file, is no reason to fail.
            with contextlib.suppress(OSError, CorpusError):
                self._keep(compilation, policy, written, failure)

    def _keep(self, compilation: Compilation, policy: str, written: list[Path], failure: str) -> None:
        bitcode = compilation.module.bitcode_path
        if not self._reserve(sum(path.stat().st_size for path in (*written, bitcode))):
            return
        parent = self.folder / compilation.module.name
        parent.mkdir(parents=True, exist_ok=True)
        place = _new_folder(parent, f"{re.sub(r'[^A-Za-z0-9_.-]', '_', policy)}-{compilation.seed}")
        (place / COMMAND_FILE).write_text(_described(compilation, failure), encoding="utf-8", errors="surrogateescape")
        shutil.copyfile(bitcode, place / INPUT_FILE)
        for path in written:
            shutil.move(path, place / path.name)

    def _reserve(self, num_bytes: int) -> bool:
        """Counts bytes as used, for all processes; False if there is no room for them."""
        self.folder.mkdir(parents=True, exist_ok=True)
        counter = os.open(self.folder / _USED_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(counter, fcntl.LOCK_EX)
            used = int(os.pread(counter, 32, 0) or b"0") + num_bytes
            if used > self.max_bytes:
                (self.folder / FULL_FILE).write_text(
                    f"Not all compilations are here: their files may take {self.max_bytes} bytes together.\n"
                )
                return False
            os.pwrite(counter, b"%d" % used, 0)
            return True
        finally:
            os.close(counter)


def _new_folder(parent: Path, name: str) -> Path:
    number = 1
    while True:
        place = parent / (name if number == 1 else f"{name}-{number}")
        try:
            place.mkdir()
        except FileExistsError:
            number += 1
        else:
            return place


def _described(compilation: Compilation, failure: str) -> str:
    """The compilation's processes, as text."""
    lines = [f"module: {compilation.module.name}", f"folder: {compilation.scratch}, which is removed"]
    if failure:
        lines.append(f"failure: {failure}")
    for process in compilation.processes:
        variables = (process.variables or {}).items()
        words = [f"{name}={value}" for name, value in variables if os.environ.get(name) != value]
        words += process.result.command
        status = "timed out" if process.result.timed_out else f"exit status {process.result.returncode}"
        lines += ["", shlex.join(words), f"{status}, {process.result.cpu_s:.3f} CPU s"]
        if process.result.stderr_tail:
            lines += ["stderr:", process.result.stderr_tail.rstrip("\n")]
    return "\n".join(lines) + "\n"
