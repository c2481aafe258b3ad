"""The inliner plugin's building: once, for this very compiler, and seen to work."""

import dataclasses
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from compiler_opt.errors import ToolchainError
from compiler_opt.llvm import processes
from compiler_opt.llvm.inliner_plugin import INLINER, can_build, environment
from compiler_opt.llvm.plugin import PluginCache, PluginKind, compile_sources, load_option, user_cache
from compiler_opt.llvm.probe import probe_module
from compiler_opt.llvm.regalloc_plugin import REGALLOC
from compiler_opt.llvm.toolchain import Toolchain


def _headers_of(toolchain: Toolchain, folder: Path, version: str) -> Path:
    """An include folder that claims a version and holds nothing else."""
    assert toolchain.plugin_headers is not None
    config = folder / "include" / "llvm" / "Config" / "llvm-config.h"
    config.parent.mkdir(parents=True)
    config.write_text(f'#define LLVM_VERSION_STRING "{version}"\n')
    return folder / "include"


@pytest.fixture(scope="module")
def cache(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache into which two callers at once have had the plugin built."""
    folder = tmp_path_factory.mktemp("cache")
    with ThreadPoolExecutor(2) as executor:
        first, second = executor.map(lambda _: PluginCache(folder).get(toolchain, INLINER), range(2))
    assert first == second
    return folder


def _no_build(*arguments: object) -> bytes:
    raise AssertionError("built a second time")


def test_it_is_built_once(cache: Path, toolchain: Toolchain) -> None:
    path = PluginCache(cache, _no_build, _no_build).get(toolchain, INLINER)
    assert path.is_file()
    assert f"-{toolchain.version[0]}-" in path.name
    assert sorted(entry.name for entry in cache.iterdir()) == ["lock", f"{path.stem}.o", path.name]


def test_it_is_built_anew_for_other_sources(toolchain: Toolchain, tmp_path: Path) -> None:
    source = tmp_path / "plugin.cpp"
    kind = dataclasses.replace(INLINER, sources=(source,))
    paths = set()
    for text in ("int one;", "int two;"):
        source.write_text(text)
        cache = PluginCache(tmp_path / "cache", lambda *_: source.read_bytes(), lambda *inputs: inputs[2])
        path = cache.get(toolchain, kind)
        assert path.read_text() == text
        paths.add(path)
    assert len(paths) == 2


def test_the_compiler_asks_it(cache: Path, toolchain: Toolchain, tmp_path: Path) -> None:
    path = PluginCache(cache).get(toolchain, INLINER)
    source = tmp_path / "a.ll"
    source.write_text(probe_module())
    command = [str(toolchain.clang), "-Wno-override-module", "-Oz", "-c", str(source), "-o", str(tmp_path / "a.o")]
    log = tmp_path / "log"
    result = processes.run([*command, load_option(path)], environment=environment(policy=None, log=log))
    assert result.ok, result.describe()
    assert result.stderr_tail == ""
    assert log.stat().st_size > 0


def test_into_a_file_of_ones_own(cache: Path, toolchain: Toolchain, tmp_path: Path) -> None:
    """Our own sources are not compiled again."""
    built = PluginCache(cache).get(toolchain, INLINER)
    before = sorted(cache.iterdir())
    path = tmp_path / "new" / "plugin.so"
    PluginCache(cache, _no_build).build(toolchain, INLINER, path)
    assert path.read_bytes() == built.read_bytes()
    assert sorted(cache.iterdir()) == before


def test_into_a_file_of_ones_own_where_nothing_can_be_kept(cache: Path, toolchain: Toolchain, tmp_path: Path) -> None:
    built = PluginCache(cache).get(toolchain, INLINER)
    elsewhere = PluginCache(Path("/proc/cache"), lambda *_: built.with_suffix(".o").read_bytes())
    elsewhere.build(toolchain, INLINER, tmp_path / "plugin.so")
    assert (tmp_path / "plugin.so").read_bytes() == built.read_bytes()


def test_without_headers_the_package_is_named(toolchain: Toolchain, tmp_path: Path) -> None:
    bare = dataclasses.replace(toolchain, plugin_headers=None)
    assert not can_build(bare)
    with pytest.raises(ToolchainError, match=f"llvm-{toolchain.version[0]}-dev"):
        PluginCache(tmp_path).get(bare, INLINER)


def test_without_plugin_support_it_says_so(toolchain: Toolchain, tmp_path: Path) -> None:
    static = dataclasses.replace(toolchain, pass_plugins=False)
    assert not can_build(static)
    with pytest.raises(ToolchainError, match="does not load pass plugins"):
        PluginCache(tmp_path).get(static, INLINER)


def test_versions_that_it_was_not_held_against_are_refused(toolchain: Toolchain, tmp_path: Path) -> None:
    def message(kind: PluginKind, major: int) -> str:
        other = dataclasses.replace(toolchain, version=(major, 1, 0))
        with pytest.raises(ToolchainError) as caught:
            PluginCache(tmp_path).get(other, kind)
        return str(caught.value)

    # LLVM 18 has the channel, but two features less.
    assert not can_build(dataclasses.replace(toolchain, version=(18, 1, 8)))
    assert "the inliner plugin needs LLVM >= 19, found 18; " in message(INLINER, 18)
    for major in (18, 23):
        assert f"the regalloc plugin needs LLVM 19 to 22, found {major}; " in message(REGALLOC, major)


def test_headers_of_another_version_are_refused(toolchain: Toolchain, tmp_path: Path) -> None:
    other = dataclasses.replace(toolchain, plugin_headers=_headers_of(toolchain, tmp_path, "16.0.6"))
    with pytest.raises(ToolchainError, match=r"found those of 16\.0\.6; install"):
        PluginCache(tmp_path).get(other, INLINER)


def test_what_cannot_be_built_is_an_error_that_is_not_tried_again(toolchain: Toolchain, tmp_path: Path) -> None:
    version = ".".join(map(str, toolchain.version))
    hollow = dataclasses.replace(toolchain, plugin_headers=_headers_of(toolchain, tmp_path, version))
    attempts = []

    def compile_it(*arguments: Any) -> bytes:
        attempts.append(arguments)
        return compile_sources(*arguments)

    cache = PluginCache(tmp_path / "cache", compile_it)
    for _ in range(2):
        with pytest.raises(ToolchainError, match="cannot be built") as caught:
            cache.get(hollow, INLINER)
        assert "\n" not in str(caught.value)
    assert len(attempts) == 1
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["lock"]


def test_a_cache_that_cannot_be_written_is_an_error(toolchain: Toolchain, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ToolchainError, match="set XDG_CACHE_HOME"):
        PluginCache(tmp_path / "file" / "plugins").get(toolchain, INLINER)


def test_the_users_cache() -> None:
    """One object for the whole process, so that a thousand compilations look for the plugin once."""
    assert user_cache() is user_cache()


def test_what_is_asked_by_earlier_settings_does_not_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLGO_INLINER_LOG_DEFAULT", "1")
    monkeypatch.setenv("MLGO_INLINER_POLICY", "/elsewhere")
    variables = environment(policy=None, seed=-1)
    assert variables["MLGO_INLINER_POLICY"] == variables["MLGO_INLINER_LOG"] == ""
    assert variables["MLGO_INLINER_LOG_DEFAULT"] == "0"
    assert variables["MLGO_INLINER_SEED"] == str(2**64 - 1)
    assert variables["PATH"] == os.environ["PATH"]
