"""One deployment of a policy for both compilers, and ways to use it."""

import dataclasses
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from compiler_opt.deploy.deployment import Deployment, deploy
from compiler_opt.deploy.driver import fingerprint
from compiler_opt.deploy.policies import PolicyRequest
from tests.deploy.sources import save_policy


@dataclasses.dataclass(frozen=True)
class Compiler:
    """A driver in some prefix, with the compiler that it drives.

    Attributes:
      prefix: where it is deployed.
      major: the version.
      clang: the compiler without the policy.
    """

    prefix: Path
    major: int
    clang: str

    @property
    def driver(self) -> str:
        return str(self.prefix / "bin" / f"mlgo-clang-{self.major}")

    @property
    def cpp_driver(self) -> str:
        return str(self.prefix / "bin" / f"mlgo-clang++-{self.major}")

    @property
    def plugin(self) -> Path:
        return self.prefix / "lib" / f"mlgo-inliner-{self.major}.so"

    def trust_its_plugin(self, deployment: Deployment) -> None:
        """Has the driver of a prefix of the test's own take the plugin that is there for its own."""
        right = fingerprint(deployment.plugin(self.major).read_bytes()).encode()
        self._patch_drivers(right, fingerprint(self.plugin.read_bytes()).encode())

    def stand_in(self, folder: Path, script: str) -> Mapping[str, str]:
        """Has the driver of a prefix of the test's own start a shell script for clang, which is `$CLANG` there.

        Returns:
          The environment to run the driver in.
        """
        name = f"clang-{self.major}"
        folder.mkdir()
        (folder / name).write_text(f"#!/bin/bash\n{script}")
        (folder / name).chmod(0o755)
        # When the recorded one is gone, it is looked for on PATH.
        self._patch_drivers(self.clang.encode() + b"\0", b"/" + b"x" * (len(self.clang) - 1) + b"\0")
        return {"PATH": f"{folder}:{os.environ['PATH']}", "CLANG": self.clang}

    def _patch_drivers(self, old: bytes, new: bytes) -> None:
        for driver in (Path(self.driver), Path(self.cpp_driver)):
            content = driver.read_bytes()
            assert content.count(old) == 1
            driver.resolve().write_bytes(content.replace(old, new))

    def run(
        self, arguments: Sequence[str], cwd: Path, environment: Mapping[str, str] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """Runs the driver."""
        return run([self.driver, *arguments], cwd, environment)

    def plain(
        self, arguments: Sequence[str], cwd: Path, environment: Mapping[str, str] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """Runs the compiler without the policy."""
        return run([self.clang, *arguments], cwd, environment)

    def with_policy(
        self, arguments: Sequence[str], cwd: Path, environment: Mapping[str, str] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """Runs the compiler with the policy, as nothing but the compiler does it."""
        return run([self.clang, f"-fpass-plugin={self.plugin}", *arguments], cwd, environment)


def run(
    command: Sequence[str], cwd: Path, environment: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Runs a command to its end, whatever that is."""
    return subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.fixture(scope="session")
def policy_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("policy")
    save_policy(path)
    return path


@pytest.fixture(scope="session")
def deployment(policy_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    clangs = []
    for name in ("clang-22", "clang-19"):
        path = shutil.which(name)
        if path is None:
            pytest.fail(f"{name} is not installed; ./run_tests.sh installs what the tests need")
        clangs.append(path)
    return deploy([PolicyRequest(policy_dir)], tmp_path_factory.mktemp("deployed") / "prefix", clangs)


@pytest.fixture
def compiler(deployment: Deployment, clang_path: str) -> Compiler:
    """The deployment's driver for each tested compiler."""
    [major] = [major for major, clang in deployment.clangs.items() if str(clang) == clang_path]
    return Compiler(deployment.prefix, major, clang_path)


@pytest.fixture
def damageable(compiler: Compiler, tmp_path: Path) -> Compiler:
    """The same in a prefix of the test's own."""
    shutil.copytree(compiler.prefix, tmp_path / "prefix", symlinks=True)
    return dataclasses.replace(compiler, prefix=tmp_path / "prefix")
