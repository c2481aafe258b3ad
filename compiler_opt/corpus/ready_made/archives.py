"""Downloads source distributions through pip, pinned by hash, and unpacks them as untrusted input.

No code of an archive runs: `null_backend/sitecustomize.py` answers pip's request for its metadata, and the compiler
gets only the files that the manifest lists.
"""

import sys
import tarfile
from pathlib import Path, PurePosixPath

from compiler_opt.corpus.ready_made.manifest import Archive
from compiler_opt.errors import CorpusError, OutputError
from compiler_opt.files import size_and_sha256
from compiler_opt.llvm import processes
from compiler_opt.llvm.scratch import scratch_directory

NULL_BACKEND_DIR = Path(__file__).with_name("null_backend")

MAX_MEMBERS = 50_000
MAX_UNPACKED_BYTES = 1 << 30

_DOWNLOAD_TIMEOUT_S = 900


def cached_path(archive: Archive, cache_dir: Path) -> Path:
    """Where `fetch` keeps the archive's file."""
    return cache_dir / "archives" / f"{archive.name}-{archive.version}-{archive.sha256[:16]}.tar.gz"


def fetch(archive: Archive, cache_dir: Path) -> Path:
    """Returns the archive's file in the cache; downloads it if it is missing or damaged.

    Raises:
      CorpusError: pip cannot download it, or its hash differs.
      OutputError: the cache cannot be written.
    """
    path = cached_path(archive, cache_dir)
    folder = path.parent
    if path.is_file() and size_and_sha256(path)[1] == archive.sha256:
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with scratch_directory(folder) as scratch:
            downloaded = _download(archive, scratch)
            if size_and_sha256(downloaded)[1] != archive.sha256:
                raise CorpusError(
                    f"{archive.name} {archive.version}: the downloaded archive's hash differs from the manifest's"
                )
            downloaded.replace(path)
    except OSError as error:
        raise OutputError(f"{folder}: cannot be written ({error.strerror}); give another --cache_dir") from None
    return path


def unpack(path: Path, target: Path, *, only: str = ".", max_bytes: int = MAX_UNPACKED_BYTES) -> None:
    """Unpacks the regular files of a tar archive, or of its folder `only`, without its top-level folder.

    Links and special files are skipped: no project needs them.

    Raises:
      CorpusError: it is not a tar archive, is too large, or a name in it leaves the folder.
    """
    num_bytes = 0
    try:
        with tarfile.open(path, "r:*") as archive:
            for number, member in enumerate(archive):
                num_bytes += member.size
                if number >= MAX_MEMBERS or num_bytes > max_bytes:
                    raise CorpusError(f"{path}: over the limit of {MAX_MEMBERS} files or {max_bytes} bytes")
                name = PurePosixPath(member.name)
                if name.is_absolute() or ".." in name.parts or "\0" in member.name:
                    raise CorpusError(f"{path}: holds {member.name!r:.80}, which would leave its folder")
                wanted = PurePosixPath(*name.parts[1:]).is_relative_to(only)
                if member.isreg() and len(name.parts) > 1 and wanted:
                    _write_member(archive, member, target.joinpath(*name.parts[1:]))
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise CorpusError(
            f"{path}: is not an intact tar archive ({error}); remove it, and it is fetched again"
        ) from None


def _write_member(archive: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    source = archive.extractfile(member)
    assert source is not None  # The member is a regular file.
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with source, target.open("xb") as file:
            while chunk := source.read(1 << 20):
                file.write(chunk)
    except (FileExistsError, NotADirectoryError):
        raise CorpusError(f"{archive.name!s}: holds {member.name!r:.80} twice; remove it") from None


def _download(archive: Archive, folder: Path) -> Path:
    """Downloads the archive into `folder` by pip."""
    pin = f"{archive.name}=={archive.version}"
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{pin} --hash=sha256:{archive.sha256}\n", encoding="utf-8")
    target = folder / "download"
    environment = {"PYTHONPATH": str(NULL_BACKEND_DIR), "COMPILER_OPT_SDIST": pin}
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-input", "--quiet"]
    command += ["--no-deps", "--no-binary=:all:", "--no-build-isolation", "--use-pep517", "--require-hashes"]
    command += ["--dest", str(target), "--requirement", str(requirements)]
    result = processes.run(
        ["/usr/bin/env", *(f"{name}={value}" for name, value in environment.items()), *command],
        timeout_s=_DOWNLOAD_TIMEOUT_S,
    )
    files = list(target.iterdir()) if target.is_dir() else []
    if not result.ok or len(files) != 1:
        raise CorpusError(
            f"{pin}: pip cannot download the source archive: {_reason(result)}; check the network and pip's settings "
            "(once an archive is in the cache, no network is needed)"
        )
    return files[0]


def _reason(result: processes.ProcessResult) -> str:
    errors = [line for line in result.stderr_tail.splitlines() if line.startswith("ERROR:")]
    return errors[-1].removeprefix("ERROR:").strip() if errors and not result.timed_out else result.describe()
