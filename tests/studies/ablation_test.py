"""The script that leaves out one part of the training at a time."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import programs
from tests.small_corpus import SOURCES, make_corpus

_CLANG = "clang-22"
_SCRIPT = str(programs.ROOT / "studies" / "ablation.sh")


@pytest.mark.slow
def test_every_part_is_left_out_once(tmp_path: Path) -> None:
    corpora, runs = tmp_path / "corpora", tmp_path / "runs"
    for name in ("train", "validation"):
        (corpora / name).mkdir(parents=True)
        make_corpus(corpora / name, _CLANG, {f"{name}_{path}": source for path, source in SOURCES.items()})
    environment = {**os.environ, "PYTHON": sys.executable, "SEEDS": "1", "COMPILES": "40"}
    command = ["bash", _SCRIPT, str(corpora), str(runs), f"--clang_path={_CLANG}"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    found = {path.parent.name: json.loads(path.read_text()) for path in runs.glob("*/*/seed-1.json")}
    assert found.keys() == {"everything", "no_inputs", "no_signal", "no_balance", "no_ppo_balance", "no_teacher"}
    assert "margin" in (runs / "margins-1.txt").read_text()
    again = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert "run 1 of" not in again.stdout, "what is complete is kept"


def test_arguments_are_needed() -> None:
    result = subprocess.run(["bash", _SCRIPT], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("studies/ablation.sh CORPORA RUNS")
