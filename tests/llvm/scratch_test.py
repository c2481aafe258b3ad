"""Scratch directories go with their owners."""

import concurrent.futures
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from compiler_opt.errors import OutputError
from compiler_opt.llvm.scratch import scratch_directory, sweep
from tests.machine import with_mounts

_OWNER = """
import sys, time
from pathlib import Path
from compiler_opt.llvm.scratch import scratch_directory
with scratch_directory(Path(sys.argv[1])) as path:
    print(path, flush=True)
    time.sleep(60)
"""


def test_it_is_removed_with_its_content(tmp_path: Path) -> None:
    with scratch_directory(tmp_path) as path:
        (path / "x").write_text("x")
        assert path.parent == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_the_system_folder_is_left_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with scratch_directory(), scratch_directory():
        assert len(list(tmp_path.iterdir())) == 1
    assert list(tmp_path.iterdir()) == []


def test_that_of_a_killed_owner_is_swept_and_that_of_a_living_one_kept(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    owners = [
        subprocess.Popen([sys.executable, "-c", _OWNER, str(tmp_path)], stdout=subprocess.PIPE, env=environment)
        for _ in range(2)
    ]
    paths = []
    for owner in owners:
        assert owner.stdout is not None
        paths.append(Path(owner.stdout.readline().decode().strip()))
    owners[0].send_signal(signal.SIGKILL)
    owners[0].wait()
    assert sweep(tmp_path) == 1
    assert [path.exists() for path in paths] == [False, True]
    owners[1].kill()
    for owner in owners:
        owner.communicate()


def test_none_is_swept_between_its_making_and_its_locking(tmp_path: Path) -> None:
    def use(_: int) -> None:
        with scratch_directory(tmp_path) as path:
            (path / "x").write_text("x")

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(use, range(400)))
    assert list(tmp_path.iterdir()) == []


def test_the_system_folder_may_vanish_while_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last user removes it, while another one is about to make a directory in it."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def use(_: int) -> None:
        with scratch_directory() as path:
            (path / "x").write_text("x")

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(use, range(400)))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="set TMPDIR"), scratch_directory(tmp_path / "file" / "below"):
        pass


def test_a_link_in_the_systems_folder_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There, anybody may make one of our name, to a folder of ours."""
    (tmp_path / "mine").mkdir()
    (tmp_path / f"compiler_opt-{os.getuid()}").symlink_to("mine")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(OutputError, match="is a link, or belongs to another user; set TMPDIR"), scratch_directory():
        pass
    with scratch_directory(tmp_path / f"compiler_opt-{os.getuid()}") as given:
        assert given.is_dir()


def test_what_is_in_it_can_be_executed(tmp_path: Path) -> None:
    """Many administrators mount /tmp so that nothing there can be."""
    (tmp_path / "tmp").mkdir()
    script = (
        "import subprocess\n"
        "from compiler_opt.llvm.scratch import scratch_directory\n"
        "with scratch_directory() as scratch:\n"
        "  program = scratch / 'program'\n"
        "  program.write_text('#!/bin/sh\\necho executed')\n"
        "  program.chmod(0o755)\n"
        "  subprocess.run([program], check=True)\n"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    result = subprocess.run(
        with_mounts('mount -t tmpfs -o noexec none "$TMPDIR"', sys.executable, "-c", script),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "executed\n", "")
    assert not list((tmp_path / "cache").rglob("program"))


def _leave_behind(scratch: Path) -> None:
    """What a compiler that was taken over may leave: folders of any depth, which nobody may read."""
    code = "import os\nfor _ in range(2100):\n  os.mkdir('d', 0o700)\n  os.chdir('d')\nos.mkdir('closed', 0)"
    subprocess.run([sys.executable, "-c", code], cwd=scratch, check=True)
    (scratch / "closed" / "inner").mkdir(parents=True)
    (scratch / "closed" / "inner" / "link").symlink_to("/")
    (scratch / "closed").chmod(0)


@pytest.mark.ci
def test_it_is_removed_whatever_is_in_it(tmp_path: Path) -> None:
    """Else it would break every later command, which removes it first."""
    with scratch_directory(tmp_path) as path:
        _leave_behind(path)
    assert list(tmp_path.iterdir()) == []
    left = tmp_path / f"{path.name}-of-a-killed-owner"
    left.mkdir()
    (left / "lock").touch()
    _leave_behind(left)
    assert sweep(tmp_path) == 1 and list(tmp_path.iterdir()) == []
