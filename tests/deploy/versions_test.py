"""Deployments side by side, and the way back."""

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from compiler_opt.deploy.deployment import Deployment
from compiler_opt.deploy.versions import next_version, replace_link
from compiler_opt.errors import OutputError
from tests.deploy.conftest import run
from tests.deploy.sources import LEAN


def test_numbers(tmp_path: Path) -> None:
    prefix = tmp_path / "mlgo"
    assert next_version(prefix) == tmp_path / "mlgo.1"
    assert next_version(tmp_path / "no" / "such" / "mlgo").name == "mlgo.1"
    for name in ("mlgo.9", "mlgo.10", "mlgo.old", "mlgo.011", "other.12", "xmlgo.13"):
        (tmp_path / name).mkdir()
    assert next_version(prefix) == tmp_path / "mlgo.11"
    replace_link(prefix, "mlgo.9")
    replace_link(prefix, "mlgo.10")
    assert prefix.readlink() == Path("mlgo.10") and next_version(prefix) == tmp_path / "mlgo.11"
    assert sorted(path.name for path in tmp_path.iterdir() if "mlgo" in path.name and path.is_symlink()) == ["mlgo"]
    prefix.unlink()
    prefix.mkdir()
    with pytest.raises(OutputError, match="expected nothing, or the link of an earlier --versioned"):
        next_version(prefix)


def test_rollback(deployment: Deployment, tmp_path: Path) -> None:
    """As documented. A build that goes through the link sees one version or the other."""
    prefix = tmp_path / "mlgo"
    for number in (1, 2):
        shutil.copytree(deployment.prefix, tmp_path / f"mlgo.{number}", symlinks=True)
        replace_link(prefix, f"mlgo.{number}")
    for plugin in (tmp_path / "mlgo.2" / "lib").iterdir():
        plugin.unlink()
    (tmp_path / "lean.c").write_text(LEAN)
    command = [str(prefix / "bin" / "mlgo-clang"), "-Oz", "-c", "lean.c"]
    assert f"{tmp_path}/mlgo.2/lib/" in run(command, tmp_path).stderr
    document = (Path(__file__).parents[2] / "docs" / "deploy_builds.md").read_text()
    [rollback] = [line for line in document.splitlines() if line.startswith("ln -sfn ")]
    words = [word.replace("/opt/mlgo", str(prefix)) for word in shlex.split(rollback, comments=True)]
    subprocess.run(words, check=True, cwd=tmp_path)
    result = run(command, tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
