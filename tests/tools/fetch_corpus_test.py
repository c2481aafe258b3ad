import subprocess
from pathlib import Path

import pytest

from compiler_opt.corpus.ready_made import manifest
from tests import programs


def fetch_corpus(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return programs.run("compiler_opt.tools.fetch_corpus", *arguments)


def test_the_list_names_every_project_and_licence() -> None:
    result = fetch_corpus("--list")
    assert result.returncode == 0, result.stderr
    for project in manifest.load().projects.values():
        assert project.name in result.stdout
        assert project.licence in result.stdout


@pytest.mark.ci
def test_the_cost_is_printed_before_the_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    result = fetch_corpus("--set=smoke", f"--output_dir={tmp_path / 'corpora'}", f"--cache_dir={tmp_path / 'cache'}")
    # See --list: h3, marisa and munk2d, an archive each.
    projects = [project for split in manifest.load().split("smoke").values() for project in split]
    download = sum(project.archive.num_bytes for project in projects) / 1e6
    corpora = sum(project.measured.num_bytes for project in projects) / 1e6
    assert result.stdout.strip() == (
        f"3 projects with some 59 modules to make: {download:.1f} MB to download, "
        f"{corpora:.1f} MB of disk for the corpora"
    )
    assert result.returncode == 2
    assert "pip cannot download the source archive" in result.stderr.splitlines()[-1]
