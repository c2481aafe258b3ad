import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import programs
from tests.collect.verify_test import BUILT, build

ROOT = Path(__file__).parents[2]


def verify_corpus(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return programs.run("compiler_opt.tools.verify_corpus", "--clang_path=clang-22", *arguments)


@pytest.fixture(name="place")
def place_fixture(tmp_path: Path) -> Path:
    clang = shutil.which("clang-22")
    assert clang is not None
    build(tmp_path, Path(clang), {name: BUILT[name] for name in ("O0.c", "O2.c")})
    return tmp_path


@pytest.mark.ci
def test_identical_and_missing_objects(place: Path) -> None:
    where = (f"--data_path={place / 'corpus'}", f"--original_dir={place / 'build'}")
    output = place / "out" / "found.json"
    result = verify_corpus(*where, f"--output_path={output}")
    assert result.returncode == 0, result.stderr
    assert "2 of 2 modules are bit-identical (100.0%), 0 differ for a known reason, 0 otherwise" in result.stdout
    assert "not compared: .llvmbc, .llvmcmd" in result.stdout
    assert "clang version 22" in result.stdout
    assert json.loads(output.read_text())["others"] == []

    (place / "build" / "O2.c.o").unlink()
    result = verify_corpus(*where, f"--output_path={output}", "--num_workers=1", "--sample=2", "--json")
    assert result.returncode == 1
    assert "1 of 2 modules are bit-identical (50.0%), 0 differ for a known reason, 1 otherwise" in result.stderr
    assert f"not identical: O2.c.o: {place / 'build' / 'O2.c.o'}: no such object" in result.stderr
    assert "Traceback" not in result.stderr
    assert json.loads(result.stdout) == json.loads(output.read_text())
    [other] = json.loads(result.stdout)["others"]
    assert other["module"] == "O2.c.o" and "no such object" in other["failure"]
