"""Programs of this package as a user runs them."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run(script: str, *arguments: str, tree: Path = ROOT) -> "subprocess.CompletedProcess[str]":
    """Runs a script, given by its path in the tree, to its end."""
    return subprocess.run(
        [sys.executable, script, *arguments],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": "."},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
