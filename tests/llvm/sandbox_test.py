"""The sandbox of compilers, tried with real ones: what it refuses, and that nothing else differs."""

import contextlib
import json
import os
import platform
import re
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from compiler_opt.errors import ConfigError, ToolchainError
from compiler_opt.llvm import fork_server, processes, sandbox, system_calls
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


@pytest.mark.both_compilers
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


_ATTACKS = Path(__file__).with_name("sandbox_attacks.py")
_ALWAYS_POSSIBLE = {"chmod", "fchmod", "chown", "lchown", "fchown", "utime", "futime", "flock", "prlimit", "priority"}
_ALWAYS_POSSIBLE |= {"affinity", "scheduler", "kill", "datagram", "symbolic link", "pipe", "shared memory"}
_ALWAYS_POSSIBLE |= {"child of the parent"}
"""Of the attacks, those that succeed outside of a sandbox on every system."""


def test_what_else_is_outside_cannot_be_changed(boxed: Sandbox, starter: str, scratch: Path, tmp_path: Path) -> None:
    """Permissions, owners, times and attributes of files; other processes; what they share; special files."""
    (tmp_path / "file").touch(0o600)
    column = {"x86_64": 0, "aarch64": 1}[platform.machine()]
    pairs = {**system_calls.numbers(), "clone": system_calls.CLONE, "clone3": system_calls.CLONE3}
    numbers = json.dumps({name: pair[column] for name, pair in pairs.items()})
    results: list[dict[str, str | None]] = []
    with subprocess.Popen(["sleep", "60"]) as victim, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as service:
        service.bind(str(tmp_path / "service"))
        for box in (boxed, None):
            words = [str(_ATTACKS), str(tmp_path), str(scratch), str(victim.pid), numbers]
            result = processes.run([_PYTHON, *words], sandbox=box)
            assert result.ok, result.describe()
            results.append(json.loads(result.stdout))
        victim.kill()
    inside, outside = results
    refused = {name: error for name, error in inside.items() if error not in ("EPERM", "EACCES")}
    assert refused == {"user namespace by clone3": "ENOSYS"}
    assert {name for name, error in outside.items() if error is None} >= _ALWAYS_POSSIBLE


def test_what_only_reads_writes_nowhere(starter: str, clang_path: str, tmp_path: Path) -> None:
    (tmp_path / "source.c").write_text("int f(int x) { return x + 1; }\n")
    command = [clang_path, "-S", str(tmp_path / "source.c"), "-o"]
    nowhere = Sandbox.for_folder(None)
    assert nowhere is not None
    assert b"f:" in processes.run([*command, "-"], sandbox=nowhere).stdout
    assert "Permission denied" in processes.run([*command, str(tmp_path / "x.s")], sandbox=nowhere).stderr_tail


@pytest.mark.parametrize(("column", "header"), [(0, "asm/unistd_64.h"), (1, "asm-generic/unistd.h")])
def test_numbers_of_system_calls(column: int, header: str) -> None:
    """As in the kernel's headers, where they know the calls."""
    options = ["-D__BITS_PER_LONG=64", "-D__ARCH_WANT_NEW_STAT", "-D__ARCH_WANT_SYS_CLONE3"]
    command = ["clang-22", "-E", "-dM", *options, "-x", "c", "-"]
    text = subprocess.run(command, input=f"#include <{header}>\n", capture_output=True, text=True, check=True).stdout
    there = {name: int(number) for name, number in re.findall(r"define __NR(?:3264)?_(\w+) (\d+)$", text, re.MULTILINE)}
    ours = {name: pair[column] for name, pair in system_calls.numbers().items()}
    ours |= {"prlimit64": system_calls.PRLIMIT64[column], "fcntl": system_calls.FCNTL[column]}
    ours |= {"ioctl": system_calls.IOCTL[column], "clone": system_calls.CLONE[column]}
    ours |= {"clone3": system_calls.CLONE3[column]}
    newest = max(number for name, number in there.items() if name != "syscalls")  # which is how many there are
    assert {name: number for name, number in ours.items() if (number or 0) <= newest} == {
        name: there.get(name) for name, number in ours.items() if (number or 0) <= newest
    }
    assert len(ours.keys() & there.keys()) > 40


def test_its_children_are_in_it_too(boxed: Sandbox, starter: str, tmp_path: Path) -> None:
    result = processes.run(["sh", "-c", f"sh -c 'echo > {tmp_path}/file'"], sandbox=boxed)
    assert "Permission denied" in result.stderr_tail and not (tmp_path / "file").exists()


def test_other_processes_are_not(boxed: Sandbox, starter: str, scratch: Path, tmp_path: Path) -> None:
    """Each process is in the sandbox that it was started with, however often they alternate."""
    (tmp_path / "other").mkdir()
    other = Sandbox(tmp_path / "other")
    for box, place, is_allowed in (
        (boxed, scratch, True),
        (None, tmp_path, True),
        (other, scratch, False),
        (other, tmp_path / "other", True),
        (boxed, tmp_path / "other", False),
        (None, tmp_path / "other", True),
    ):
        assert processes.run(["cp", os.devnull, str(place / "file")], sandbox=box).ok == is_allowed
    with socket.socket():
        pass


def test_a_compiler_in_it_is_killed_with_its_group(boxed: Sandbox, starter: str) -> None:
    result = processes.run(["sh", "-c", "sleep 60 & sleep 60"], sandbox=boxed, timeout_s=0.3)
    assert result.timed_out and result.returncode == -signal.SIGKILL


def test_nothing_that_it_starts_outlives_it(boxed: Sandbox, starter: str, scratch: Path) -> None:
    """It would write to the folder when the next module is compiled in it."""
    code = """
        import contextlib, os, time
        if os.fork() == 0:
            os.close(1)  # which is read to its end
            for leave in (os.setsid, lambda: os.setpgid(0, 0)):
                with contextlib.suppress(PermissionError):
                    leave()
            open('{scratch}/' + str(os.getpid()), 'w').close()
            time.sleep(60)
        while not os.listdir('{scratch}'):
            time.sleep(0.01)
    """
    assert _python(code.replace("{scratch}", str(scratch)), boxed).ok
    (started,) = scratch.iterdir()
    with contextlib.suppress(psutil.NoSuchProcess):
        left = psutil.Process(int(started.name))
        if left.status() != psutil.STATUS_ZOMBIE:
            left.wait(timeout=5)


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
