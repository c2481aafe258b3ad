"""Whatever is wrong with the policy: plain clang and one warning, or, strictly, one error."""

import concurrent.futures
import dataclasses
import os
import resource
import select
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from compiler_opt.deploy.deployment import Deployment, deploy
from compiler_opt.deploy.policies import PolicyRequest
from compiler_opt.llvm.elf import ElfFile
from tests.deploy.conftest import Compiler, run
from tests.deploy.sources import LEAN

STRICT = {"MLGO_STRICT": "1"}
COMPILE = ["-Oz", "-Werror", "-c", "lean.c"]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    place = tmp_path / "place"
    place.mkdir()
    (place / "lean.c").write_text(LEAN)
    return place


@pytest.fixture
def plain_object(compiler: Compiler, place: Path) -> bytes:
    return compile_elsewhere(compiler.plain, place)


@pytest.fixture
def policy_object(compiler: Compiler, place: Path) -> bytes:
    return compile_elsewhere(compiler.with_policy, place)


def compile_elsewhere(how: Callable[[Sequence[str], Path], "subprocess.CompletedProcess[str]"], place: Path) -> bytes:
    folder = place.parent / "elsewhere"
    shutil.copytree(place, folder)
    assert how(COMPILE, folder).returncode == 0
    content = (folder / "lean.o").read_bytes()
    shutil.rmtree(folder)
    return content


def of_another_version(compiler: Compiler, deployment: Deployment) -> None:
    """As after an exchange of files: what tells it from the right one at once is only its size."""
    [other] = set(deployment.clangs) - {compiler.major}
    shutil.copy(deployment.plugin(other), compiler.plugin)


def of_another_version_and_the_same_size(compiler: Compiler, deployment: Deployment) -> None:
    size = compiler.plugin.stat().st_size
    of_another_version(compiler, deployment)
    # What is at the end, the loader does not read.
    os.truncate(compiler.plugin, size)
    compiler.trust_its_plugin(deployment)


def garbage(compiler: Compiler, deployment: Deployment) -> None:
    compiler.plugin.write_bytes(bytes(compiler.plugin.stat().st_size))
    compiler.trust_its_plugin(deployment)


