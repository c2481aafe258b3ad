"""Files that compilations read, such as those of a module, on their way to a node and in its cache.

    ROOT/modules/1f2e.../NAME.bc, NAME.cmd, NAME.thinlto.bc    a module, named by the digest of its files
    ROOT/policies/KEY/policy.pickle, network.mlgo, ...         a policy, see `PolicyFolder`

Several processes may use a cache, also those of several nodes with one home folder: a bundle appears whole, under its
final name, and is checked by its digest when a process first uses it.
"""

import contextlib
import dataclasses
import functools
import hashlib
import os
import shutil
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from compiler_opt.collect.policy_folder import PickledPolicy, PolicyFolder
from compiler_opt.corpus.command_lines.command_line import INDEX_SUFFIX, index_path
from compiler_opt.corpus.module import Module
from compiler_opt.corpus.validation import REMAKE, reading
from compiler_opt.errors import CorpusError, OutputError, ResourceError
from compiler_opt.files import remove_oldest

MODULES, POLICIES = "modules", "policies"

_MIN_FREE_BYTES = 1 << 30
"""What a cache leaves of its disk."""
_WANTED_FREE_SHARE = 0.1
"""Unless so much of the disk is free, bundles that nobody uses are removed."""
_UNUSED_S = 3600.0
"""A bundle that was not used for so long is in no run's way."""
_TOUCH_S = 600.0
_MAX_SHARED_BYTES = 1 << 26
_MAX_POLICIES = 64
"""Of all runs that share a cache; each uses the newest few."""


@dataclasses.dataclass(frozen=True)
class Bundle:
    """Identifies files that belong together.

    Attributes:
      path: the folder in a cache, such as `modules/1f2e...`.
      names: their paths in it.
      digest: of names and contents, see `digest_of`.
    """

    path: str
    names: tuple[str, ...]
    digest: str


def digest_of(files: Mapping[str, bytes]) -> str:
    """The hexadecimal SHA-256 of files, by name."""
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        digest.update(f"{name}\0{len(content)}\0".encode("utf-8", "surrogateescape"))
        digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()


def module_files(module: Module) -> dict[str, bytes]:
    """A module's files by name, as in a corpus folder; fetches those of a remote corpus.

    Raises:
      CorpusError: one is missing.
    """
    bitcode = module.bitcode_path
    # As compilations do, it reads the options first.
    paths = {".cmd": module.command_path} if module.command_override is None else {}
    paths[".bc"] = bitcode
    if index_path(bitcode).is_file():
        paths[INDEX_SUFFIX] = index_path(bitcode)
    found = {}
    for suffix, path in paths.items():
        with reading(path, REMAKE):
            found[f"{module.name}{suffix}"] = path.read_bytes()
    return found


def folder_files(folder: Path) -> dict[str, bytes]:
    """The files in a folder by name, without its folders; raises OSError if one cannot be read."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def module_bundle(files: Mapping[str, bytes]) -> Bundle:
    """The bundle of `module_files`."""
    digest = digest_of(files)
    return Bundle(f"{MODULES}/{digest}", tuple(sorted(files)), digest)


def policy_bundle(key: str, files: Mapping[str, bytes]) -> Bundle:
    """The bundle of a policy's files."""
    return Bundle(f"{POLICIES}/{key}", tuple(sorted(files)), digest_of(files))


class SharedFiles:
    """The host's side: what jobs read, put where nodes can fetch it."""

    def __init__(self, put: Callable[[Mapping[str, bytes]], Any], max_bytes: int = _MAX_SHARED_BYTES):
        """Threads may share it.

        Args:
          put: makes files available, and returns a reference to them; such as `ray.put`.
          max_bytes: of files that it keeps available for jobs to come.
        """
        self._put, self._max_bytes = put, max_bytes
        self._bundles: dict[tuple[Path, str], Bundle] = {}
        self._references: OrderedDict[tuple[Path, str], tuple[Any, int]] = OrderedDict()
        self._num_bytes = 0
        self._lock = threading.Lock()

    def of_job(self, module: Module, policy: PickledPolicy, folder: PolicyFolder) -> list[tuple[Bundle, list[Any]]]:
        """What a job reads: each bundle with the reference to its files, in a list, or Ray would fetch it.

        Raises:
          CorpusError: a file is missing or has changed.
          OSError: a file cannot be read.
        """
        found = [self._share((module.root, module.name), functools.partial(module_files, module), module_bundle)]
        for key in policy.keys:
            path = folder.path(key)
            read, bundle_of = functools.partial(folder_files, path), functools.partial(policy_bundle, key)
            found.append(self._share((path, key), read, bundle_of))
        return found

    def _share(
        self,
        place: tuple[Path, str],
        read: Callable[[], dict[str, bytes]],
        bundle_of: Callable[[Mapping[str, bytes]], Bundle],
    ) -> tuple[Bundle, list[Any]]:
        with self._lock:
            if place in self._references:
                self._references.move_to_end(place)
                return self._bundles[place], [self._references[place][0]]
        files = read()
        bundle, reference, num_bytes = bundle_of(files), self._put(files), sum(map(len, files.values()))
        with self._lock:
            if self._bundles.setdefault(place, bundle) != bundle:
                raise CorpusError(f"{place[1]}: its files have changed since it was first compiled; start again")
            self._num_bytes += num_bytes - self._references.get(place, (None, 0))[1]
            self._references[place] = reference, num_bytes
            while self._num_bytes > self._max_bytes and len(self._references) > 1:
                oldest, (_, freed) = self._references.popitem(last=False)
                self._num_bytes -= freed
                if self._bundles[oldest].path.startswith(POLICIES):
                    # It will not be wanted again, and there may be thousands.
                    del self._bundles[oldest]
        return bundle, [reference]


