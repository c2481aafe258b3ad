"""The inliner plugin's building: once, for this very compiler, and seen to work."""

import dataclasses
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from compiler_opt.errors import ToolchainError
from compiler_opt.llvm import plugin, processes, regalloc_plugin
from compiler_opt.llvm.probe import probe_module
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
        first, second = executor.map(lambda _: plugin.build_plugin(toolchain, cache_dir=folder), range(2))
    assert first == second
    return folder


def test_it_is_built_once(cache: Path, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_build(*arguments: object) -> bytes:
        raise AssertionError("built a second time")

    for step in ("_compile", "_link"):
        monkeypatch.setattr(plugin, step, no_build)
    path = plugin.build_plugin(toolchain, cache_dir=cache)
    assert path.is_file()
    assert f"-{toolchain.version[0]}-" in path.name
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["lock", f"{path.stem}.o", path.name]


def test_it_is_built_anew_for_other_sources(
    cache: Path, toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin, "_compile", None)
    monkeypatch.setattr(plugin, "_link", lambda *arguments: b"built")
    extra = tmp_path / "policy.cpp"
    paths = set()
    for text in ("int one;", "int two;"):
        extra.write_text(text)
        paths.add(plugin.build_plugin(toolchain, cache_dir=cache, extra_sources=[extra]))
    paths.add(plugin.build_plugin(toolchain, cache_dir=cache))
    assert len(paths) == 3
    for path in paths:
        if path.read_bytes() == b"built":
            path.unlink()


def test_the_compiler_asks_it(cache: Path, toolchain: Toolchain, tmp_path: Path) -> None:
    path = plugin.build_plugin(toolchain, cache_dir=cache)
    source = tmp_path / "a.ll"
    source.write_text(probe_module())
    command = [str(toolchain.clang), "-Wno-override-module", "-Oz", "-c", str(source), "-o", str(tmp_path / "a.o")]
    log = tmp_path / "log"
    result = processes.run([*command, plugin.load_option(path)], environment=plugin.environment(policy=None, log=log))
    assert result.ok, result.describe()
    assert result.stderr_tail == ""
    assert log.stat().st_size > 0


def test_into_a_file_of_ones_own(
    cache: Path, toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our own sources are not compiled again."""
    built = plugin.build_plugin(toolchain, cache_dir=cache)
    before = sorted(built.parent.iterdir())
    monkeypatch.setattr(plugin, "_compile", None)
    path = plugin.build_plugin(toolchain, tmp_path / "new" / "plugin.so", cache_dir=cache)
    assert path == tmp_path / "new" / "plugin.so"
    assert path.read_bytes() == built.read_bytes()
    assert sorted(built.parent.iterdir()) == before


def test_into_a_file_of_ones_own_where_nothing_can_be_kept(
    cache: Path, toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = plugin.build_plugin(toolchain, cache_dir=cache)
    monkeypatch.setattr(plugin, "_compile", lambda *arguments: built.with_suffix(".o").read_bytes())
    path = plugin.build_plugin(toolchain, tmp_path / "plugin.so", cache_dir=Path("/proc/cache"))
    assert path.read_bytes() == built.read_bytes()


def test_without_headers_the_package_is_named(toolchain: Toolchain, tmp_path: Path) -> None:
    bare = dataclasses.replace(toolchain, plugin_headers=None)
    assert not plugin.can_build(bare)
    with pytest.raises(ToolchainError, match=f"llvm-{toolchain.version[0]}-dev"):
        plugin.build_plugin(bare, cache_dir=tmp_path)


def test_without_plugin_support_it_says_so(toolchain: Toolchain, tmp_path: Path) -> None:
    static = dataclasses.replace(toolchain, pass_plugins=False)
    assert not plugin.can_build(static)
    with pytest.raises(ToolchainError, match="does not load pass plugins"):
        plugin.build_plugin(static, cache_dir=tmp_path)


def test_versions_that_it_was_not_held_against_are_refused(toolchain: Toolchain, tmp_path: Path) -> None:
    def message(kind: plugin.PluginKind, major: int) -> str:
        other = dataclasses.replace(toolchain, version=(major, 1, 0))
        with pytest.raises(ToolchainError) as caught:
            plugin.build_plugin(other, kind=kind, cache_dir=tmp_path)
        return str(caught.value)

    # LLVM 18 has the channel, but two features less.
    assert not plugin.can_build(dataclasses.replace(toolchain, version=(18, 1, 8)))
    assert "the inliner plugin needs LLVM >= 19, found 18; " in message(plugin.INLINER, 18)
    for major in (18, 23):
        assert f"the regalloc plugin needs LLVM 19 to 22, found {major}; " in message(regalloc_plugin.REGALLOC, major)


def test_headers_of_another_version_are_refused(toolchain: Toolchain, tmp_path: Path) -> None:
    other = dataclasses.replace(toolchain, plugin_headers=_headers_of(toolchain, tmp_path, "16.0.6"))
    with pytest.raises(ToolchainError, match=r"found those of 16\.0\.6; install"):
        plugin.build_plugin(other, cache_dir=tmp_path)


def test_what_cannot_be_built_is_an_error_that_is_not_tried_again(
    toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = ".".join(map(str, toolchain.version))
    hollow = dataclasses.replace(
        toolchain, clang=tmp_path / "clang", plugin_headers=_headers_of(toolchain, tmp_path, version)
    )
    shutil.copy(toolchain.clang, hollow.clang)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(plugin, "_known", {})
    for _ in range(2):
        with pytest.raises(ToolchainError, match="cannot be built") as caught:
            plugin.inliner_plugin(hollow)
        assert "\n" not in str(caught.value)
        monkeypatch.setattr(plugin, "_compile", None)
    assert [path.name for path in (tmp_path / "cache" / "compiler_opt" / "plugins").iterdir()] == ["lock"]


def test_a_cache_that_cannot_be_written_is_an_error(
    toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(plugin, "_known", {})
    with pytest.raises(ToolchainError, match="set XDG_CACHE_HOME"):
        plugin.inliner_plugin(toolchain)


def test_what_is_asked_by_earlier_settings_does_not_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLGO_INLINER_LOG_DEFAULT", "1")
    monkeypatch.setenv("MLGO_INLINER_POLICY", "/elsewhere")
    variables = plugin.environment(policy=None, seed=-1)
    assert variables["MLGO_INLINER_POLICY"] == variables["MLGO_INLINER_LOG"] == ""
    assert variables["MLGO_INLINER_LOG_DEFAULT"] == "0"
    assert variables["MLGO_INLINER_SEED"] == str(2**64 - 1)
    assert variables["PATH"] == os.environ["PATH"]
