"""Remote corpora: on fsspec's memory and local file systems, and over a network that fails."""

import json
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

from compiler_opt.corpus.command_lines.command_line import index_path
from compiler_opt.corpus.description import DESCRIPTION_NAME, Corpus
from compiler_opt.corpus.remote import is_url
from tests.corpus.description_test import BITCODE, OPTIONS, refusal, write_corpus, write_description

URL = "memory://bucket/mine"


@pytest.fixture
def memory() -> Iterator[Any]:
    """The memory file system with a corpus at `URL`: two modules with equal bitcode, and another."""
    system = fsspec.filesystem("memory")
    names = ["p/a.o", "p/b.o", "q/c.o"]
    description = {"modules": names, "has_thinlto": False, "projects": ["p", "q"]}
    system.pipe(f"/bucket/mine/{DESCRIPTION_NAME}", json.dumps(description).encode())
    for name in names:
        system.pipe(f"/bucket/mine/{name}.bc", BITCODE if name[0] == "p" else BITCODE * 2)
        system.pipe(f"/bucket/mine/{name}.cmd", OPTIONS)
    yield system
    system.rm("/bucket", recursive=True)


def contents(cache: Path) -> int:
    """The number of cached files."""
    return sum(path.is_file() for path in (cache / "content").rglob("*"))


def test_files_are_fetched_when_needed_and_cached_by_content(memory: Any, tmp_path: Path) -> None:
    corpus = Corpus.load(URL, cache_dir=tmp_path)
    assert [module.name for module in corpus.modules] == ["p/a.o", "p/b.o", "q/c.o"]
    assert list(corpus.projects()) == ["p", "q"]
    assert corpus.root.name == "mine"
    assert [module.bitcode_bytes() for module in corpus.modules] == [16, 16, 32]
    assert contents(tmp_path) == 1
    assert corpus.modules[0].bitcode_path.read_bytes() == BITCODE
    assert corpus.modules[1].bitcode_path == corpus.modules[0].bitcode_path
    assert corpus.modules[2].bitcode_path.read_bytes() == BITCODE * 2
    assert [module.options() for module in corpus.modules] == [("-cc1", "-Oz")] * 3
    assert contents(tmp_path) == 4
    memory.rm("/bucket/mine/q", recursive=True)
    # Fetched files are used without another request; deleted ones are reported when the corpus is loaded.
    assert corpus.modules[2].bitcode_path.read_bytes() == BITCODE * 2
    message = refusal(lambda: Corpus.load(URL, cache_dir=tmp_path))
    assert message.startswith(f"{URL}/q/c.o.bc: no such file, though")


def test_an_index_is_next_to_its_bitcode(memory: Any, tmp_path: Path) -> None:
    """The index is where `compile_command` looks for it."""
    memory.pipe("/bucket/mine/q/c.o.thinlto.bc", BITCODE * 3)
    for _ in range(2):
        module = Corpus.load(URL, cache_dir=tmp_path).by_name["q/c.o"]
        assert module.bitcode_path.read_bytes() == BITCODE * 2
        assert index_path(module.bitcode_path).read_bytes() == BITCODE * 3


def test_the_description_may_be_named_and_projects_come_from_the_url(memory: Any, tmp_path: Path) -> None:
    memory.pipe(f"/bucket/mine/{DESCRIPTION_NAME}", b'{"modules": ["q/c.o"]}')
    for url in (URL, f"{URL}/", f"{URL}/{DESCRIPTION_NAME}"):
        assert list(Corpus.load(url, cache_dir=tmp_path).projects()) == ["mine"]


def test_changed_files_are_fetched_again(memory: Any, tmp_path: Path) -> None:
    before = Corpus.load(URL, cache_dir=tmp_path)
    assert before.modules[0].bitcode_path.read_bytes() == BITCODE
    changed = BITCODE[:-4] + b"\1\2\3\4"
    memory.pipe("/bucket/mine/p/a.o.bc", changed)
    assert Corpus.load(URL, cache_dir=tmp_path).modules[0].bitcode_path.read_bytes() == changed
    assert before.modules[0].bitcode_path.read_bytes() == BITCODE


