"""Real objects with embedded bitcode, for archives, links and trees."""

import subprocess
from pathlib import Path

import pytest

OBJECTS = ("main.o", "lib/a.o", "lib/b.o", "other/a.o", "with space/long name of an object.o")


@pytest.fixture(name="tree", scope="module")
def tree_fixture(clang_path: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `OBJECTS`, each of which defines its own symbol."""
    root = tmp_path_factory.mktemp("tree")
    for number, name in enumerate(OBJECTS):
        (root / name).parent.mkdir(exist_ok=True)
        command = [clang_path, "-Oz", "-Xclang", "-fembed-bitcode=all", "-c", "-x", "c", "-", "-o", name]
        subprocess.run(command, cwd=root, input=f"int f{number}(void) {{ return {number}; }}".encode(), check=True)
    return root
