"""A virtual environment whose packages are links to those of the one that runs the tests: nothing is downloaded."""

import importlib.metadata
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path


def make_linked_environment(folder: Path, names: Iterable[str]) -> Path:
    """Makes an environment that has these distributions, and no others; returns its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    [packages] = folder.glob("lib/python*/site-packages")
    for name in names:
        distribution = importlib.metadata.distribution(name)
        for top in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
            link = packages / top
            if not link.exists():
                link.symlink_to(Path(str(distribution.locate_file(top))))
    return folder / "bin" / "python"
