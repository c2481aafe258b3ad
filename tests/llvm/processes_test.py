"""Processes end when they should, and say why."""

import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from compiler_opt.errors import ToolchainError
from compiler_opt.llvm import processes
from compiler_opt.llvm.fork_server import ForkServers, find_library


@pytest.fixture(scope="module", params=["start", "fork"], autouse=True)
def _way_to_start(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Either way has to do all that is tested here."""
    servers = None
    if request.param == "fork":
        clang = shutil.which("clang-22")
        assert clang is not None
        library = find_library(Path(clang), tmp_path_factory.mktemp("cache"))
        assert library is not None
        servers = ForkServers(library)
    processes.use_spawner(None if servers is None else servers.start)
    yield
    processes.use_spawner(None)
    if servers is not None:
        servers.close()


def test_output_status_and_cost() -> None:
    result = processes.run(["sh", "-c", "echo out; echo 'x: error: bad' >&2; exit 3"])
    assert (result.stdout, result.returncode, result.ok, result.timed_out) == (b"out\n", 3, False, False)
    assert result.describe().startswith("exit status 3: x: error: bad (command: sh -c ")
    assert 0 <= result.cpu_s < 1


def test_a_signal_is_named() -> None:
    assert "died of SIGSEGV" in processes.run(["sh", "-c", "kill -SEGV $$"]).describe()


def test_time_is_limited_for_the_whole_group() -> None:
    start_s = time.monotonic()
    result = processes.run(["sh", "-c", "sleep 60 & sleep 60"], timeout_s=0.1)
    assert result.timed_out
    assert time.monotonic() - start_s < 10
    assert [child for child in psutil.Process().children(recursive=True) if child.name() == "sleep"] == []


def test_memory_is_limited() -> None:
    result = processes.run([sys.executable, "-S", "-c", "x = bytearray(1 << 30)"], memory_bytes=256 << 20)
    assert not result.ok
    assert "MemoryError" in result.stderr_tail


def test_output_is_limited() -> None:
    result = processes.run(["sh", "-c", "while :; do echo y; done"], max_stdout_bytes=1000, timeout_s=30)
    assert result.returncode == -signal.SIGKILL


@pytest.mark.parametrize("stream", ["1", "2"])
def test_what_has_no_end_is_cut_short(stream: str) -> None:
    result = processes.run(["dd", "if=/dev/zero", f"of=/dev/fd/{stream}", "bs=1M", "status=none"], timeout_s=30)
    assert (result.overflowed, result.timed_out, result.ok) == (True, False, False)
    assert result.describe().startswith("exceeded its output limit")
    assert len(result.stdout) < processes.MAX_STDOUT_BYTES + (2 << 20)


def test_files_are_limited(tmp_path: Path) -> None:
    command = ["dd", "if=/dev/zero", f"of={tmp_path / 'file'}", "bs=1k", "count=2000", "status=none"]
    result = processes.run(command, file_bytes=1 << 20)
    assert "died of SIGXFSZ" in result.describe()
    assert not result.lacked_resources
    assert (tmp_path / "file").stat().st_size == 1 << 20


def test_what_the_machine_lacks_is_not_the_fault_of_what_ran() -> None:
    assert processes.run(["sh", "-c", "kill -KILL $$"]).lacked_resources
    assert processes.run(["sh", "-c", "echo x: No space left on device >&2; exit 1"]).lacked_resources
    assert not processes.run(["sh", "-c", "kill -SEGV $$"]).lacked_resources
    assert not processes.run(["sleep", "60"], timeout_s=0.1).lacked_resources


@pytest.mark.parametrize("mode", [None, 0o644])
def test_a_program_that_cannot_be_started(mode: int | None, tmp_path: Path) -> None:
    program = tmp_path / "program"
    if mode is not None:
        program.write_text("")
        program.chmod(mode)
    with pytest.raises(ToolchainError, match=str(program)):
        processes.run([str(program)])


def test_an_interrupted_caller_leaves_no_process() -> None:
    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    # With a server, that one stays.
    assert processes.run(["sleep", "0"]).ok
    children = psutil.Process().children()
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            # From the process itself, so that it has been started, however busy the machine is.
            processes.run(["sh", "-c", f"sleep 0.1; kill -ALRM {os.getpid()}; sleep 60"])
    finally:
        signal.signal(signal.SIGALRM, before)
    assert psutil.Process().children() == children


def test_descriptors_do_not_leak() -> None:
    processes.run(["true"])
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for _ in range(20):
        processes.run(["true"])
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_a_logged_process_says_all_in_its_log(tmp_path: Path) -> None:
    pieces: list[bytes] = []
    result = processes.run_logged(
        ["sh", "-c", 'echo "out $COLOUR"; echo "x: error: bad" >&2; pwd; exit 3'],
        tmp_path / "logs" / "log",
        cwd=tmp_path,
        environment={"COLOUR": "red"},
        on_output=pieces.append,
    )
    expected = f"out red\nx: error: bad\n{tmp_path}\n"
    assert (tmp_path / "logs" / "log").read_text() == b"".join(pieces).decode() == expected
    assert (result.returncode, result.timed_out, result.stderr_tail) == (3, False, expected)


def test_of_a_logged_process_nothing_stays(tmp_path: Path) -> None:
    """Neither what ignores the request to end, nor what has left the process group, as a compiler below ninja does."""
    script = "import os, time; os.setpgid(0, 0); time.sleep(60)"
    command = f"trap '' TERM; {sys.executable} -S -c '{script}' & sleep 60"
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    assert processes.run_logged(["sh", "-c", command], tmp_path / "log", timeout_s=0.5, grace_s=0.1).timed_out
    left = [p for p in psutil.process_iter(["cmdline"]) if script in (p.info["cmdline"] or [])]
    _, alive = psutil.wait_procs(left, timeout=30)  # Killed, it goes when the system gets round to it.
    assert alive == []
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before


def test_a_logged_process_may_tidy_up(tmp_path: Path) -> None:
    command = f"trap 'touch {tmp_path}/tidy; exit 1' TERM; while :; do sleep 0.1; done"
    assert processes.run_logged(["sh", "-c", command], tmp_path / "log", timeout_s=0.2).timed_out
    assert (tmp_path / "tidy").exists()
