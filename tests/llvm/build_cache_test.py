"""Files are built once for what they depend on, and each time where nothing can be kept."""

from pathlib import Path

import pytest

from compiler_opt.errors import OutputError
from compiler_opt.llvm.build_cache import BuildCache, digest_of


def _no_build() -> bytes:
    raise AssertionError("built a second time")


def test_it_is_built_once(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path / "cache")
    assert cache.find("a.o") is None
    path = cache.get("a.o", lambda: b"object")
    assert path.read_bytes() == b"object" and cache.find("a.o") == path
    assert cache.get("a.o", _no_build) == path
    assert cache.content("a.o", _no_build) == b"object"


def test_what_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        BuildCache(tmp_path / "cache").get("a.o", _no_build)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["lock"]


def test_where_nothing_can_be_kept(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cache = BuildCache(tmp_path / "file" / "cache")
    with pytest.raises(OutputError, match="set XDG_CACHE_HOME"):
        cache.get("a.o", lambda: b"object")
    assert cache.content("a.o", lambda: b"object") == b"object"


def test_the_digest_is_of_flags_sources_and_binaries(tmp_path: Path) -> None:
    source, binary = tmp_path / "a.h", tmp_path / "clang"
    source.write_text("int one;")
    binary.write_text("1")
    digests = {digest_of(["-O2"], [source], [binary]), digest_of(["-O1"], [source], [binary])}
    source.write_text("int two;")
    digests.add(digest_of(["-O2"], [source], [binary]))
    binary.write_text("22")
    digests.add(digest_of(["-O2"], [source], [binary]))
    assert len(digests) == 4
    assert digest_of(["-O2"], [source], [binary]) in digests
