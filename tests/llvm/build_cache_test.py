"""Files are built once for what they depend on, and each time where nothing can be kept."""

import os
from collections.abc import Callable, Mapping
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


def _linked(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def _give_to_group(folder: Path) -> None:
    os.chown(folder, -1, SOMEBODY_ELSE)
    folder.chmod(0o770)


SOMEBODY_ELSE = 12345
UNSAFE: Mapping[str, Callable[[Path], object]] = {
    "the folder is shared": lambda path: path.parent.chmod(0o777),
    "its parent is shared": lambda path: path.parent.parent.chmod(0o777),
    "the file is shared": lambda path: path.chmod(0o666),
    "the file is a link": _linked,
    # Only root can give files away.
    **(
        {
            "the folder is a group's": lambda path: _give_to_group(path.parent),
            "the folder is somebody else's": lambda path: os.chown(path.parent, SOMEBODY_ELSE, -1),
            "its parent is somebody else's": lambda path: os.chown(path.parent.parent, SOMEBODY_ELSE, -1),
            "the file is somebody else's": lambda path: os.chown(path, SOMEBODY_ELSE, -1),
        }
        if os.getuid() == 0
        else {}
    ),
}
"""What makes a file in a cache one that others can replace."""


@pytest.mark.parametrize("way", UNSAFE)
def test_what_others_can_replace_is_refused(tmp_path: Path, way: str) -> None:
    """Compilers load these files: whoever replaces one runs code as this user."""
    cache = BuildCache(tmp_path / "compiler_opt" / "plugins")
    path = cache.get("a.so", lambda: b"library")
    UNSAFE[way](path)
    for action in (lambda: cache.find("a.so"), lambda: cache.get("a.so", _no_build)):
        with pytest.raises(OutputError, match=r"set XDG_CACHE_HOME|remove it") as refused:
            action()
        assert "\n" not in str(refused.value)
    assert cache.content("a.so", lambda: b"built again") == b"built again"


def test_links_of_our_own_are_followed(tmp_path: Path) -> None:
    """As with a ~/.cache that is on another disk."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "cache").symlink_to("disk")
    cache = BuildCache(tmp_path / "cache" / "plugins")
    assert cache.get("a.so", lambda: b"library") == cache.find("a.so") == tmp_path / "cache" / "plugins" / "a.so"
    (tmp_path / "disk").chmod(0o777)
    with pytest.raises(OutputError, match=r"disk; set XDG|write to .*/disk,"):
        cache.find("a.so")


def test_with_any_umask_only_the_user_writes(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        path = BuildCache(tmp_path / "plugins").get("a.so", lambda: b"library")
    finally:
        os.umask(before)
    assert [place.stat().st_mode & 0o022 for place in (path, path.parent, path.with_name("lock"))] == [0, 0, 0]


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
