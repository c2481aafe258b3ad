"""The sandbox of compilers, tried with real ones: what it refuses, and that nothing else differs."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from compiler_opt.errors import ConfigError, ToolchainError
from compiler_opt.llvm import fork_server, processes, sandbox
from compiler_opt.llvm.fork_server import ForkServers
from compiler_opt.llvm.sandbox import Sandbox

_PYTHON = sys.executable


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


@pytest.fixture
def boxed(scratch: Path) -> Sandbox:
    found = Sandbox.for_folder(scratch)
    assert found is not None, "this kernel has no Landlock"
    return found


@pytest.fixture(params=["started", "forked"])
def starter(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Both ways to start a compiler."""
    if request.param == "started":
        yield request.param
        return
    library = fork_server.find_library(Path("/usr/bin/clang-22"), tmp_path_factory.mktemp("cache"))
    assert library is not None
    servers = ForkServers(library)
    processes.use_spawner(servers.start)
    yield request.param
    processes.use_spawner(None)
    servers.close()


def _python(code: str, boxed: Sandbox | None) -> processes.ProcessResult:
    return processes.run([_PYTHON, "-c", textwrap.dedent(code)], sandbox=boxed)


def test_a_compiler_writes_to_its_folder_only(
    boxed: Sandbox, starter: str, clang_path: str, scratch: Path, tmp_path: Path
) -> None:
    source = tmp_path / "source.c"
    source.write_text("int f(int x) { return x + 1; }\n")
    command = [clang_path, "-O2", "-g", "-c", str(source), "-o"]
    plain, inside, outside = tmp_path / "plain.o", scratch / "inside.o", tmp_path / "outside.o"
    assert processes.run([*command, str(plain)]).ok
    for output in (inside, Path(os.devnull)):
        result = processes.run([*command, str(output)], sandbox=boxed)
        assert result.ok, result.describe()
    assert inside.read_bytes() == plain.read_bytes()
    result = processes.run([*command, str(outside)], sandbox=boxed)
    assert not result.ok and "Permission denied" in result.stderr_tail
    assert not outside.exists()


_FORBIDDEN: dict[str, str] = {
    "create": "open('{outside}/new', 'w')",
    "overwrite": "open('{outside}/file', 'r+')",
    "truncate": "import os; os.truncate('{outside}/file', 0)",
    "remove": "import os; os.remove('{outside}/file')",
    "move out": "import os; open('file', 'w').close(); os.rename('file', '{outside}/moved')",
    "move in": "import os; os.rename('{outside}/file', 'moved')",
    "make a folder": "import os; os.mkdir('{outside}/folder')",
    "link": "import os; os.symlink('/', '{outside}/link')",
    "TCP": "import socket; socket.socket()",
    "UDP": "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
    "Unix socket": "import socket; socket.socket(socket.AF_UNIX)",
    "io_uring": "import ctypes, os; c = ctypes.CDLL(None, use_errno=True); "
    "c.syscall(425, 1, ctypes.create_string_buffer(120)) >= 0 or c.perror(b'io_uring') or exit(1)",
    "signal": "import os; os.kill({pid}, 0)",
}


@pytest.mark.parametrize("name", _FORBIDDEN)
def test_what_is_forbidden_fails(name: str, boxed: Sandbox, starter: str, scratch: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("kept")
    code = f"import os; os.chdir('{scratch}'); {_FORBIDDEN[name]}".replace("{outside}", str(outside))
    code = code.replace("{pid}", str(os.getpid()))
    if name != "io_uring":  # which many systems forbid anyway
        assert _python(code, None).ok
        subprocess.run(["rm", "-rf", str(outside), str(scratch / "moved")], check=True)
        outside.mkdir()
        (outside / "file").write_text("kept")
    result = _python(code, boxed)
    assert result.returncode == 1
    assert "Permission denied" in result.stderr_tail or "Operation not permitted" in result.stderr_tail
    assert [path.name for path in outside.iterdir()] == ["file"]
    assert (outside / "file").read_text() == "kept"


def test_its_children_are_in_it_too(boxed: Sandbox, starter: str, tmp_path: Path) -> None:
    result = processes.run(["sh", "-c", f"sh -c 'echo > {tmp_path}/file'"], sandbox=boxed)
    assert "Permission denied" in result.stderr_tail and not (tmp_path / "file").exists()


def test_other_processes_are_not(boxed: Sandbox, starter: str, tmp_path: Path) -> None:
    """Each process is in the sandbox that it was started with, however often they alternate."""
    (tmp_path / "other").mkdir()
    other = Sandbox(tmp_path / "other")
    for box, place, is_allowed in (
        (boxed, boxed.writable, True),
        (None, tmp_path, True),
        (other, boxed.writable, False),
        (other, other.writable, True),
        (boxed, other.writable, False),
        (None, other.writable, True),
    ):
        assert processes.run(["cp", os.devnull, str(place / "file")], sandbox=box).ok == is_allowed
    with socket.socket():
        pass


def test_a_compiler_in_it_is_killed_with_its_group(boxed: Sandbox, starter: str) -> None:
    result = processes.run(["sh", "-c", "sleep 60 & sleep 60"], sandbox=boxed, timeout_s=0.3)
    assert result.timed_out and result.returncode == -signal.SIGKILL


def test_a_missing_folder_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(
        ToolchainError, match="sandbox cannot be set up: No such file or directory; COMPILER_OPT_SANDBOX=0"
    ):
        processes.run(["true"], sandbox=Sandbox(tmp_path / "missing"))


def test_it_can_be_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("", "1"):
        monkeypatch.setenv(sandbox.VARIABLE, value)
        assert Sandbox.for_folder(tmp_path) == Sandbox(tmp_path)
        assert sandbox.describe().startswith("yes, ")
    monkeypatch.setenv(sandbox.VARIABLE, "0")
    assert Sandbox.for_folder(tmp_path) is None
    assert sandbox.describe() == "no, switched off by COMPILER_OPT_SANDBOX"
    monkeypatch.setenv(sandbox.VARIABLE, "off")
    with pytest.raises(ConfigError, match="expected 0 or 1, found 'off'"):
        Sandbox.for_folder(tmp_path)
