"""Programs that wait to be forked: built once, no need when that cannot be, and nothing differs but what it costs."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from compiler_opt.llvm import fork_server, processes
from compiler_opt.llvm.fork_server import ForkServers
from tests.llvm.build_cache_test import UNSAFE


@pytest.fixture(scope="module")
def cache(clang_path: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    assert fork_server.find_library(Path(clang_path), folder) is not None
    return folder


@pytest.fixture(scope="module")
def library(cache: Path) -> Path:
    (built,) = (cache / "plugins").glob("*.so")
    return built


@pytest.fixture
def servers(library: Path) -> Iterator[ForkServers]:
    servers = ForkServers(library)
    processes.use_spawner(servers.start)
    yield servers
    processes.use_spawner(None)
    servers.close()


def _waiting() -> list[psutil.Process]:
    """Servers of ours."""
    return [
        child
        for child in psutil.Process().children()
        if child.status() != psutil.STATUS_ZOMBIE and "MLGO_FORK_SERVER" in child.environ()
    ]


def test_it_is_built_once(cache: Path, clang_path: str) -> None:
    def no_build(clang: Path) -> bytes:
        raise AssertionError("built a second time")

    found = fork_server.find_library(Path(clang_path), cache, no_build)
    assert found is not None
    assert found.parent == cache / "plugins"


@pytest.mark.parametrize("way", [way for way in UNSAFE if way.startswith("the folder")])
def test_a_library_that_others_can_replace_is_not_preloaded(
    library: Path, clang_path: str, tmp_path: Path, way: str
) -> None:
    planted, marker = tmp_path / "plugins" / library.name, tmp_path / "marker"
    planted.parent.mkdir()
    code = f'#include <fcntl.h>\n__attribute__((constructor)) static void run(void) {{ creat("{marker}", 0600); }}\n'
    (tmp_path / "planted.c").write_text(code)
    command = [clang_path, "-shared", "-fPIC", str(tmp_path / "planted.c"), "-o", str(planted)]
    subprocess.run(command, check=True)
    assert fork_server.find_library(Path(clang_path), tmp_path) == planted
    UNSAFE[way](planted)
    found = fork_server.find_library(Path(clang_path), tmp_path)
    if found is not None:
        processes.use_spawner(ForkServers(found).start)
    assert processes.run(["true"]).ok
    processes.use_spawner(None)
    assert found is None and not marker.exists()


def test_without_a_compiler_there_is_none(tmp_path: Path) -> None:
    assert fork_server.find_library(Path("/bin/false"), tmp_path) is None
    assert fork_server.find_library(tmp_path / "missing", tmp_path) is None
    assert fork_server.find_library(Path("/bin/true"), tmp_path / "a folder") is None


def test_it_compiles_without_warnings(clang_path: str, tmp_path: Path) -> None:
    for compiler in (clang_path, "gcc"):
        options = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-std=c11", "-fPIC", "-shared"]
        command = [compiler, *options, str(fork_server.SOURCE)]
        subprocess.run([*command, "-o", str(tmp_path / "library.so")], check=True)


@pytest.mark.both_compilers
@pytest.mark.parametrize("source", ["int f(int x) { return x + 1; }", "int f(int x) { return y; }"])
def test_a_compiler_does_the_same(servers: ForkServers, clang_path: str, tmp_path: Path, source: str) -> None:
    path = tmp_path / "source.c"
    path.write_text(source)
    results, objects = [], []
    for starter in (None, servers.start, servers.start):
        processes.use_spawner(starter)
        # By paths that depend on the working directory and the environment.
        result = processes.run(
            [clang_path, "-g", "-O2", "-c", "source.c", "-o", "object.o", "-v"],
            cwd=tmp_path,
            environment={"PATH": os.environ["PATH"], "CPATH": str(tmp_path / "include")},
        )
        results.append((result.returncode, result.stderr_tail))
        objects.append((tmp_path / "object.o").read_bytes() if result.ok else b"")
    assert results[0] == results[1] == results[2]
    assert objects[0] == objects[1] == objects[2]
    assert (results[0][0] == 0) == ("x + 1" in source)
    assert len(_waiting()) == 1


@pytest.mark.ci
def test_it_starts_a_compiler_for_less(servers: ForkServers, clang_path: str) -> None:
    costs: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(15):
        for serves in costs:
            processes.use_spawner(servers.start if serves else None)
            costs[serves].append(processes.run([clang_path, "-c", "-x", "c", "/dev/null", "-o", "/dev/null"]).cpu_s)
    assert sorted(costs[True])[7] < 0.8 * sorted(costs[False])[7]


def test_the_environment_is_what_was_given(servers: ForkServers) -> None:
    variables = {"ONE": "1", "NEW_LINE": "a\nb", "EMPTY": ""}
    for _ in range(2):
        result = processes.run(["env", "-0"], environment=variables)
        assert sorted(result.stdout.split(b"\0")) == [b"", b"EMPTY=", b"NEW_LINE=a\nb", b"ONE=1"]
    assert len(_waiting()) == 1
    assert b"LD_PRELOAD" not in processes.run(["env"]).stdout
    assert b"MLGO_FORK_SERVER" not in processes.run(["env"]).stdout


@pytest.mark.parametrize("name", ["LD_PRELOAD", "LD_BIND_NOW", "MALLOC_ARENA_MAX"])
def test_what_the_loader_heeds_it_is_started_for(servers: ForkServers, name: str) -> None:
    result = processes.run(["env"], environment={name: ""})
    assert result.stdout == f"{name}=\n".encode()
    assert _waiting() == []


def test_no_descriptor_is_left_open(servers: ForkServers) -> None:
    for _ in range(2):
        result = processes.run(["ls", "/proc/self/fd"])
        # The last is that of the folder.
        assert result.stdout.split() == [b"0", b"1", b"2", b"3"]


def test_a_script_is_started_in_the_usual_way(servers: ForkServers, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text('#!/bin/sh\necho "$0 $#"\n')
    script.chmod(0o755)
    for _ in range(2):
        assert processes.run([str(script), "a"]).stdout == f"{script} 1\n".encode()
    assert _waiting() == []


def test_a_program_that_takes_no_notice_is_started_in_the_usual_way(servers: ForkServers, tmp_path: Path) -> None:
    source = tmp_path / "program.c"
    source.write_text("#include <stdio.h>\nint main(int argc, char **argv) { return puts(argv[argc - 1]) < 0; }\n")
    subprocess.run(["gcc", "-static", str(source), "-o", str(tmp_path / "program")], check=True)
    for _ in range(2):
        assert processes.run([str(tmp_path / "program"), "a"]).stdout == b"a\n"
    assert _waiting() == []


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_server_that_has_died_or_was_stopped_is_replaced(library: Path, signal_number: int) -> None:
    servers = ForkServers(library, reply_timeout_s=0.5)
    processes.use_spawner(servers.start)
    try:
        assert processes.run(["echo", "a"]).stdout == b"a\n"
        (server,) = _waiting()
        server.send_signal(signal_number)
        for _ in range(2):
            assert processes.run(["echo", "b"]).stdout == b"b\n"
        (other,) = _waiting()
        assert other.pid != server.pid
    finally:
        processes.use_spawner(None)
        servers.close()
    assert _waiting() == []


def test_what_cannot_be_is_told_as_ever(servers: ForkServers, tmp_path: Path) -> None:
    assert processes.run(["echo", "a"]).ok
    with pytest.raises(Exception, match="no such program"):
        processes.run(["echo", "a"], cwd=tmp_path / "missing")
    with pytest.raises(ValueError, match="null byte"):
        processes.run(["echo", "a\0b"])
    assert processes.run(["echo", "b"]).stdout == b"b\n"
    assert len(_waiting()) == 1


def test_closed_it_leaves_no_process(library: Path) -> None:
    servers = ForkServers(library)
    processes.use_spawner(servers.start)
    assert processes.run(["echo", "a"]).ok
    processes.use_spawner(None)
    (server,) = _waiting()
    servers.close()
    assert not server.is_running()


def test_when_the_host_is_killed_its_processes_die(library: Path) -> None:
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from compiler_opt.llvm import processes\n"
        "from compiler_opt.llvm.fork_server import ForkServers\n"
        "processes.use_spawner(ForkServers(Path(sys.argv[1])).start)\n"
        "print('started', flush=True)\n"
        "processes.run(['sleep', '60'])\n"
    )
    host = subprocess.Popen([sys.executable, "-c", script, str(library)], stdout=subprocess.PIPE)
    assert host.stdout is not None
    assert host.stdout.readline() == b"started\n"
    children: list[psutil.Process] = []
    # One that waits, and one that it was forked for.
    while len(children) < 2:
        children = psutil.Process(host.pid).children(recursive=True)
    host.send_signal(signal.SIGKILL)
    host.wait()
    host.stdout.close()
    _, alive = psutil.wait_procs(children, timeout=30)
    assert not alive
