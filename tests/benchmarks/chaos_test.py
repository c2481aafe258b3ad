"""A short training with injected faults; `python -m benchmarks.chaos` is the long one."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.small_corpus import make_small_corpus

_ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_training_survives_faults(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    make_small_corpus(corpus, "clang-22")
    settings = {
        "data_path": corpus,
        "iterations": 12,
        "num_modules": 3,
        "compiler_faults": 0.03,
        "period_s": 4,
        "host_kills": 1,
        "host_kill_s": 15,
        "num_workers": 2,
        "minutes": 14,
    }
    result = subprocess.run(
        [sys.executable, "-m", "benchmarks.chaos", *(f"--{name}={value}" for name, value in settings.items())],
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": str(_ROOT), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(r"^iterations +12 +12$", result.stdout, re.MULTILINE)
    assert re.search(r"^usable modules +4 +4$", result.stdout, re.MULTILINE)
    assert "training killed" in result.stdout
    assert re.search(r"(worker|server) (killed|stopped)", result.stdout)
    # The disk is unmounted, and nothing is left.
    assert [path.name for path in tmp_path.iterdir()] == ["corpus"]