class BundleCache:
    """The bundles in a folder, which is made with the first one."""

    def __init__(self, root: Path, min_free_bytes: int = _MIN_FREE_BYTES):
        """`min_free_bytes`: what it leaves of the disk."""
        self.root = root
        self._min_free_bytes = min_free_bytes
        self._used_s: dict[Bundle, float] = {}

    def path(self, bundle: Bundle) -> Path:
        """The folder of a bundle; may not exist."""
        return self.root / bundle.path

    def has(self, bundle: Bundle) -> bool:
        """Whether it is there; removes one whose files are not what they should be."""
        path, now_s = self.path(bundle), time.monotonic()
        if not path.is_dir():
            self._used_s.pop(bundle, None)
            return False
        if bundle not in self._used_s:
            try:
                is_good = digest_of({name: (path / name).read_bytes() for name in bundle.names}) == bundle.digest
            except OSError:
                is_good = False
            if not is_good:
                shutil.rmtree(path, ignore_errors=True)
                return False
        if now_s > self._used_s.get(bundle, -_TOUCH_S) + _TOUCH_S:
            with contextlib.suppress(OSError):
                os.utime(path)
        self._used_s[bundle] = now_s
        return True

    def put(self, bundle: Bundle, files: Mapping[str, bytes]) -> None:
        """Adds a bundle; nothing if it is there.

        Raises:
          OutputError: the folder cannot be written, or the disk cannot hold it.
          ResourceError: the files are not the bundle's: they were damaged on their way.
        """
        if digest_of(files) != bundle.digest:
            raise ResourceError(f"{bundle.path}: expected files with the digest {bundle.digest}, found others")
        if self.has(bundle):
            return
        path = self.path(bundle)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._make_room(sum(map(len, files.values())))
            partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=self.root))
            try:
                for name, content in files.items():
                    (partial / name).parent.mkdir(parents=True, exist_ok=True)
                    (partial / name).write_bytes(content)
                try:
                    partial.rename(path)
                except OSError:
                    # Another process was faster; its files are the same, unless what is there cannot be removed.
                    if not self.has(bundle):
                        raise
            finally:
                shutil.rmtree(partial, ignore_errors=True)
            if bundle.path.startswith(POLICIES):
                remove_oldest(path.parent.iterdir(), _MAX_POLICIES, path)
        except OSError as error:
            raise OutputError(f"{self.root}: cannot be written: {error.strerror}; set XDG_CACHE_HOME") from error

    def _make_room(self, num_bytes: int) -> None:
        """Removes unused bundles if little of the disk is free; raises OutputError if that is not enough."""
        usage = shutil.disk_usage(self.root)
        free = usage.free - num_bytes
        if free < max(self._min_free_bytes, int(usage.total * _WANTED_FREE_SHARE)):
            for path in _unused(self.root / MODULES):
                shutil.rmtree(path, ignore_errors=True)
            free = shutil.disk_usage(self.root).free - num_bytes
        if free < self._min_free_bytes:
            raise OutputError(
                f"{self.root}: cannot hold the corpus: {free / 1e9:.2f} GB of the disk would be left, of at least "
                f"{self._min_free_bytes / 1e9:.2f} GB; free some space, or set XDG_CACHE_HOME"
            )


def _unused(folder: Path) -> Iterable[Path]:
    """The bundles in a folder that nobody has used for a while; whoever uses one corrects a date in the future."""
    now_s = time.time()
    for path in folder.iterdir() if folder.is_dir() else ():
        with contextlib.suppress(OSError):
            if abs(path.stat().st_mtime - now_s) > _UNUSED_S:
                yield path
