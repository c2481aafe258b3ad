import hashlib
import io
import shutil
import sys
import tarfile
from pathlib import Path

import pytest

from compiler_opt.corpus.ready_made import archives, manifest
from compiler_opt.corpus.ready_made.manifest import Archive
from compiler_opt.errors import CorpusError
from compiler_opt.files import default_cache_dir

SETUP_PY = (
    "import pathlib; pathlib.Path({marker!r}).touch(); from setuptools import setup; setup(name='evil', version='1')"
)
BACKEND = "import pathlib; pathlib.Path({marker!r}).touch()"
PYPROJECT = """
[build-system]
requires = ["nothing-of-this-name"]
build-backend = "backend:object"
backend-path = ["."]
"""


def make_archive(path: Path, files: dict[str, str]) -> Archive:
    """Makes a source distribution `evil-1.0.tar.gz`, without PKG-INFO."""
    with tarfile.open(path / "evil-1.0.tar.gz", "w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"evil-1.0/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    digest = hashlib.sha256((path / "evil-1.0.tar.gz").read_bytes()).hexdigest()
    return Archive("evil", "1.0", digest)


@pytest.fixture(name="local_pip")
def local_pip_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is pip's only package index."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.mark.parametrize("kind", ["setup.py", "backend"])
def test_no_code_of_the_archive_runs(local_pip: Path, tmp_path: Path, kind: str) -> None:
    marker = tmp_path / "has_run"
    files = {"a.c": "int a;"}
    if kind == "setup.py":
        files["setup.py"] = SETUP_PY.format(marker=str(marker))
    else:
        files |= {"pyproject.toml": PYPROJECT, "backend.py": BACKEND.format(marker=str(marker))}
    archive = make_archive(local_pip, files)
    path = archives.fetch(archive, tmp_path / "cache")
    assert not marker.exists()
    assert hashlib.sha256(path.read_bytes()).hexdigest() == archive.sha256


@pytest.mark.ci
def test_the_cache_is_used_and_repaired(local_pip: Path, tmp_path: Path) -> None:
    archive = make_archive(local_pip, {"setup.py": "", "a.c": "int a;"})
    path = archives.fetch(archive, tmp_path / "cache")
    good = path.read_bytes()
    path.write_bytes(b"damaged")
    assert archives.fetch(archive, tmp_path / "cache") == path
    assert path.read_bytes() == good
    (local_pip / "evil-1.0.tar.gz").unlink()
    assert archives.fetch(archive, tmp_path / "cache") == path
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_an_archive_with_another_hash_is_refused(local_pip: Path, tmp_path: Path) -> None:
    make_archive(local_pip, {"setup.py": ""})
    with pytest.raises(CorpusError, match=r"evil==1\.0: pip cannot download the source archive") as error:
        archives.fetch(Archive("evil", "1.0", "0" * 64), tmp_path / "cache")
    assert "\n" not in str(error.value)
    assert list((tmp_path / "cache" / "archives").iterdir()) == []


def test_an_archive_that_does_not_exist_is_named(local_pip: Path, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"nothing==1\.0: pip cannot download .* check the network"):
        archives.fetch(Archive("nothing", "1.0", "0" * 64), tmp_path / "cache")


@pytest.mark.ci
def test_a_real_archive_comes_through_pip(tmp_path: Path) -> None:
    check_claims("fasttext", tmp_path, tmp_path)
    assert (tmp_path / "fasttext" / "src" / "fasttext.cc").is_file()


@pytest.mark.slow
def test_all_archives_and_their_modules_are_as_they_are_said_to_be(tmp_path: Path) -> None:
    for name in manifest.load().projects:
        check_claims(name, default_cache_dir(), tmp_path)
        shutil.rmtree(tmp_path / name)


def check_claims(name: str, cache_dir: Path, folder: Path) -> None:
    """The manifest's figures for users: bytes to download, and modules to compile."""
    project = manifest.load().projects[name]
    path = archives.fetch(project.archive, cache_dir)
    assert path.stat().st_size == project.archive.num_bytes, name
    archives.unpack(path, folder / name, only=project.root)
    root = folder / name / project.root
    sources = project.select(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
    assert len(sources) == project.measured.modules, name


def add(archive: tarfile.TarFile, name: str, kind: bytes = tarfile.REGTYPE, text: bytes = b"x", link: str = "") -> None:
    member = tarfile.TarInfo(name)
    member.type = kind
    member.linkname = link
    member.size = len(text) if kind == tarfile.REGTYPE else 0
    archive.addfile(member, io.BytesIO(text))


def test_unpacking_takes_files_only(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        add(archive, "top/dir/a.c")
        add(archive, "top/link.c", tarfile.SYMTYPE, link="/etc/passwd")
        add(archive, "top/hard.c", tarfile.LNKTYPE, link="top/dir/a.c")
        add(archive, "top/fifo", tarfile.FIFOTYPE)
        add(archive, "outside.c")
    archives.unpack(path, tmp_path / "target")
    assert [file.name for file in (tmp_path / "target").rglob("*") if not file.is_dir()] == ["a.c"]
    assert (tmp_path / "target" / "dir" / "a.c").read_bytes() == b"x"


def test_only_a_folder_is_unpacked_when_only_that_is_wanted(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        for name in ("top/dir/a.c", "top/dir/sub/b.c", "top/directory/c.c", "top/d.c"):
            add(archive, name)
    archives.unpack(path, tmp_path / "target", only="dir")
    found = {file.relative_to(tmp_path / "target").as_posix() for file in (tmp_path / "target").rglob("*.c")}
    assert found == {"dir/a.c", "dir/sub/b.c"}


@pytest.mark.parametrize("name", ["../evil.c", "top/../../evil.c", "/tmp/evil.c"])
def test_names_that_leave_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        add(archive, name)
    with pytest.raises(CorpusError, match="which would leave its folder"):
        archives.unpack(path, tmp_path / "deep" / "target")
    assert not list(tmp_path.rglob("evil.c"))


def test_a_file_cannot_be_written_through_another(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        add(archive, "top/a")
        add(archive, "top/a/b")
    with pytest.raises(CorpusError, match="twice"):
        archives.unpack(path, tmp_path / "target")


def test_large_archives_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        add(archive, "top/a", text=bytes(100))
        add(archive, "top/b", text=bytes(100))
    with pytest.raises(CorpusError, match=r"over the limit of .* or 150 bytes"):
        archives.unpack(path, tmp_path / "target", max_bytes=150)


@pytest.mark.parametrize("data", [b"", b"no archive", b"\x1f\x8b" + bytes(50)])
def test_files_that_are_not_archives_are_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.tar.gz"
    path.write_bytes(data)
    with pytest.raises(CorpusError, match="is not an intact tar archive"):
        archives.unpack(path, tmp_path / "target")


def test_an_archive_that_is_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        add(archive, "top/a", text=bytes(range(256)) * 400)
    path.write_bytes(path.read_bytes()[:-60])
    with pytest.raises(CorpusError, match="is not an intact tar archive"):
        archives.unpack(path, tmp_path / "target")


def test_the_null_backend_does_nothing_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COMPILER_OPT_SDIST", raising=False)
    modules = set(sys.modules)
    exec((archives.NULL_BACKEND_DIR / "sitecustomize.py").read_text(), {"__name__": "sitecustomize"})
    assert set(sys.modules) == modules
