"""Compiling C++ for a test."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from compiler_opt.policies.native import include_directory

COMPILERS = ("clang++-19", "clang++-22", "g++")
STRICT = ("-std=c++17", "-Wall", "-Wextra", "-pedantic", "-Werror")


def build(sources: Sequence[Path], output: Path, compiler: str, *options: str) -> Path:
    """An executable or library from sources that may give no warning."""
    if shutil.which(compiler) is None:
        pytest.fail(f"{compiler} is not installed; ./run_tests.sh installs what the tests need")
    command = [compiler, *STRICT, f"-I{include_directory()}", *map(str, sources), *options, "-o", str(output)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{' '.join(command)}\n{result.stderr}"
    return output
