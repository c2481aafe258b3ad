"""The standard streams of a command: pipes, files, or nobody who listens, as a case of a comparison has them."""

import os
import threading
import time

from tests.deploy.command_lines import Case
from tests.deploy.sources import LEAN

_SLOW_S = 0.2


class Streams:
    """The standard streams of a command, as its case has them."""

    def __init__(self, case: Case):
        self._case = case
        self._theirs: list[int] = []
        self._readers: list[tuple[threading.Thread, list[bytes]]] = []
        self.stdin = self._input(case.stdin)
        self.stdout, self.stderr = self._output(case.stdout), self._output(case.stderr)

    def __enter__(self) -> "Streams":
        return self

    def __exit__(self, *unused: object) -> None:
        self.close_theirs()

    def _input(self, way: str) -> int:
        if way == "pipe":
            ours, theirs = os.pipe()
            os.write(theirs, LEAN.encode())  # less than a pipe holds
            os.close(theirs)
        elif way == "file":
            ours = os.memfd_create("stdin")
            os.write(ours, LEAN.encode())
            os.lseek(ours, 0, os.SEEK_SET)
        else:
            ours = os.open(os.devnull, os.O_RDONLY)
        self._theirs.append(ours)
        return ours

    def _output(self, way: str) -> int:
        if way in ("full", "closed"):
            theirs = os.open("/dev/full", os.O_WRONLY)
        else:
            ours, theirs = os.pipe()
            if way == "unread":
                os.close(ours)
            else:
                os.set_blocking(theirs, way != "slow")
                chunks: list[bytes] = []
                thread = threading.Thread(target=_read, args=(ours, chunks, _SLOW_S if way == "slow" else 0.0))
                self._readers.append((thread, chunks))
        if way in ("full", "closed", "unread"):
            self._readers.append((threading.Thread(), []))
        self._theirs.append(theirs)
        return theirs

    def close_theirs(self) -> None:
        """Closes the command's ends, and begins to read."""
        while self._theirs:
            os.close(self._theirs.pop())
        for thread, _ in self._readers:
            if thread.ident is None:
                thread.start()

    def read(self) -> list[bytes]:
        """Standard output and error."""
        for thread, _ in self._readers:
            thread.join()
        return [b"".join(chunks) for _, chunks in self._readers]


def _read(file: int, chunks: list[bytes], wait_s: float) -> None:
    time.sleep(wait_s)
    while chunk := os.read(file, 1 << 16):
        chunks.append(chunk)
    os.close(file)
