"""Remote corpora: `s3://BUCKET/CORPUS`, `gs://...`, `file://`, `memory://` and whatever else fsspec supports.

Loading a corpus reads its description and lists the other files. Each is fetched by the process that first needs it,
and kept in a local cache (`cache.py`) by URL, size and version. Offline, the last listing and cached files are used.

fsspec and its package for the protocol are optional: `pip install 'compiler_opt[remote]' s3fs`.
"""

import contextlib
import dataclasses
import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import IO, Any

from compiler_opt.checked_values import read_json
from compiler_opt.corpus.cache import ContentCache
from compiler_opt.errors import CorpusError, OutputError
from compiler_opt.files import default_cache_dir, printable, write_atomically

_LOG = logging.getLogger(__name__)

MAX_FILES = 1_000_000
MAX_LISTING_BYTES = 1 << 28

_VERSIONS = ("ETag", "etag", "md5Hash", "generation", "VersionId", "mtime", "LastModified", "last_modified", "created")
"""What identifies the version of a file, by the names that file systems give it in listings."""


def is_url(path: object) -> bool:
    """Whether a path is an fsspec URL: `protocol://...` or `one::another://...`."""
    return (
        isinstance(path, str) and re.match(r"[A-Za-z][A-Za-z0-9+.-]*(::[A-Za-z][A-Za-z0-9+.-]*)*://", path) is not None
    )


@dataclasses.dataclass(frozen=True)
class RemoteFile:
    """A remote file, fetched when it is needed.

    Attributes:
      folder_url: the URL of its corpus.
      path: its path on that URL's file system; never part of a URL, where `::` has a meaning.
      size_bytes: its size when it was listed.
      version: identifies its content.
      cache: keeps the local copy.
    """

    folder_url: str
    path: str
    size_bytes: int
    version: str
    cache: ContentCache

    def fetch(self, check: Callable[[Path], None] | None = None) -> Path:
        """Returns the local copy.

        Args:
          check: validates a newly fetched file; raises CorpusError.

        Raises:
          CorpusError: it cannot be fetched, has changed since it was listed, or `check` refuses it.
          OutputError: the cache cannot be written.
        """
        key = "\0".join((self.folder_url, self.path, str(self.size_bytes), self.version))
        try:
            return self.cache.fetch(key, self.size_bytes, self._open, check)
        except CorpusError as error:
            raise CorpusError(f"{printable(self)}: {error}") from None

    def __str__(self) -> str:
        protocol, _, _ = self.folder_url.partition("://")
        return f"{protocol}://{self.path}"

    @contextlib.contextmanager
    def _open(self) -> Iterator[IO[bytes]]:
        # Each file system has its own errors; their only common base is Exception.
        try:
            system, _ = _file_system(self.folder_url)
            with system.open(self.path, "rb") as stream:
                yield stream
        except (CorpusError, OutputError):
            raise
        except Exception as error:
            raise CorpusError(
                f"cannot be fetched ({_reason(error)}); check the network and your permissions"
            ) from error


@dataclasses.dataclass(frozen=True)
class RemoteModule:
    """The remote files of a module: `NAME.bc` and, if they exist, `NAME.cmd` and `NAME.thinlto.bc`."""

    bitcode: RemoteFile
    command: RemoteFile | None = None
    thinlto_index: RemoteFile | None = None

    def fetch_bitcode(self, check: Callable[[Path], None]) -> Path:
        """Returns the local copy of the bitcode; with ThinLTO, the index is beside it, named as in a local corpus.

        Raises:
          CorpusError, OutputError: see `RemoteFile.fetch`.
        """
        bitcode = self.bitcode.fetch(check)
        if self.thinlto_index is None:
            return bitcode
        index = self.thinlto_index.fetch(check)
        return self.bitcode.cache.together({"module.bc": bitcode, "module.thinlto.bc": index}) / "module.bc"


@dataclasses.dataclass(frozen=True)
class RemoteFolder:
    """A remote folder and its files, by their path in it; `mirror` is a local folder of its name, with the listing."""

    url: str
    mirror: Path
    files: Mapping[str, RemoteFile]


def list_folder(url: str, cache_dir: Path | None = None) -> RemoteFolder:
    """Lists a remote folder; if that fails, returns the last listing.

    Listings and files are kept in `cache_dir`, by default in the user's cache.

    Raises:
      CorpusError: fsspec or the protocol's package is missing, or the folder cannot be listed and never was.
      OutputError: the cache cannot be written.
    """
    url = url.rstrip("/") if not url.endswith("://") else url
    place = (cache_dir or default_cache_dir() / "remote").absolute()
    name = PurePosixPath(url.partition("://")[2]).name
    mirror = (
        place / "corpora" / hashlib.sha256(url.encode("utf-8", "surrogatepass")).hexdigest()[:16] / (name or "corpus")
    )
    listing_path = mirror / "listing.json"
    try:
        listing = _listing(url)
    except CorpusError:
        raise
    except Exception as error:
        try:
            listing = read_json(listing_path, _Listing, max_bytes=MAX_LISTING_BYTES, error=CorpusError, remedy="")
        except (FileNotFoundError, CorpusError):
            raise CorpusError(
                f"{printable(url)}: cannot be listed ({_reason(error)}); check URL, network and permissions"
            ) from error
        _LOG.warning("%s: cannot be listed (%s); using the last listing", printable(url), _reason(error))
    else:
        if not listing.files:
            # Keep the last listing.
            return RemoteFolder(url, mirror, {})
        write_atomically(listing_path, json.dumps(dataclasses.asdict(listing)).encode())
    cache = ContentCache(place)
    files = {
        name: RemoteFile(url, f"{listing.root}/{name}", size_bytes, version, cache)
        for name, (size_bytes, version) in listing.files.items()
    }
    return RemoteFolder(url, mirror, files)


@dataclasses.dataclass(frozen=True)
class _Listing:
    """A folder's path on its file system, and the size and version of each file by its path in the folder."""

    root: str
    files: dict[str, tuple[int, str]]


def _listing(url: str) -> _Listing:
    system, root = _file_system(url)
    root = root.rstrip("/")
    found = system.find(root, detail=True)
    if len(found) > MAX_FILES:
        raise CorpusError(f"{printable(url)}: expected at most {MAX_FILES} files, found {len(found)}; give a corpus")
    files = {}
    for path, about in found.items():
        size_bytes = about.get("size")
        if path.startswith(f"{root}/") and isinstance(size_bytes, int) and about.get("type", "file") == "file":
            version = " ".join(str(about[key]) for key in _VERSIONS if about.get(key) is not None)
            files[path.removeprefix(f"{root}/")] = (size_bytes, version)
    return _Listing(root, files)


def _file_system(url: str) -> tuple[Any, str]:
    """The file system of a URL and the path on it; raises whatever that file system's constructor raises."""
    try:
        import fsspec
    except ImportError:
        raise CorpusError(
            f"{printable(url)}: needs the package fsspec, which is not installed; pip install 'compiler_opt[remote]', "
            "or copy the corpus and give its folder"
        ) from None
    try:
        system, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise CorpusError(
            f"{printable(url)}: fsspec lacks a package for this protocol ({_reason(error)}); install it by pip"
        ) from None
    except ValueError as error:
        raise CorpusError(
            f"{printable(url)}: expected a URL such as s3://BUCKET/CORPUS ({_reason(error)}); fix it"
        ) from None
    return system, str(path)


def _reason(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return printable(f"{type(error).__name__}: {text:.300}" if text else type(error).__name__)
