"""Three situations of public reports; `python -m benchmarks.public_reports` runs all."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]


def _run(tmp_path: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.public_reports", *options],
        cwd=_ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_three_reports(clang_path: str, tmp_path: Path) -> None:
    done = _run(tmp_path, f"--clang_paths={clang_path}", "--only=^nobody/nothing#1")
    assert done.returncode == 2
    assert done.stderr.endswith("--only=^nobody/nothing#1: no entry of public_reports.yaml matches\n")
    done = _run(tmp_path, f"--clang_paths={clang_path}", "--only=ccache#(134|1347) |distcc#465 ")
    assert done.returncode == 0, done.stdout + done.stderr
    first, *table = done.stdout.splitlines()
    assert first.endswith(": 3 entries, 3 of public reports; 0 differ; a policy decides in 2")
    assert [row.split(" | ")[2].split(":")[0] for row in table[2:]] == ["right |", "mended", "mended"]
