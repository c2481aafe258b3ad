"""A content-addressed cache of fetched files.

    ROOT/content/ab/abcd...   a file, named by the SHA-256 of its content: equal content is stored once
    ROOT/sources/ef/efgh...   the content digest of a source, named by the SHA-256 of the source's key
    ROOT/together/ab...-cd... links to files that must be side by side

Files are written under a temporary name and renamed, so several processes may fetch the same file, and a killed one
leaves no partial file under a final name. Nothing is changed or removed afterwards.

fsspec's own caches (`filecache`, `simplecache`) would not do: they download whatever the source sends, of any length,
offer it unchecked, and either ask the source about each file that is opened or never notice that one has changed.
A corpus is untrusted input, and training must go on offline.
"""

import contextlib
import dataclasses
import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO

from compiler_opt.errors import CorpusError, OutputError
from compiler_opt.files import write_atomically

_CHUNK_BYTES = 1 << 20
_CHANGED = "it has changed since it was listed, or is damaged; load the corpus again"


@dataclasses.dataclass(frozen=True)
class ContentCache:
    """A cache in a folder.

    Attributes:
      root: the folder; created on the first write.
    """

    root: Path

    def find(self, key: str, size_bytes: int) -> Path | None:
        """The cached file of a source; None if it has not been fetched."""
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
        """Returns the cached file of a source, reading the source only if it is not cached yet.

        The key identifies the source and its version; `check` validates the file before it enters the cache.

        Raises:
          CorpusError: the source has another size, or `check` refuses the file.
          OutputError: the cache cannot be written.
        """
        found = self.find(key, size_bytes)
        if found is not None:
            return found
        with self._writing():
            self.root.mkdir(parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(dir=self.root, suffix=".partial")
        partial = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                with source() as stream:
                    digest = _copy(stream, file, size_bytes)
                file.flush()
                os.fsync(file.fileno())
            if check is not None:
                check(partial)
            path = self._content_path(digest)
            with self._writing():
                path.parent.mkdir(parents=True, exist_ok=True)
                partial.chmod(0o444)
                partial.replace(path)
        finally:
            with contextlib.suppress(OSError):
                partial.unlink()
        write_atomically(self._source_path(key), digest.encode())
        return path

    def together(self, contents: Mapping[str, Path]) -> Path:
        """Returns a folder with links to cached files by name; raises OutputError if it cannot be written."""
        folder = self.root / "together" / "-".join(path.name for path in contents.values())
        with self._writing():
            folder.mkdir(parents=True, exist_ok=True)
            for name, path in contents.items():
                # Another process may create the same link at the same time; it has the same target.
                with contextlib.suppress(FileExistsError):
                    (folder / name).symlink_to(path.absolute())
        return folder

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OutputError(
                f"{self.root}: cannot be written: {error.strerror}; free space, or set XDG_CACHE_HOME"
            ) from error

    def _source_path(self, key: str) -> Path:
        name = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
        return self.root / "sources" / name[:2] / name

    def _content_path(self, digest: str) -> Path:
        return self.root / "content" / digest[:2] / digest


def _copy(stream: IO[bytes], file: IO[bytes], size_bytes: int) -> str:
    """Copies `size_bytes` bytes and returns their SHA-256."""
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
