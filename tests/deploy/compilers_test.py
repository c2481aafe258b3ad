"""Which clang a deployment runs: that of MLGO_CLANG, one beside the prefix, or one exact version."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest

from compiler_opt.deploy.deployment import DRIVERS, Deployment
from compiler_opt.deploy.driver import build_driver
from compiler_opt.llvm.toolchain import Toolchain
from tests.deploy.conftest import Compiler
from tests.deploy.sources import LEAN

COMPILE = ["-Oz", "-c", "lean.c"]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    place = tmp_path / "place"
    place.mkdir()
    (place / "lean.c").write_text(LEAN)
    return place


def object_of(compiler: Compiler, place: Path, *, policy: bool) -> bytes:
    assert (compiler.with_policy if policy else compiler.plain)(COMPILE, place).returncode == 0
    return (place / "lean.o").read_bytes()


def rebuild(compiler: Compiler, deployment: Deployment, toolchain: Toolchain, **changes: Any) -> None:
    """Builds the drivers of a prefix of the test's own anew, with changes of its compiler."""
    [old] = [each for each in deployment.compilers if each.major == compiler.major]
    config = dataclasses.replace(deployment, compilers=(dataclasses.replace(old, **changes),))
    scratch = compiler.prefix.parent / "scratch"
    scratch.mkdir(exist_ok=True)
    program = build_driver(config, [toolchain], scratch)
    for name in DRIVERS:
        (compiler.prefix / "bin" / name).write_bytes(program)


def test_the_compiler_of_the_environment(compiler: Compiler, place: Path) -> None:
    script = place / "tools" / "some-clang"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\ntouch ran\nexec {compiler.clang} "$@"\n')
    script.chmod(0o755)
    expected = object_of(compiler, place, policy=True)
    path = {"PATH": f"{script.parent}:/usr/bin:/bin"}
    for environment in ({"MLGO_CLANG": str(script)}, {"MLGO_CLANG": script.name, **path}):
        result = compiler.run(COMPILE, place, environment)
        assert (result.returncode, result.stderr, (place / "lean.o").read_bytes()) == (0, "", expected)
        (place / "ran").unlink()
        assert f"\nclang: {script} (" in compiler.run(["--mlgo-info"], place, environment).stdout
    for wrong in ("/no/such/clang", "no-such-clang", str(place), compiler.driver):
        result = compiler.run(COMPILE, place, {"MLGO_CLANG": wrong})
        assert result.stderr == f"error: mlgo: MLGO_CLANG: expected a compiler, found {wrong}\n"
        assert result.returncode == 127


def test_the_compiler_of_the_environment_has_another_version(
    compiler: Compiler, deployment: Deployment, place: Path
) -> None:
    """The plugin is not for it."""
    [other] = [clang for major, clang in deployment.clangs.items() if major != compiler.major]
    plain = object_of(dataclasses.replace(compiler, clang=str(other)), place, policy=False)
    result = compiler.run(COMPILE, place, {"MLGO_CLANG": str(other)})
    assert (result.returncode, (place / "lean.o").read_bytes()) == (0, plain)
    assert result.stderr.startswith("warning: mlgo: ") and result.stderr.count("\n") == 1
    assert f"plain clang-{compiler.major}" not in result.stderr
    result = compiler.run(COMPILE, place, {"MLGO_CLANG": str(other), "MLGO_STRICT": "1"})
    assert result.returncode == 1
    assert result.stderr.startswith("error: mlgo: ") and result.stderr.count("\n") == 1


def test_a_compiler_beside_the_prefix(
    damageable: Compiler, deployment: Deployment, toolchain: Toolchain, place: Path, tmp_path: Path
) -> None:
    """It moves with the prefix; when it is gone, no other is taken."""
    name = f"clang-{damageable.major}"
    rebuild(damageable, deployment, toolchain, clang=Path(f"../llvm/bin/{name}"))
    expected = object_of(damageable, place, policy=True)
    root = tmp_path / "toolchain"
    (root / "llvm/bin").mkdir(parents=True)
    (root / "llvm/bin" / name).symlink_to(damageable.clang)
    damageable.prefix.rename(root / "mlgo")
    for moved in (root, tmp_path / "moved"):
        root.rename(moved)
        there = dataclasses.replace(damageable, prefix=moved / "mlgo")
        assert f"\nclang: {moved}/llvm/bin/{name} (" in there.run(["--mlgo-info"], place).stdout
        result = there.run(COMPILE, place)
        assert (result.returncode, result.stderr, (place / "lean.o").read_bytes()) == (0, "", expected)
    shutil.rmtree(moved / "llvm")
    result = there.run(COMPILE, place)
    assert result.returncode == 127
    assert result.stderr == (
        f"error: mlgo: {moved}/llvm/bin/{name} is gone; install it, set MLGO_CLANG, or deploy the policy again for "
        "another\n"
    )


def test_a_pinned_version(damageable: Compiler, deployment: Deployment, toolchain: Toolchain, place: Path) -> None:
    plain, with_policy = (object_of(damageable, place, policy=policy) for policy in (False, True))
    version = ".".join(map(str, toolchain.version))
    for pinned in (version, f"{damageable.major}.9.99"):
        rebuild(damageable, deployment, toolchain, only_version=pinned)
        assert f"\nonly version: {pinned}\n" in damageable.run(["--mlgo-info"], place).stdout
        for strict in (False, True):
            (place / "lean.o").unlink(missing_ok=True)
            result = damageable.run(COMPILE, place, {"MLGO_STRICT": str(int(strict))})
            reason = f"the policy was deployed for LLVM {pinned} only, but this is LLVM {version}"
            if pinned == version:
                assert (result.returncode, result.stderr, (place / "lean.o").read_bytes()) == (0, "", with_policy)
            elif strict:
                assert result.stderr == f"error: mlgo: lean.c: failed with the policy: {reason}\n"
                assert result.returncode == 1 and not (place / "lean.o").exists()
            else:
                assert result.stderr == f"warning: mlgo: {reason}; compiling with the default heuristic\n"
                assert (result.returncode, (place / "lean.o").read_bytes()) == (0, plain)
