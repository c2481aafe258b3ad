"""The documented recipe of a Debian package."""

import dataclasses
import re
import shutil
from pathlib import Path

import pytest

from compiler_opt.deploy.deployment import Deployment
from tests.deploy.conftest import Compiler, run
from tests.deploy.sources import LEAN

DOCUMENT = Path(__file__).parents[2] / "docs" / "deploy_builds.md"


@pytest.mark.ci
@pytest.mark.parametrize("clang_path", ["clang-22"], indirect=True)
def test_a_debian_package(compiler: Compiler, deployment: Deployment, tmp_path: Path) -> None:
    """Its first step, the deployment, is the tests' own."""
    blocks = re.findall(r"^```shell\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    [recipe] = [block for block in blocks if "dpkg-deb" in block]
    deploy, *rest = recipe.splitlines()
    assert "compiler_opt deploy" in deploy and "--output_dir=package/opt/mlgo" in deploy
    shutil.copytree(deployment.prefix, tmp_path / "package/opt/mlgo", symlinks=True)
    result = run(["bash", "-e", "-c", "\n".join(rest)], tmp_path)
    assert result.returncode == 0, result.stderr
    [package] = tmp_path.glob("*.deb")
    assert run(["dpkg-deb", "--field", package.name, "Depends"], tmp_path).stdout == "clang-22\n"
    root = tmp_path / "root"
    assert run(["dpkg-deb", "--extract", package.name, str(root)], tmp_path).returncode == 0
    installed = dataclasses.replace(compiler, prefix=root / "opt/mlgo")
    (tmp_path / "lean.c").write_text(LEAN)
    compile_it = ["-Oz", "-c", "lean.c", "-o"]
    assert compiler.with_policy([*compile_it, "expected.o"], tmp_path).returncode == 0
    result = installed.run([*compile_it, "made.o"], tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert (tmp_path / "made.o").read_bytes() == (tmp_path / "expected.o").read_bytes()
