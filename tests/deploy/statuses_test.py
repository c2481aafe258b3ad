"""The exit status tells whether all was done that was asked for, in odd surroundings, too."""

import os
import select
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.deploy.conftest import Compiler, run
from tests.deploy.sources import LEAN
from tests.machine import with_mounts


@pytest.fixture
def place(tmp_path: Path) -> Path:
    place = tmp_path / "place"
    place.mkdir()
    (place / "lean.c").write_text(LEAN)
    (place / "bad.c").write_text("int f(void) { return x; }\n")
    (place / "warns.c").write_text(f"{LEAN}\nstatic int unused;\n")
    # More than a pipe holds.
    (place / "long.c").write_text(LEAN + "".join(f'const char *text{i} = "{"x" * 70}";\n' for i in range(2000)))
    return place


def test_a_failure_is_one_where_children_are_not_waited_for(compiler: Compiler, place: Path) -> None:
    """As Python's, some programs start others with SIGCHLD ignored."""
    for source, status in {"bad.c": 1, "lean.c": 0}.items():
        command = [compiler.driver, "-Oz", "-c", source]
        with subprocess.Popen(
            command,
            cwd=place,
            stderr=subprocess.DEVNULL,
            preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
        ) as process:
            assert process.wait(timeout=60) == status


@pytest.mark.parametrize("arguments", ["-Oz -S -o - lean.c", "-Oz -Wall -c warns.c", "-Oz -Wall -S warns.c -o made.s"])
def test_output_that_finds_no_room(compiler: Compiler, place: Path, arguments: str) -> None:
    for program in (compiler.clang, compiler.driver):
        with Path("/dev/full").open("wb") as full:
            command = [program, *arguments.split()]
            result = subprocess.run(command, cwd=place, stdout=full, stderr=full, check=False, timeout=60)
        assert result.returncode == 1


@pytest.mark.parametrize("ignored", [True, False])
def test_output_that_nobody_reads(compiler: Compiler, place: Path, ignored: bool) -> None:
    statuses = set()
    for program in (compiler.clang, compiler.driver):
        reader, writer = os.pipe()
        os.close(reader)
        command = [program, "-Oz", "-S", "-o", "-", "lean.c"]
        with subprocess.Popen(
            command, cwd=place, stdout=writer, stderr=subprocess.DEVNULL, restore_signals=not ignored
        ) as process:
            os.close(writer)
            statuses.add(process.wait(timeout=60))
    assert statuses == ({1} if ignored else {-signal.SIGPIPE})


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_slow_reader_gets_everything(compiler: Compiler, place: Path, stream: str) -> None:
    """Of a pipe that does not block its writers, as event loops make them."""
    arguments = "-Oz -S -o - long.c" if stream == "stdout" else "-Oz -Wall -fsyntax-only -c warns.c"
    if stream == "stderr":
        (place / "warns.c").write_text("".join(f"static int unused{i};\n" for i in range(2000)))
        arguments = "-Oz -Wall -c warns.c"
    whole = getattr(run([compiler.clang, *arguments.split()], place), stream)
    assert len(whole) > 100_000
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    command = [compiler.driver, *arguments.split()]
    out, err = (writer if stream == each else subprocess.DEVNULL for each in ("stdout", "stderr"))
    with (
        subprocess.Popen(command, cwd=place, stdout=out, stderr=err) as process,
        os.fdopen(reader, "rb") as pipe,
    ):
        os.close(writer)
        time.sleep(0.3)
        read = pipe.read()
        assert process.wait(timeout=60) == 0
    # The policy's assembly is another one, but as long as its strings.
    assert len(read) > 100_000 if stream == "stdout" else read.decode() == whole
    assert stream == "stderr" or b"text1999" in read


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_closed_streams(compiler: Compiler, place: Path, closed: tuple[int, ...]) -> None:
    """No file of ours takes their place."""

    def close_them() -> None:
        for each in closed:
            os.close(each)

    for source in ("lean.c", "warns.c"):
        arguments = ["-Oz", "-Wall", "-c", source, "-o"]
        assert compiler.with_policy([*arguments, "expected.o"], place).returncode == 0
        command = [compiler.driver, *arguments, "made.o"]
        with subprocess.Popen(command, cwd=place, preexec_fn=close_them) as process:
            assert process.wait(timeout=60) == 0
        assert (place / "made.o").read_bytes() == (place / "expected.o").read_bytes()


