"""The examples learn a small known problem by the real libraries."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.small_corpus import make_corpus

ROOT = Path(__file__).parents[2]
_NEEDED = ("torch", "stable_baselines3")

_SOURCE = """
static void use(int *a, int n) { for (int i = 0; i < n; i++) a[i] = a[i] * n + i / (n | 1) + (a[i] ^ n) % 7; }
void one(int *a) { use(a, 3); use(a + 1, 4); use(a + 2, 5); }
void two(int *a) { use(a, 6); use(a + 1, 7); use(a + 2, 8); }
"""
"""Inlining a call copies the loop: the smallest object has none inlined."""


@pytest.mark.slow
@pytest.mark.parametrize("clang_path", ["clang-22"], indirect=True)
@pytest.mark.parametrize("example", ["stable_baselines3_ppo", "cleanrl_ppo"])
def test_it_improves_a_module(example: str, clang_path: str, tmp_path: Path) -> None:
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        pytest.fail(f"{', '.join(missing)}: not installed; docs/gymnasium.md has the commands")
    corpus = make_corpus(tmp_path, clang_path, {"project/module.c": _SOURCE})
    command = [sys.executable, str(ROOT / f"examples/{example}.py"), f"--data_path={corpus.root}"]
    result = subprocess.run(
        [*command, f"--clang_path={clang_path}", "--steps=2000"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=580,
    )
    assert result.returncode == 0, result.stderr
    rewards = [float(number) for number in re.findall(r"[+-]\d\.\d{4}", result.stdout)]
    assert len(rewards) >= 2
    assert rewards[-1] > rewards[0], result.stdout
