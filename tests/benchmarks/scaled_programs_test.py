"""Programs that have one thing many times: which grow under the policy that ships, and under one that never inlines."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

from compiler_opt import pretrained
from compiler_opt.export.combination import combine_policies
from tests.programs import ROOT


def _run(*options: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.scaled_programs", "--clang_path=clang-22", *options],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_what_networks_get_wrong_stays_small(tmp_path: Path) -> None:
    """Without the rules before its network, the policy leaves empty constructors, and inlines all of 300 messages."""
    output = tmp_path / "sizes.csv"
    done = _run("--program=temporary_strings", "--program=messages", "--count=300", f"--output_path={output}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 programs: " in done.stdout
    rows = list(csv.DictReader(output.read_text(encoding="utf-8").splitlines()))
    assert [row["program"] for row in rows] == ["temporary_strings", "messages"]
    for row in rows:
        plain, policy = (
            sum(int(row[f"{name}_{part}"]) for part in ("code", "constants", "unwind")) for name in ("plain", "policy")
        )
        assert 0 < policy <= 1.01 * plain


@pytest.mark.slow
def test_growth_is_found(tmp_path: Path) -> None:
    never = combine_policies(["never", pretrained.path("inlining-Oz-plugin")], "default_decision", [2])
    never.save(tmp_path)
    done = _run(f"--policy_path={tmp_path}", "--program=getter", "--count=3", "--count=30")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "2 programs: 0 smaller; 2 larger by more than 1%; worst +" in done.stdout
    done = _run("--program=getters")
    assert done.returncode == 2
    assert "--program=getters: expected one of accessors, " in done.stderr


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_no_program_grows_much() -> None:
    done = _run("--count=100", "--max_growth=2")
    assert done.returncode == 0, done.stdout + done.stderr
