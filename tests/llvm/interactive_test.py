"""The channel against compilers that die, hang and lie at every point, and against real ones."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from compiler_opt.errors import ProtocolError, ToolchainError
from compiler_opt.llvm import interactive
from compiler_opt.llvm.advisors import INLINING
from compiler_opt.llvm.training_log import Header

_FAKE = Path(__file__).with_name("fake_compiler.py")


def _connect(base: Path) -> interactive.Connection:
    return interactive.Connection([f"-channel={base}"])


def _converse(behaviour: str, scratch: Path, timeout_s: float = 20.0) -> interactive.InteractiveResult:
    answers = iter(range(10, 100))
    return interactive.compile_interactively(
        [sys.executable, "-S", str(_FAKE), behaviour],
        connect=_connect,
        start_deciding=lambda header: lambda observation: next(answers),
        scratch=scratch,
        timeout_s=timeout_s,
    )


def _is_fake_compiler(process: psutil.Process) -> bool:
    try:
        return "fake_compiler" in " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return False  # has ended, perhaps as a zombie


@pytest.fixture(autouse=True)
def _nothing_is_left(tmp_path: Path) -> Iterator[None]:
    yield
    assert list(tmp_path.iterdir()) == []
    assert not any(_is_fake_compiler(child) for child in psutil.Process().children())


@pytest.mark.parametrize("behaviour", ["well", "in_pieces"])
def test_every_decision_is_asked_and_answered(behaviour: str, tmp_path: Path) -> None:
    result = _converse(behaviour, tmp_path)
    assert result.process.ok
    assert result.process.stderr_tail.split() == ["10", "11", "12"]
    assert result.advice == [10, 11, 12]
    assert result.contexts == [("f", 0)]
    assert result.header is not None
    arrays = result.header.decode(result.observations)
    assert arrays["a"].shape == (3, 1)
    assert arrays["a"][0, 0] == int.from_bytes(bytes(range(8)), "little")
    assert arrays["b"].shape == (3, 2)
    assert arrays["b"].dtype == np.float32


def test_who_converses_shares_a_cpu_only_meanwhile(tmp_path: Path) -> None:
    before, meanwhile = os.sched_getaffinity(0), []

    def decide(observation: bytes) -> int:
        [compiler] = [child for child in psutil.Process().children() if _is_fake_compiler(child)]
        meanwhile.append((os.sched_getaffinity(0), os.sched_getaffinity(compiler.pid)))
        return 10

    interactive.compile_interactively(
        [sys.executable, "-S", str(_FAKE), "well"],
        connect=_connect,
        start_deciding=lambda header: decide,
        scratch=tmp_path,
    )
    assert len(meanwhile) == 3
    assert all(len(ours) == 1 and ours == theirs for ours, theirs in meanwhile)
    assert os.sched_getaffinity(0) == before


def test_who_complains_without_end_is_ended(tmp_path: Path) -> None:
    process = _converse("complain", tmp_path).process
    assert (process.overflowed, process.timed_out) == (True, False)


@pytest.mark.parametrize("behaviour", ["no_decision", "header_only"])
def test_nothing_to_decide(behaviour: str, tmp_path: Path) -> None:
    result = _converse(behaviour, tmp_path)
    assert result.process.ok
    assert result.advice == []


@pytest.mark.parametrize(
    ("behaviour", "returncode"),
    [
        ("die_before_opening", 1),
        ("die_while_opening", -signal.SIGSEGV),
        ("die_after_asking", -signal.SIGKILL),
        ("fail_at_the_end", 1),
    ],
)
def test_a_death_is_told_by_its_status(behaviour: str, returncode: int, tmp_path: Path) -> None:
    start_s = time.monotonic()
    result = _converse(behaviour, tmp_path)
    assert result.process.returncode == returncode
    assert not result.process.ok
    assert time.monotonic() - start_s < 10


@pytest.mark.parametrize("behaviour", ["hang_before_opening", "hang_after_asking", "hang_after_closing"])
def test_a_hang_ends_at_the_deadline(behaviour: str, tmp_path: Path) -> None:
    start_s = time.monotonic()
    result = _converse(behaviour, tmp_path, timeout_s=0.5)
    assert result.process.timed_out
    assert "ran out of time" in result.process.describe()
    assert time.monotonic() - start_s < 10


@pytest.mark.parametrize(
    ("behaviour", "message"),
    [
        ("malformed_header", "features"),
        ("not_json", "JSON"),
        ("unknown_line", "surprise"),
        ("truncated", "cut off"),
        ("no_newline", "newline after observation 0"),
        ("endless_line", "a line of over"),
    ],
)
def test_a_malformed_message_is_named(behaviour: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ProtocolError, match=message):
        _converse(behaviour, tmp_path)


def test_an_error_of_the_policy_ends_the_compiler(tmp_path: Path) -> None:
    def start(header: Header) -> interactive.Decide:
        raise RuntimeError("a bug in the policy")

    with pytest.raises(RuntimeError, match="a bug"):
        interactive.compile_interactively(
            [sys.executable, "-S", str(_FAKE), "well"], connect=_connect, start_deciding=start, scratch=tmp_path
        )


def test_a_missing_compiler_is_named(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="/nowhere/clang: no such program"):
        interactive.compile_interactively(
            ["/nowhere/clang"], connect=_connect, start_deciding=lambda header: lambda o: 0, scratch=tmp_path
        )


def _host_program(scratch: Path) -> str:
    return f"""
