"""Cross compilation, with a sysroot of the test's own instead of installed headers."""

import subprocess
from pathlib import Path

import pytest

from compiler_opt.corpus.ready_made.cross_compiling import OWN_TARGET, Target
from compiler_opt.errors import ConfigError
from compiler_opt.llvm.toolchain import probe


def test_the_own_target_needs_nothing(clang_path: str) -> None:
    assert OWN_TARGET.options == ()
    OWN_TARGET.check(clang_path)


def test_architectures_are_as_the_compiler_spells_them(clang_path: str) -> None:
    assert Target("riscv64-linux-gnu").architecture(clang_path) == "riscv64"
    assert Target("aarch64-unknown-linux-gnu").architecture(clang_path) == "aarch64"
    assert OWN_TARGET.architecture(clang_path) == probe(clang_path).target.split("-")[0]


def test_a_thumb_triple_gives_thumb_code(clang_path: str, tmp_path: Path) -> None:
    """For Linux, clang generates code for Arm unless it is also told -mthumb."""
    (tmp_path / "empty.c").touch()
    for triple, expected in {"thumbv7": "thumbv7", "armv7": "armv7"}.items():
        target = Target(f"{triple}-linux-gnueabihf", tmp_path)
        command = [clang_path, *target.options, "-S", "-emit-llvm", "-o", "-", "empty.c"]
        printed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        assert f'target triple = "{expected}-' in printed
        with pytest.raises(ConfigError, match=r"the package g\+\+-arm-linux-gnueabihf"):
            target.check(clang_path)


def test_missing_headers_are_reported(clang_path: str, tmp_path: Path) -> None:
    target = Target("aarch64-linux-gnu", tmp_path)
    with pytest.raises(ConfigError, match=r"headers of C for it are missing .*g\+\+-aarch64-linux-gnu.* --sysroot"):
        target.check(clang_path)


def test_headers_that_are_there_are_found(clang_path: str, tmp_path: Path) -> None:
    include = tmp_path / "usr" / "include"
    (include / "c++" / "v1").mkdir(parents=True)
    (include / "stdio.h").write_text("int puts(const char *);\n")
    with pytest.raises(ConfigError, match=r"headers of C\+\+ for it"):
        Target("riscv64-linux-gnu", tmp_path).check(clang_path)
    (include / "string").write_text("namespace std { class string; }\n")
    Target("riscv64-linux-gnu", tmp_path).check(clang_path)


@pytest.mark.parametrize("triple", ["aarch64", "", "-linux-gnu", "aarch64-linux-gnu -load=x", "/bin-x"])
def test_invalid_triples_are_refused(triple: str) -> None:
    with pytest.raises(ConfigError, match="expected words joined by '-'"):
        Target(triple)


def test_an_unsupported_target_is_refused(clang_path: str) -> None:
    with pytest.raises(ConfigError, match="--target_triple=nosuch-linux-gnu: "):
        Target("nosuch-linux-gnu").check(clang_path)


def test_a_missing_sysroot_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such folder"):
        Target("aarch64-linux-gnu", tmp_path / "absent")
