"""Files from elsewhere, kept by what they contain.

    ROOT/content/ab/abcd...   a file, named by the SHA-256 of what it holds: the same content is kept once
    ROOT/sources/ef/efgh...   which content a source gave, named by the SHA-256 of the source's key
    ROOT/together/ab...-cd... links to content that is looked for side by side

Everything is written aside and renamed: several processes may fetch the same file at once, and one that is killed
leaves nothing that looks like a file. Nothing is ever changed afterwards, or removed.
"""

import contextlib
import dataclasses
import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO

from compiler_opt.errors import CorpusError, OutputError
from compiler_opt.files import write_atomically

_CHUNK_BYTES = 1 << 20
_CHANGED = "it has changed meanwhile or is damaged; load the corpus again"


@dataclasses.dataclass(frozen=True)
class ContentCache:
    """A cache in a folder of its own.

    Attributes:
      root: the folder, which is made when it is needed.
    """

    root: Path

    def find(self, key: str, size_bytes: int) -> Path | None:
        """What the source of that key gave earlier; None when it has not been fetched."""
        try:
            digest = self._source_path(key).read_bytes()[:65].decode("ascii", "replace")
        except OSError:
            return None
        if not re.fullmatch(r"[0-9a-f]{64}", digest):
            return None
        path = self._content_path(digest)
        try:
            return path if path.stat().st_size == size_bytes else None
        except OSError:
            return None

    def fetch(
        self,
        key: str,
        size_bytes: int,
        source: Callable[[], AbstractContextManager[IO[bytes]]],
        check: Callable[[Path], None] | None = None,
    ) -> Path:
        """What the source of that key gives, asked for it only when that is not known.

        Args:
          key: names the source, and the version of what is there.
          size_bytes: how much it promises to be.
          source: opens it for reading.
          check: looks at the file before anyone else sees it; raises CorpusError when it is not what it should be.

        Raises:
          CorpusError: the source gives more or less than it promised, or `check` says so.
          OutputError: the cache cannot be written.
        """
        found = self.find(key, size_bytes)
        if found is not None:
            return found
        partial: Path | None = None
        try:
            with self._partial() as file:
                partial = Path(file.name)
                with source() as stream:
                    digest = _copy(stream, file, size_bytes)
                file.flush()
                os.fsync(file.fileno())
            if check is not None:
                check(partial)
            path = self._content_path(digest)
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                partial.chmod(0o444)
                partial.replace(path)
            except OSError as error:
                raise self._not_writable(error) from error
        except BaseException:
            if partial is not None:
                with contextlib.suppress(OSError):
                    partial.unlink()
            raise
        write_atomically(self._source_path(key), digest.encode())
        return path

    def together(self, contents: Mapping[str, Path]) -> Path:
        """A folder in which files of the cache stand side by side, by the names that are given.

        Raises:
          OutputError: the cache cannot be written.
        """
        folder = self.root / "together" / "-".join(path.name for path in contents.values())
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name, path in contents.items():
                # Whoever makes the same link at the same time makes it to the same file.
                with contextlib.suppress(FileExistsError):
                    (folder / name).symlink_to(path.absolute())
        except OSError as error:
            raise self._not_writable(error) from error
        return folder

    def _partial(self) -> "tempfile._TemporaryFileWrapper[bytes]":
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            return tempfile.NamedTemporaryFile(dir=self.root, suffix=".partial", delete=False)
        except OSError as error:
            raise self._not_writable(error) from error

    def _not_writable(self, error: OSError) -> OutputError:
        return OutputError(f"{self.root}: cannot be written: {error.strerror}; free space, or set XDG_CACHE_HOME")

    def _source_path(self, key: str) -> Path:
        name = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
        return self.root / "sources" / name[:2] / name

    def _content_path(self, digest: str) -> Path:
        return self.root / "content" / digest[:2] / digest


def _copy(stream: IO[bytes], file: IO[bytes], size_bytes: int) -> str:
    """Copies so many bytes; returns their SHA-256."""
    digest, num_bytes = hashlib.sha256(), 0
    while chunk := stream.read(min(_CHUNK_BYTES, size_bytes - num_bytes + 1)):
        num_bytes += len(chunk)
        if num_bytes > size_bytes:
            raise CorpusError(f"expected {size_bytes} bytes, found more; {_CHANGED}")
        digest.update(chunk)
        file.write(chunk)
    if num_bytes < size_bytes:
        raise CorpusError(f"expected {size_bytes} bytes, found {num_bytes}; {_CHANGED}")
    return digest.hexdigest()