@pytest.mark.parametrize("found", [BITCODE[:-1], BITCODE + b"\0", b""])
def test_a_size_other_than_listed_is_refused(memory: Any, tmp_path: Path, found: bytes) -> None:
    corpus = Corpus.load(URL, cache_dir=tmp_path)
    memory.pipe("/bucket/mine/p/a.o.bc", found)
    message = refusal(lambda: corpus.modules[0].bitcode_path)
    assert message.startswith("memory:///bucket/mine/p/a.o.bc: expected 16 bytes, found ")
    assert "load the corpus again" in message
    memory.rm("/bucket/mine/p/a.o.bc")
    assert "p/a.o.bc: cannot be fetched (FileNotFoundError" in refusal(lambda: corpus.modules[0].bitcode_path)
    assert contents(tmp_path) == 1
    assert list(tmp_path.glob("*.partial")) == []


def test_damaged_bitcode_is_not_kept(memory: Any, tmp_path: Path) -> None:
    memory.pipe("/bucket/mine/p/a.o.bc", BITCODE[:-4])
    corpus = Corpus.load(URL, cache_dir=tmp_path)
    message = refusal(lambda: corpus.modules[0].bitcode_path)
    assert "p/a.o.bc: expected" in message
    assert "extract the corpus again" in message
    assert contents(tmp_path) == 1


def test_a_damaged_cache_repairs_itself(memory: Any, tmp_path: Path) -> None:
    corpus = Corpus.load(URL, cache_dir=tmp_path)
    path = corpus.modules[0].bitcode_path
    path.unlink()
    assert corpus.modules[0].bitcode_path.read_bytes() == BITCODE
    path.chmod(0o644)
    path.write_bytes(BITCODE[:5])
    assert corpus.modules[0].bitcode_path.read_bytes() == BITCODE
    for source in (tmp_path / "sources").rglob("*"):
        if source.is_file():
            source.write_bytes(b"../../etc/passwd")
    assert corpus.modules[0].bitcode_path.read_bytes() == BITCODE


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("memory://nowhere", ("memory://nowhere/corpus_description.json: no such file", "give the URL of a corpus")),
        ("nonsense://bucket/mine", ("nonsense://bucket/mine: expected a URL such as s3://", "nonsense")),
        ("memory://bucket/mine\n", (r"memory://bucket/mine\n/corpus_description.json: no such file",)),
    ],
)
def test_urls_without_a_corpus(memory: Any, tmp_path: Path, url: str, words: tuple[str, ...]) -> None:
    message = refusal(lambda: Corpus.load(url, cache_dir=tmp_path))
    assert all(word in message for word in words), message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("missing", "words"),
    [("fsspec", ("needs the package fsspec", "compiler_opt[remote]")), ("s3fs", ("lacks a package", "s3fs"))],
)
def test_a_missing_package_is_named(tmp_path: Path, missing: str, words: tuple[str, ...]) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from compiler_opt.corpus.description import Corpus, CorpusError\n"
        "try: Corpus.load('s3://bucket/mine')\n"
        "except CorpusError as error: print(error)"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-c", code]
    (message,) = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert message.startswith("s3://bucket/mine: ")
    assert all(word in message for word in words), message