from pathlib import Path
from compiler_opt.llvm import interactive
interactive.compile_interactively(
    [{sys.executable!r}, "-S", {str(_FAKE)!r}, "hang_after_asking"],
    connect=lambda base: interactive.Connection([f"-channel={{base}}"]),
    start_deciding=lambda header: lambda observation: print("deciding", flush=True) or 1,
    scratch=Path({str(scratch)!r}),
)
"""


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_compiler_outlives_its_host(signal_number: int, tmp_path: Path) -> None:
    host = subprocess.Popen(
        [sys.executable, "-c", _host_program(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert host.stdout is not None
    with host:
        assert host.stdout.readline() == b"deciding\n"
        (compiler,) = psutil.Process(host.pid).children()
        host.send_signal(signal_number)
        host.wait(10)
    with contextlib.suppress(psutil.NoSuchProcess):
        compiler.wait(10)
    assert not compiler.is_running()
    for fifo in tmp_path.iterdir():
        # Only an orderly end can tidy up; after SIGKILL the owner's scratch directory is swept by the next run.
        assert signal_number != signal.SIGINT
        fifo.unlink()


_PROGRAM = """
static int twice(int x) { return 2 * x; }
static int loop(int n) { int s = 0; for (int i = 0; i < n; i++) s += twice(i) ^ s; return s; }
int f(int n) { return loop(n) + loop(n + 1) + twice(n); }
"""


@pytest.mark.both_compilers
def test_a_real_compiler_answered_never_and_always(clang_path: str, tmp_path: Path) -> None:
    source, output = tmp_path / "a.c", tmp_path / "a.o"
    source.write_text(_PROGRAM)
    calls = {}
    for advice in (0, 1):
        result = interactive.compile_interactively(
            [clang_path, "-Oz", "-c", str(source), "-o", str(output)],
            connect=interactive.llvm_channel(INLINING),
            start_deciding=lambda header, advice=advice: lambda observation: advice,  # type: ignore[misc]
            scratch=tmp_path,
        )
        assert result.process.ok
        assert result.header is not None
        assert len(result.advice) > 0
        assert len(result.observations) == len(result.advice) * result.header.observation_bytes
        calls[advice] = output.read_bytes()
    assert calls[0] != calls[1]
    source.unlink()
    output.unlink()