def overwritten_code(compiler: Compiler, deployment: Deployment) -> None:
    """The compiler crashes over it."""
    content = bytearray(compiler.plugin.read_bytes())
    start, size = code_of(compiler.plugin)
    content[start : start + size] = b"\x0f\x0b" * (size // 2)  # ud2
    compiler.plugin.write_bytes(content)
    compiler.trust_its_plugin(deployment)


def code_of(library: Path) -> tuple[int, int]:
    """Offset and even size of its text section."""
    elf = ElfFile.read(library)
    [index] = elf.sections_named(".text")
    return int(elf.sections[index]["offset"]), int(elf.sections[index]["size"]) & ~1


def missing(compiler: Compiler, deployment: Deployment) -> None:
    compiler.plugin.unlink()


def truncated(compiler: Compiler, deployment: Deployment) -> None:
    compiler.plugin.write_bytes(compiler.plugin.read_bytes()[:5000])


def empty(compiler: Compiler, deployment: Deployment) -> None:
    compiler.plugin.write_bytes(b"")


def folder(compiler: Compiler, deployment: Deployment) -> None:
    compiler.plugin.unlink()
    compiler.plugin.mkdir()


def of_another_policy_and_the_same_size(compiler: Compiler, deployment: Deployment) -> None:
    """It works."""
    content = bytearray(compiler.plugin.read_bytes())
    content[content.rindex(b"mlgo-net") + 2000] ^= 1
    compiler.plugin.write_bytes(content)


FAULTS = (
    of_another_version,
    of_another_version_and_the_same_size,
    of_another_policy_and_the_same_size,
    missing,
    truncated,
    empty,
    folder,
    garbage,
    overwritten_code,
)


@pytest.mark.parametrize("damage", FAULTS, ids=lambda damage: damage.__name__)
def test_one_warning_or_strictly_one_error(
    damageable: Compiler,
    deployment: Deployment,
    place: Path,
    plain_object: bytes,
    damage: Callable[[Compiler, Deployment], None],
) -> None:
    damage(damageable, deployment)
    result = damageable.run(COMPILE, place)
    assert (result.returncode, result.stdout) == (0, "")
    assert result.stderr.startswith("warning: mlgo: ") and len(result.stderr.splitlines()) == 1, result.stderr
    assert (place / "lean.o").read_bytes() == plain_object
    (place / "lean.o").unlink()
    result = damageable.run(COMPILE, place, STRICT)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("error: mlgo: ") and len(result.stderr.splitlines()) == 1, result.stderr
    assert [path.name for path in place.iterdir()] == ["lean.c"]


def test_a_plugin_is_read_if_its_date_is_not_that_of_its_content(
    damageable: Compiler, place: Path, plain_object: bytes, policy_object: bytes
) -> None:
    dated = damageable.plugin.stat()
    os.utime(damageable.plugin)
    assert damageable.run(COMPILE, place, STRICT).returncode == 0
    assert (place / "lean.o").read_bytes() == policy_object
    content = bytearray(damageable.plugin.read_bytes())
    content[-1] ^= 1  # which the loader does not read
    damageable.plugin.write_bytes(content)
    result = damageable.run(COMPILE, place)
    assert result.stderr.startswith("warning: mlgo: ") and "damaged or replaced" in result.stderr
    assert (place / "lean.o").read_bytes() == plain_object
    os.utime(damageable.plugin, ns=(dated.st_atime_ns, dated.st_mtime_ns))
    assert damageable.run(COMPILE, place, STRICT).returncode == 0
    assert (place / "lean.o").read_bytes() == policy_object


def test_the_users_own_errors_are_told_once_whatever_is_damaged(
    damageable: Compiler, deployment: Deployment, place: Path
) -> None:
    garbage(damageable, deployment)
    (place / "lean.c").write_text("int f(void) { return x; }\n")
    driver, plain = damageable.run(COMPILE, place), damageable.plain(COMPILE, place)
    assert (driver.returncode, driver.stderr) == (plain.returncode, plain.stderr)


@pytest.mark.ci
def test_the_compiler_has_moved(policy_dir: Path, clang_path: str, place: Path) -> None:
    """It is then looked for on PATH, by its version; the program itself, under that name, is not it."""
    tools, gone = place / "tools", place / "gone"
    tools.mkdir()
    gone.mkdir()
    name = Path(clang_path).name
    (gone / name).symlink_to(clang_path)
    deployment = deploy([PolicyRequest(policy_dir)], place / "prefix", [gone / name], strict=True)
    (gone / name).unlink()
    (tools / name).symlink_to(deployment.driver())
    result = run([str(deployment.driver()), *COMPILE], place, {"PATH": str(tools)})
    assert result.returncode == 127
    assert result.stderr == (
        f"error: mlgo: {gone / name} is gone, and there is no {name} on PATH; install it, set MLGO_CLANG, or deploy "
        "the policy again for another\n"
    )
    result = run([str(deployment.driver()), *COMPILE], place, {"PATH": f"{tools}:{Path(clang_path).parent}"})
    assert (result.returncode, result.stderr) == (0, "")


def test_no_temporary_folder_is_needed(compiler: Compiler, place: Path, policy_object: bytes) -> None:
    for strictness in ({}, STRICT):
        result = compiler.run(COMPILE, place, {"TMPDIR": "/proc", **strictness})
        assert (result.returncode, result.stderr) == (0, "")
        assert (place / "lean.o").read_bytes() == policy_object


@pytest.mark.ci
def test_many_at_a_time(compiler: Compiler, place: Path, policy_object: bytes) -> None:
    def compile_one(number: int) -> "subprocess.CompletedProcess[str]":
        return compiler.run([*COMPILE, "-o", f"{number}.o"], place, STRICT)

    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        results = list(pool.map(compile_one, range(64)))
    assert {(result.returncode, result.stderr) for result in results} == {(0, "")}
    assert {(place / f"{number}.o").read_bytes() for number in range(64)} == {policy_object}


@pytest.mark.parametrize("environment", [{}, STRICT, {"MLGO_NEVER_WORSE": "1"}], ids=["", "strict", "never worse"])
def test_a_full_disk_is_the_compilers_error(compiler: Compiler, place: Path, environment: Mapping[str, str]) -> None:
    """Plain clang cannot write it either: its message, its status, once; and nothing stays."""
    driver = compiler.run([*COMPILE, "-o", "/dev/full"], place, environment)
    plain = compiler.plain([*COMPILE, "-o", "/dev/full"], place)
    assert plain.returncode != 0
    assert driver.returncode == plain.returncode
    assert driver.stderr.count("No space left on device") == 1
    assert [path.name for path in place.iterdir()] == ["lean.c"]


def test_a_limit_on_files_is_the_compilers_error(compiler: Compiler, place: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))

    for environment in ({}, STRICT, {"MLGO_NEVER_WORSE": "1"}):
        results = [
            subprocess.run(
                [program, *COMPILE],
                cwd=place,
                env={**os.environ, **environment},
                preexec_fn=limit,
                capture_output=True,
                check=False,
                timeout=60,
            )
            for program in (compiler.driver, compiler.clang)
        ]
        assert results[0].returncode == results[1].returncode != 0
        assert [path.name for path in place.iterdir()] == ["lean.c"]


KILLED = 'case "$*" in *-fpass-plugin=*) $CLANG "$@"; kill -KILL $$;; esac\nexec $CLANG "$@"\n'
"""Clang is killed once it has read everything."""


