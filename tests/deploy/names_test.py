"""Links to mlgo-clang: as for clang, their names choose target and mode, and are in messages."""

from pathlib import Path

import pytest

from tests.deploy.conftest import Compiler, run
from tests.deploy.sources import LEAN

NAMES = [
    *("clang", "clang++", "cc", "c++", "g++", "x++", "anything", "clang-tot", "clang++-tot", "clang-g++", "cc-2024"),
    *("clang-cl", "clang-cpp", "cpp", "aarch64-linux-gnu-clang", "aarch64-linux-gnu-clang++-VERSION"),
    *("riscv64-linux-gnu-gcc", "powerpc64le-linux-gnu-clang-cpp", "no-such-target-clang", "clang-VERSION"),
]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "lean.c").write_text(LEAN)
    return tmp_path


def links(compiler: Compiler, place: Path, name: str) -> list[Path]:
    """To clang and to mlgo-clang, of the same name."""
    made = []
    for folder, program in (("plain", Path(compiler.clang).resolve()), ("ours", Path(compiler.driver))):
        (place / folder).mkdir(exist_ok=True)
        made.append(place / folder / name.replace("VERSION", str(compiler.major)))
        made[-1].unlink(missing_ok=True)
        made[-1].symlink_to(program)
    return made


@pytest.mark.parametrize("name", NAMES)
def test_target_and_mode(compiler: Compiler, place: Path, name: str) -> None:
    for arguments in (
        ["-Oz", "-ffreestanding", "-c", "lean.c", "-o", "made.o"],
        ["-Oz", "-fno-such-option", "-c", "lean.c"],
        ["-print-target-triple"],
        ["-O1", "-###", "-c", "lean.c"],
        [],
    ):
        results = []
        for program in links(compiler, place, name):
            (place / "made.o").unlink(missing_ok=True)
            # The policy would decide at -Oz.
            result = run([str(program), *arguments], place, {"MLGO_DISABLE": "1"})
            made = (place / "made.o").read_bytes() if (place / "made.o").exists() else b""
            if name == "clang-cl":  # These four bytes are the time.
                made = made[:4] + made[8:]
            said = result.stderr.replace(str(program.parent), "FOLDER")
            results.append((result.returncode, result.stdout, said, made))
        assert results[0] == results[1]


@pytest.mark.parametrize("name", ["aarch64-linux-gnu-clang", "aarch64-linux-gnu-mlgo-clang-VERSION"])
def test_the_policy_decides_for_the_target(compiler: Compiler, place: Path, name: str) -> None:
    [_, program] = links(compiler, place, name)
    arguments = ["-Oz", "-ffreestanding", "-c", "lean.c", "-o"]
    assert run([str(program), *arguments, "made.o"], place).returncode == 0
    assert compiler.with_policy(["--target=aarch64-linux-gnu", *arguments, "expected.o"], place).returncode == 0
    assert compiler.plain(["--target=aarch64-linux-gnu", *arguments, "plain.o"], place).returncode == 0
    contents = [(place / f"{each}.o").read_bytes() for each in ("made", "expected", "plain")]
    assert contents[0] == contents[1] != contents[2]


@pytest.mark.parametrize("mode", ["cl", "cpp", "gcc", "g++"])
def test_a_mode_of_the_command_line(compiler: Compiler, place: Path, mode: str) -> None:
    arguments = [f"--driver-mode={mode}", *(["/Os", "/c"] if mode == "cl" else ["-Os", "-c"]), "lean.c"]
    results = [
        (result.returncode, result.stdout, result.stderr)
        for result in (compiler.plain(arguments, place), compiler.run(arguments, place))
    ]
    assert results[0] == results[1]


@pytest.mark.parametrize("cpp", [False, True])
def test_messages_begin_with_the_compilers_name(compiler: Compiler, place: Path, cpp: bool) -> None:
    plain = compiler.clang.replace("clang", "clang++") if cpp else compiler.clang
    ours = compiler.cpp_driver if cpp else compiler.driver
    said = [run([program, "-Oz", "-fno-such-option", "-c", "lean.c"], place).stderr for program in (plain, ours)]
    assert said[0] == said[1] != ""


def test_a_script_is_told_what_it_cannot_see(damageable: Compiler, place: Path) -> None:
    """The kernel gives it its own name."""
    environment = damageable.stand_in(place / "tools", 'exec $CLANG "$@"\n')
    for name, triple in {"aarch64-linux-gnu-clang": "aarch64-unknown-linux-gnu", "clang-cl": "windows-msvc"}.items():
        [_, program] = links(damageable, place, name)
        result = run([str(program), "-print-target-triple" if name != "clang-cl" else "--version"], place, environment)
        assert result.returncode == 0 and triple in result.stdout
