"""LLVM's profiles: recorded by a real program, merged, used; and what is not one."""

import dataclasses
import os
import subprocess
from pathlib import Path

import pytest

from compiler_opt.errors import CompileError, CorpusError, ToolchainError
from compiler_opt.llvm.profile import check_runtime, largest_count, merge, use_options
from compiler_opt.llvm.toolchain import Toolchain

_SOURCE = (
    "int main(int argc, char **argv) { int t = 0; for (int i = 0; i < 1000; i++) t += i * argc; return t == 0; }\n"
)


@pytest.mark.parametrize("clang_path", ["clang-22"], indirect=True)
def test_runs_are_counted_and_added_up(toolchain: Toolchain, tmp_path: Path) -> None:
    check_runtime(toolchain)
    (tmp_path / "x.c").write_text(_SOURCE)
    raw = tmp_path / "raw"
    command = [str(toolchain.clang), "-O1", f"-fprofile-generate={raw}", "x.c", "-o", "x"]
    subprocess.run(command, cwd=tmp_path, check=True)
    for number in range(3):
        subprocess.run([tmp_path / "x"], check=True, env={**os.environ, "LLVM_PROFILE_FILE": f"{raw}/{number}.profraw"})
    profile = tmp_path / "x.profdata"
    merge(sorted(raw.glob("*.profraw")), profile, toolchain)
    assert 2997 <= largest_count(profile, toolchain) <= 3003
    used = [word for option in use_options(profile, toolchain.version) for word in ("-Xclang", option)]
    subprocess.run([str(toolchain.clang), "-O2", *used, "-c", "x.c"], cwd=tmp_path, check=True)

    damaged = tmp_path / "damaged.profraw"
    damaged.write_bytes((raw / "0.profraw").read_bytes()[:40])
    with pytest.raises(CompileError, match=r"other.profdata: profiles cannot be merged: .*damaged.profraw"):
        merge([damaged], tmp_path / "other.profdata", toolchain)
    assert not (tmp_path / "other.profdata").exists()
    with pytest.raises(CorpusError, match=r"x\.c: expected a profile that llvm-profdata merged"):
        largest_count(tmp_path / "x.c", toolchain)


def test_without_the_runtime_the_package_is_named(toolchain: Toolchain, tmp_path: Path) -> None:
    clang = tmp_path / "clang"
    clang.write_text("#!/bin/sh\necho 'ld.lld: error: cannot open libclang_rt.profile.a' >&2\nexit 1\n")
    clang.chmod(0o755)
    version = toolchain.version[0]
    with pytest.raises(
        ToolchainError, match=rf"libclang_rt.profile.a.*; install the package libclang-rt-{version}-dev"
    ):
        check_runtime(dataclasses.replace(toolchain, clang=clang))