def test_a_killed_compiler(damageable: Compiler, place: Path, plain_object: bytes) -> None:
    environment = damageable.stand_in(place.parent / "tools", KILLED)
    result = damageable.run(COMPILE, place, environment)
    reason = "since it failed with the policy: the compiler died: Killed\n"
    assert result.stderr == f"warning: mlgo: lean.c: compiled with plain clang-{damageable.major}, {reason}"
    assert (result.returncode, (place / "lean.o").read_bytes()) == (0, plain_object)
    result = damageable.run(COMPILE, place, {**environment, **STRICT})
    assert result.stderr == "error: mlgo: lean.c: failed with the policy: the compiler died: Killed\n"
    assert result.returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    ("directive", "message"),
    [
        ('#include "pipe.h"', "died: Killed; not compiled again, since ./pipe.h can be read only once\n"),
        ('#include "/dev/stdin"', "died: Killed; not compiled again, since /dev/stdin can be read only once\n"),
        ('__asm__(".incbin \\"/dev/stdin\\"");', "/dev/stdin"),
    ],
)
def test_a_killed_compiler_has_read_a_pipe(damageable: Compiler, place: Path, directive: str, message: str) -> None:
    """It fails, rather than that plain clang finds the pipe empty."""
    (place / "lean.c").write_text(f"{directive}\n{LEAN}")
    os.mkfifo(place / "pipe.h")
    environment = {**os.environ, **damageable.stand_in(place.parent / "tools", KILLED)}
    with subprocess.Popen(
        [damageable.driver, *COMPILE], cwd=place, env=environment, stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        if "pipe.h" in directive:
            (place / "pipe.h").write_text("int from_pipe;\n")
        _, error = process.communicate(b"int from_stdin;\n", timeout=60)
    assert message in error.decode()
    assert process.returncode == (1 if "incbin" in directive else -signal.SIGKILL)


@pytest.fixture(autouse=True, scope="module")
def hangups_end_processes() -> Iterator[None]:
    """Even if the tests run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@dataclasses.dataclass
class Waiting:
    """A compilation that waits in the middle of its source, which includes a pipe."""

    process: "subprocess.Popen[bytes]"
    pipe: Path

    def reach(self) -> int:
        """The pipe's end for writing, once the compiler reads from the other."""
        return os.open(self.pipe, os.O_WRONLY)


def start_waiting(compiler: Compiler, place: Path, environment: Mapping[str, str], condition: str = "#if 1") -> Waiting:
    pipe = place / "pipe.h"
    os.mkfifo(pipe)
    (place / "waits.c").write_text(f'{LEAN}\n{condition}\n#include "{pipe.name}"\n#endif\n')
    process = subprocess.Popen(
        [compiler.driver, "-Oz", "-c", "waits.c"],
        cwd=place,
        env={**os.environ, **environment},
        start_new_session=True,
        stderr=subprocess.PIPE,
    )
    return Waiting(process, pipe)


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("to_group", [True, False], ids=["to all", "to the driver"])
@pytest.mark.parametrize("compilation", [1, 2], ids=["", "the second of two"])
def test_interrupted_it_leaves_nothing(
    damageable: Compiler, place: Path, number: int, to_group: bool, compilation: int
) -> None:
    environment: Mapping[str, str] = {}
    if compilation == 2:
        # Only the compiler without the policy reads from the pipe.
        script = 'case "$*" in *-fpass-plugin=*) ;; *) set -- "$@" -DWAIT;; esac\nexec $CLANG "$@"\n'
        environment = {"MLGO_NEVER_WORSE": "1", **damageable.stand_in(place.parent / "tools", script)}
    waiting = start_waiting(damageable, place, environment, "#ifdef WAIT" if compilation == 2 else "#if 1")
    with waiting.process as process:
        try:
            end = waiting.reach()
            assert any(place.glob(".mlgo-*")) == (compilation == 2)
            (os.killpg if to_group else os.kill)(process.pid, number)
            assert process.wait(timeout=60) == -number
            os.close(end)
        finally:
            process.kill()
        assert process.stderr is not None
        assert b"mlgo" not in process.stderr.read()
    assert sorted(path.name for path in place.iterdir()) == ["lean.c", "pipe.h", "waits.c"]


def test_killed_outright_it_takes_the_compiler_with_it(compiler: Compiler, place: Path) -> None:
    waiting = start_waiting(compiler, place, {})
    with waiting.process as process:
        end = waiting.reach()
        process.kill()
        poll = select.poll()
        poll.register(end, 0)
        # The pipe breaks when the compiler is gone.
        assert poll.poll(60_000)
        os.close(end)
    assert sorted(path.name for path in place.iterdir()) == ["lean.c", "pipe.h", "waits.c"]


def test_what_was_ignored_stays_ignored(compiler: Compiler, place: Path) -> None:
    """As with nohup."""
    hangup = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        waiting = start_waiting(compiler, place, {})
    finally:
        signal.signal(signal.SIGHUP, hangup)
    with waiting.process as process:
        end = waiting.reach()
        process.send_signal(signal.SIGHUP)
        os.close(end)
        assert process.wait(timeout=60) == 0
    assert (place / "waits.o").exists()
