import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import programs

WAYS = {
    "script": [sys.executable, "compiler_opt/tools/doctor.py"],
    "module": [sys.executable, "-m", "compiler_opt.tools.doctor"],
    "verb": [sys.executable, "-m", "compiler_opt", "doctor"],
}


def doctor(way: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command, environment = [*WAYS[way], *arguments], {**os.environ, "PYTHONPATH": "."}
    return subprocess.run(
        command, cwd=programs.ROOT, env=environment, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.ci
@pytest.mark.parametrize("way", WAYS)
def test_each_way_to_start_it(way: str, clang_path: str) -> None:
    result = doctor(way, "--clang_path", clang_path)
    assert result.returncode == 0, result.stderr
    assert clang_path in result.stdout
    assert "Ready:" in result.stdout
    assert re.search("^ *sandbox  +yes, compilers of corpora", result.stdout, re.MULTILINE)
    assert result.stderr == ""


@pytest.mark.parametrize("way", WAYS)
def test_help_shows_its_own_flags(way: str) -> None:
    result = doctor(way, "--help")
    assert result.returncode == 0
    assert "--clang_path" in result.stdout and "Shows the capabilities" in result.stdout


@pytest.mark.ci
def test_json(clang_path: str) -> None:
    result = doctor("verb", "--clang_path", clang_path, "--json")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["ready"] and not any(each["essential"] for each in found["missing"])
    assert found["compiler"] == shutil.which(clang_path) and "callee_users" in found["problems"]["inlining"]["features"]
    assert "Ready:" in result.stderr


@pytest.mark.ci
def test_an_unusable_compiler_is_status_2(tmp_path: Path) -> None:
    clang = tmp_path / "clang"
    clang.write_text("#!/bin/sh\necho clang version 17.0.0\n")
    clang.chmod(0o755)
    result = programs.run("compiler_opt.tools.doctor", "--clang_path", str(clang))
    assert result.returncode == 2
    assert "cannot be trained" in result.stdout
    assert "apt-get install lld-17" in result.stdout
    found = programs.run("compiler_opt.tools.doctor", "--clang_path", str(clang), "--json")
    assert (found.returncode, json.loads(found.stdout)["ready"]) == (2, False)