def test_a_huge_description_is_refused_unread(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    with (tmp_path / "corpus" / DESCRIPTION_NAME).open("wb") as file:
        file.truncate(4 << 30)
    message = refusal(lambda: Corpus.load(f"file://{tmp_path}/corpus", cache_dir=tmp_path / "cache"))
    assert "expected at most 134217728 bytes, found 4294967296" in message
    assert contents(tmp_path / "cache") == 0


@pytest.mark.parametrize("ending", [".bc", ".cmd"])
def test_huge_files_are_refused_unread(tmp_path: Path, ending: str) -> None:
    corpus = write_corpus(tmp_path / "corpus", ["m.o"])
    with Path(f"{corpus}/m.o{ending}").open("wb") as file:
        file.truncate(5 << 30)
    message = refusal(lambda: Corpus.load(f"file://{corpus}", cache_dir=tmp_path / "cache"))
    assert f"m.o{ending}: expected at most" in message


def test_names_with_characters_that_are_special_in_urls(tmp_path: Path) -> None:
    names = ["a::memory:x.o", "b#1?.o", "c%20d *[e].o", os.fsdecode(b"caf\xe9\n.o")]
    root = write_corpus(tmp_path / "corpus", names)
    corpus = Corpus.load(f"file://{root}", cache_dir=tmp_path / "cache")
    for module in corpus.modules:
        assert module.bitcode_path.read_bytes() == BITCODE
        assert module.options() == ("-cc1", "-Oz")
    # Names that leave the folder are refused.
    write_description(root, {"modules": ["../secret"], "has_thinlto": False})
    assert "stays inside" in refusal(lambda: Corpus.load(f"file://{root}", cache_dir=tmp_path / "cache"))


class _Unreliable(LocalFileSystem):
    """Local files over a network that is down while the file `down` exists."""

    protocol = "unreliable"
    down: Path

    def find(self, *arguments: Any, **options: Any) -> Any:
        if self.down.exists():
            raise OSError("no route\nto host")
        return super().find(*arguments, **options)

    def open(self, *arguments: Any, **options: Any) -> Any:
        if self.down.exists():
            raise RuntimeError("connection lost")
        return super().open(*arguments, **options)


def test_fetched_files_are_used_offline(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = write_corpus(tmp_path / "corpus", ["a.o", "b.o"])
    (root / "b.o.bc").write_bytes(BITCODE * 2)
    _Unreliable.down = tmp_path / "down"
    fsspec.register_implementation("unreliable", _Unreliable, clobber=True)
    url, cache = f"unreliable://{root}", tmp_path / "cache"
    _Unreliable.down.touch()
    message = refusal(lambda: Corpus.load(url, cache_dir=cache))
    assert f"{url}: cannot be listed (OSError: no route to host); check" in message
    _Unreliable.down.unlink()
    assert Corpus.load(url, cache_dir=cache).modules[0].bitcode_path.read_bytes() == BITCODE
    assert caplog.messages == []
    _Unreliable.down.touch()
    corpus = Corpus.load(url, cache_dir=cache)
    assert "using the last listing" in caplog.text
    assert corpus.modules[0].bitcode_path.read_bytes() == BITCODE
    assert "b.o.bc: cannot be fetched (RuntimeError: connection lost)" in refusal(
        lambda: corpus.modules[1].bitcode_path
    )
    assert next(cache.rglob("listing.json")).read_bytes().startswith(b"{")
    next(cache.rglob("listing.json")).write_text("[1]")
    assert "cannot be listed" in refusal(lambda: Corpus.load(url, cache_dir=cache))


def _fetch_all(arguments: tuple[str, Path]) -> list[bytes]:
    url, cache = arguments
    return [module.bitcode_path.read_bytes() for module in Corpus.load(url, cache_dir=cache).modules]


@pytest.mark.ci
def test_several_processes_at_once(tmp_path: Path) -> None:
    root = write_corpus(tmp_path / "corpus", [f"{number}.o" for number in range(30)])
    for number in range(30):
        (root / f"{number}.o.bc").write_bytes(BITCODE * (number + 1))
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        results = pool.map(_fetch_all, [(f"file://{root}", tmp_path / "cache")] * 3, chunksize=1)
    assert results == [[BITCODE * (number + 1) for number in range(30)]] * 3
    assert contents(tmp_path / "cache") == 31
    assert list((tmp_path / "cache").rglob("*.partial")) == []


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("s3://b/c", True),
        ("simplecache::s3://b/c", True),
        ("file:///c", True),
        ("/a/b", False),
        ("a:b", False),
        ("./s3://b", False),
        ("", False),
        (Path("s3://b"), False),
    ],
)
def test_is_url(path: object, expected: bool) -> None:
    assert is_url(path) == expected
