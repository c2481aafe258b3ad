"""The launcher: built once, no need when it cannot be, and what it starts dies with whoever started it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from compiler_opt.llvm import launcher, processes


@pytest.fixture(scope="module")
def cache(clang_path: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    assert launcher.find_launcher(Path(clang_path), folder) is not None
    return folder


def test_it_is_built_once(cache: Path, clang_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "_build", None)
    found = launcher.find_launcher(Path(clang_path), cache)
    assert found is not None
    assert found.parent == cache / "plugins"


def test_without_a_compiler_there_is_none(tmp_path: Path) -> None:
    assert launcher.find_launcher(Path("/bin/false"), tmp_path) is None
    assert launcher.find_launcher(tmp_path / "missing", tmp_path) is None


def test_one_that_does_not_work_is_not_used(cache: Path, clang_path: str, tmp_path: Path) -> None:
    (built,) = (cache / "plugins").iterdir()
    damaged = tmp_path / "plugins" / built.name
    damaged.parent.mkdir()
    damaged.write_bytes(b"#!/bin/false\n")
    damaged.chmod(0o755)
    assert launcher.find_launcher(Path(clang_path), tmp_path) is None


def test_it_compiles_without_warnings(clang_path: str, tmp_path: Path) -> None:
    for compiler in (clang_path, "gcc"):
        command = [compiler, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-std=c11", str(launcher.SOURCE)]
        subprocess.run([*command, "-o", str(tmp_path / "launcher")], check=True)


def test_a_foreign_child_does_not_even_start(cache: Path, tmp_path: Path) -> None:
    """Its parent has died before it could ask to be killed with it."""
    (built,) = (cache / "plugins").iterdir()
    witness = tmp_path / "witness"
    result = processes.run([str(built), str(os.getpid() + 1), str(1 << 30), "/usr/bin/touch", str(witness)])
    assert not result.ok
    assert not witness.exists()


def test_what_cannot_be_started_is_said(cache: Path, tmp_path: Path) -> None:
    (built,) = (cache / "plugins").iterdir()
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF nonsense")
    program.chmod(0o755)
    result = processes.run([str(built), str(os.getpid()), str(1 << 30), str(program)])
    assert result.returncode == 127
    assert f"error: {program}: cannot be started" in result.stderr_tail


def test_when_the_host_is_killed_its_processes_die(cache: Path) -> None:
    (built,) = (cache / "plugins").iterdir()
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from compiler_opt.llvm import processes\n"
        "processes.use_launcher(Path(sys.argv[1]))\n"
        "print('started', flush=True)\n"
        "processes.run(['sh', '-c', 'echo $$ > /dev/stderr; exec sleep 60'])\n"
    )
    host = subprocess.Popen([sys.executable, "-c", script, str(built)], stdout=subprocess.PIPE)
    assert host.stdout is not None
    assert host.stdout.readline() == b"started\n"
    children: list[psutil.Process] = []
    while not (children and children[0].name() == "sleep"):
        children = psutil.Process(host.pid).children(recursive=True)
    host.send_signal(signal.SIGKILL)
    host.wait()
    host.stdout.close()
    gone, alive = psutil.wait_procs(children, timeout=30)
    assert not alive
    assert len(gone) == 1
