"""Compiles C++ for tests, and runs the driver of the C++ evaluator."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.native import NATIVE_FILE, include_directory, native_blob
from tests.made_once import made_once

DRIVER = Path(__file__).with_name("policy_network_driver.cpp")
COMPILERS = ("clang++-19", "clang++-22", "g++")
ONE_BY_DEFAULT = [
    pytest.param(name, marks=() if name == "clang++-22" else pytest.mark.slow, id=name) for name in COMPILERS
]
"""For tests of which one holds all compilers against each other."""
STRICT = ("-std=c++17", "-Wall", "-Wextra", "-pedantic", "-Werror")


def build(sources: Sequence[Path], output: Path, compiler: str, *options: str) -> Path:
    """Builds an executable or library, the same one only once in a run of the tests; any warning fails the test."""
    if shutil.which(compiler) is None:
        pytest.fail(f"{compiler} is not installed; ./run_tests.sh installs what the tests need")
    command = [compiler, *STRICT, f"-I{include_directory()}", *map(str, sources), *options]

    def compiled() -> bytes:
        result = subprocess.run([*command, "-o", str(output)], capture_output=True, text=True, check=False)
        assert result.returncode == 0, f"{' '.join(command)}\n{result.stderr}"
        return output.read_bytes()

    output.write_bytes(made_once(compiled, command, sources))
    output.chmod(0o755)
    return output


def run_driver(driver: Path, *arguments: object) -> list[str]:
    """Runs a driver and returns the lines it prints."""
    result = subprocess.run([str(driver), *map(str, arguments)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{arguments}: {result.stdout}{result.stderr}"
    return result.stdout.splitlines()


def driver_logits(
    driver: Path, weights: NetworkWeights, features: np.ndarray, directory: Path, length: int = 0
) -> np.ndarray:
    """The logits of the C++ evaluator: `[T, F]` int64 -> `[T, A]` float32; a module has `length` decisions, or all."""
    blob = directory / NATIVE_FILE
    blob.write_bytes(native_blob(weights))
    features.tofile(directory / "features")
    printed = run_driver(driver, "logits", blob, directory / "features", directory / "logits", length)
    assert printed[:-1] == list(weights.features)
    return np.fromfile(directory / "logits", np.float32).reshape(len(features), -1)