@pytest.mark.parametrize("files", [5, 6, 8, 12])
def test_with_few_descriptors_it_is_plain_clang(compiler: Compiler, place: Path, files: int) -> None:
    limited = ["bash", "-c", f'ulimit -n {files}; exec "$@"', "bash"]
    assert run([*limited, compiler.clang, "-Oz", "-c", "lean.c", "-o", "expected.o"], place).returncode == 0
    result = run([*limited, compiler.driver, "-Oz", "-c", "lean.c", "-o", "made.o"], place)
    assert result.returncode == 0
    assert (
        result.stderr
        == f"warning: mlgo: too few files can be opened (ulimit -n); compiling with plain clang-{compiler.major}\n"
    )
    assert (place / "made.o").read_bytes() == (place / "expected.o").read_bytes()
    # Nor is clang asked anything.
    asked = run([*limited, compiler.driver, "-c", "missing.c"], place, {"CCC_OVERRIDE_OPTIONS": "#"})
    assert asked.returncode == 1 and "no such file" in asked.stderr
    strict = run([*limited, compiler.driver, "-Oz", "-c", "lean.c"], place, {"MLGO_STRICT": "1"})
    assert (strict.returncode, strict.stderr) == (1, "error: mlgo: too few files can be opened (ulimit -n)\n")


def test_without_proc_it_is_plain_clang(compiler: Compiler, place: Path) -> None:
    assert compiler.plain(["-Oz", "-c", "lean.c", "-o", "expected.o"], place).returncode == 0
    command = with_mounts("mount -t tmpfs none /proc", compiler.driver, "-Oz", "-c", "lean.c", "-o", "made.o")
    result = run(command, place)
    warning = f"warning: mlgo: /proc is not mounted; compiling with plain clang-{compiler.major}\n"
    assert (result.returncode, result.stderr) == (0, warning)
    assert (place / "made.o").read_bytes() == (place / "expected.o").read_bytes()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_can_be_interrupted_while_nobody_reads(compiler: Compiler, place: Path, number: int) -> None:
    """A pager, say, that shows the first page of what the compiler has printed."""
    reader, writer = os.pipe()
    command = [compiler.driver, "-Oz", "-S", "-o", "-", "long.c"]
    with subprocess.Popen(command, cwd=place, stdout=writer) as process, os.fdopen(reader, "rb"):
        os.close(writer)
        select.select([reader], [], [], 60)  # The compiler has ended; what it printed is more than a pipe holds.
        time.sleep(0.2)
        process.send_signal(number)
        assert process.wait(timeout=30) == -number


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_can_be_interrupted_before_nobody_reads(compiler: Compiler, place: Path, number: int) -> None:
    """What the compiler has printed until then is more than a pipe holds."""
    warnings = "".join(f"static int unused{i};\n#warning {'x' * 90}\n" for i in range(2000))
    (place / "waits.c").write_text(f'{warnings}#include "fifo.h"\n')
    os.mkfifo(place / "fifo.h")
    reader, writer = os.pipe()
    command = [compiler.driver, "-Oz", "-c", "waits.c"]
    with subprocess.Popen(command, cwd=place, stderr=writer) as process, os.fdopen(reader, "rb"):
        os.close(writer)
        # The compiler has come to the end once it opens the pipe.
        with (place / "fifo.h").open("wb"):
            process.send_signal(number)
            assert process.wait(timeout=30) == -number
