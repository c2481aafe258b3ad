import os
import pickle
from pathlib import Path

import pytest

from compiler_opt.errors import ToolchainError
from compiler_opt.llvm.advisors import ADVISORS
from compiler_opt.llvm.probe import ProblemSupport
from compiler_opt.llvm.toolchain import TOOL_PACKAGES, Toolchain, find_clang, probe


def fake_clang(path: Path, version: str) -> Path:
    """An executable that answers `--version` as clang does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho 'Some clang version {version} (+build)'\necho 'Target: x86_64-pc-linux-gnu'\n")
    path.chmod(0o755)
    return path


def message_of(clang: Path | str | None) -> str:
    with pytest.raises(ToolchainError) as caught:
        find_clang(clang, llvm_folders=())
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.fixture
def no_clang_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty folder that is all of PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def test_finds_by_path_and_by_name(clang_path: str) -> None:
    assert find_clang(clang_path) == Path(clang_path)
    assert find_clang(Path(clang_path).name) == Path(clang_path)


def test_without_a_path_the_newest(no_clang_installed: Path) -> None:
    fake_clang(no_clang_installed / "clang-18", "18.1.2")
    newest = fake_clang(no_clang_installed / "clang", "20.1.0")
    fake_clang(no_clang_installed / "clang-19", "19.1.7")
    assert find_clang(llvm_folders=[no_clang_installed / "missing"]) == newest


def test_a_broken_installation_hides_no_good_one(no_clang_installed: Path) -> None:
    good = fake_clang(no_clang_installed / "clang-19", "19.1.7")
    broken = no_clang_installed / "clang-20"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    assert find_clang(llvm_folders=()) == good


def test_none_installed(no_clang_installed: Path) -> None:
    message = message_of(None)
    assert "no clang found" in message and "clang-19 llvm-19 lld-19" in message


def test_only_old_ones_installed(no_clang_installed: Path) -> None:
    old = fake_clang(no_clang_installed / "clang-14", "14.0.6")
    message = message_of(None)
    assert str(old) in message and "14.0.6" in message and ">= 17" in message


@pytest.mark.parametrize("clang", ["clang-missing", "some/where/clang"])
def test_missing(clang: str) -> None:
    message = message_of(clang)
    assert clang in message and "no such" in message


def test_too_old(tmp_path: Path) -> None:
    clang = fake_clang(tmp_path / "clang", "16.0.6")
    message = message_of(clang)
    assert str(clang) in message and "16.0.6" in message and ">= 17" in message


def test_not_executable(tmp_path: Path) -> None:
    clang = fake_clang(tmp_path / "clang", "19.1.7")
    clang.chmod(0o644)
    message = message_of(clang)
    assert str(clang) in message and "not executable" in message


def test_a_folder(tmp_path: Path) -> None:
    assert "found a folder" in message_of(tmp_path)


@pytest.mark.parametrize("script", ["echo 'gcc (Debian) 12.2.0'", "exit 3", "printf '\\377\\n'"])
def test_not_clang(script: str, tmp_path: Path) -> None:
    program = tmp_path / "gcc"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    message = message_of(program)
    assert str(program) in message and "expected clang" in message


def test_not_even_a_program(tmp_path: Path) -> None:
    program = tmp_path / "clang"
    program.write_bytes(b"\x7fnot a program")
    program.chmod(0o755)
    assert str(program) in message_of(program)


@pytest.mark.both_compilers
def test_version_and_target(toolchain: Toolchain) -> None:
    assert toolchain.clang.name == f"clang-{toolchain.version[0]}"
    assert "clang version" in toolchain.version_text
    assert "linux" in toolchain.target
    assert toolchain.identity() == {
        "version": ".".join(map(str, toolchain.version)),
        "version_text": toolchain.version_text,
        "target": toolchain.target,
    }


@pytest.mark.both_compilers
def test_finds_every_tool_of_the_same_version(toolchain: Toolchain) -> None:
    expected = set(TOOL_PACKAGES) - ({"llvm-ir2vec"} if toolchain.version[0] < 22 else set())
    assert set(toolchain.tools) == expected
    for name in expected:
        path = toolchain.tool(name)
        assert path.is_absolute() and os.access(path, os.X_OK)
        assert f"-{toolchain.version[0]}" in str(path)


def test_tools_by_suffix_where_the_compiler_stands_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clang = fake_clang(tmp_path / "here/clang", "19.1.7")
    beside = fake_clang(tmp_path / "here/llvm-size-19", "")
    on_path = fake_clang(tmp_path / "there/ld.lld-19", "")
    fake_clang(tmp_path / "there/opt-18", "")
    monkeypatch.setenv("PATH", str(on_path.parent))
    toolchain = probe(clang)
    assert toolchain.tools == {"llvm-size": beside, "ld.lld": on_path}
    with pytest.raises(ToolchainError, match=r"opt: not found .*opt-19 on PATH.* llvm-19$"):
        toolchain.tool("opt")


def test_a_compiler_that_can_nothing_is_probed_all_the_same(tmp_path: Path) -> None:
    toolchain = probe(fake_clang(tmp_path / "clang", "17.0.0"))
    assert not toolchain.pass_plugins and not toolchain.development_mode
    for problem in ADVISORS:
        assert not toolchain.problems[problem].interactive
        with pytest.raises(ToolchainError, match=f"offers no {problem} decisions over the channel: "):
            toolchain.require(problem)


def test_require(toolchain: Toolchain) -> None:
    assert isinstance(toolchain.require("inlining"), ProblemSupport)


def test_survives_pickle(toolchain: Toolchain) -> None:
    assert pickle.loads(pickle.dumps(toolchain)) == toolchain  # noqa: S301 (our own, as the workers get it)
