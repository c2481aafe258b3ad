"""Programs behind launchers: what a shell and the launchers themselves start."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from compiler_opt.corpus.builds import commands

# Of the environment of these tests, even where that is not activated.
CMAKE = shutil.which("cmake", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}") or "cmake"

STARTED = [
    "env -- A=1 B=2 clang++",
    "env -u X -C sub A=1 clang++",
    "env --unset=X --unset Y --chdir=sub -i A=1 clang++",
    "env - A=1 clang++",
    "env -S 'A=1 clang++ -DX'",
    "A=1 B='2 3' clang++",
    "/usr/bin/env nice -n 5 env B=2 clang++",
    "nice -5 clang++",
    "nice -n5 timeout -k 3 20 clang++",
    "nice --adjustment=3 stdbuf -oL -e 0 clang++",
    "timeout --signal=TERM --kill-after 3 20 clang++",
    "ionice -c 3 -n7 clang++",
    "taskset -c 0 clang++",
    "flock -w 3 lock clang++",
    "nohup clang++",
    "exec clang++",
    "time clang++",
    "cd sub && clang++",
    ": && clang++ -DX",
    "cd sub; cd ..; clang++",
    r"""sh -c 'clang++ -c x.c -DA=\"b\"' > log 2>&1""",
    "clang++ 2>&1 > log",
    f"{CMAKE} -E env --unset=X A=1 clang++",
    f"{CMAKE} -E env A=1 {CMAKE} -E time nice clang++",
    f"{CMAKE} -E chdir sub env clang++",
    r"""clang++ '' -DA=\"x\ y\" -DB="\$z \a \"q\"" '-DC=\n' a\ b mid"dle q"uote'd'""",
]


def test_what_a_shell_starts(tmp_path: Path) -> None:
    """The compiler is a script that records its folder and arguments."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "sub").mkdir()
    record = shlex.quote(str(tmp_path / "record"))
    script = f'for word in "$PWD" clang++ "$@"; do printf "%s\\0" "$word"; done >> {record}'
    (tmp_path / "bin/clang++").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "bin/clang++").chmod(0o755)
    environment = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}
    for line in STARTED:
        text = re.sub(r" -i? ", rf"\g<0>PATH={environment['PATH']} ", line)  # Else, the environment is empty.
        result = subprocess.run(
            ["bash", "-c", text], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, (text, result.stderr)
        directory, *words = (tmp_path / "record").read_text().split("\0")[:-1]
        (tmp_path / "record").unlink()
        found = [each for each in commands.of_shell(text, tmp_path) if each.name == "clang++"]
        assert [(os.path.normpath(each.directory), [*each.words]) for each in found] == [(directory, words)], text


@pytest.mark.parametrize(
    "launcher",
    [
        "ccache",
        "/usr/bin/ccache",
        "ccache compression=false A=1",
        "distcc",
        "sccache",
        "strace -f",
        "strace -fo log -e trace=file -s 99 --output=x",
        "time -p -o log",
        "/usr/bin/time --format %e -f %U",
        "env -i A=1 B=2",
        "env -u X A=1 ccache distcc nice -n 5",
        "cmake -E env A=1 -- ccache",
        "cmake -E __run_co_compile --launcher=ccache --tidy=clang-tidy;-x --source=a.cpp --",
        "libtool --tag=CXX --mode=compile",
        "/bin/sh ./libtool --silent --tag CXX --mode=compile ccache",
        "taskset 3 chrt -b 0",
        "our-wrapper --log x",
        "python3 wrapper.py",
    ],
)
@pytest.mark.parametrize("compiler", ["clang++", "/opt/a b/bin/clang++-22", "x86_64-linux-gnu-g++-12", "mlgo-clang"])
def test_launchers(launcher: str, compiler: str) -> None:
    words = [compiler, "-c", "-O1", "a.cpp", "-o", "a.o"]
    (found,) = commands.of_words([*launcher.split(), *words], Path("/b"))
    assert (found.directory, [*found.words]) == (Path("/b"), words)
    assert found.is_compiler and found.is_cxx == ("++" in compiler)


@pytest.mark.parametrize(
    "text", ["cmake -E rm -f a.o", "cmake -E env", "nice -n", "distcc -c a.c -o a.o", "env -u", "install -c g++ x"]
)
def test_a_command_without_a_compiler_stays_itself(text: str) -> None:
    (found,) = commands.of_shell(text, Path("/b"))
    assert not found.is_compiler
    assert [*found.words] == text.split()


@pytest.mark.parametrize("text", ["clang 'a", 'clang "a', "sh -c 'clang \"'"])
def test_quotes_that_are_not_closed(text: str) -> None:
    with pytest.raises(ValueError, match="no "):
        commands.of_shell(text, Path("/b"))


def test_deep_nesting_ends() -> None:
    assert commands.of_words(["nice"] * 10_000, Path("/b"))
    assert commands.of_shell("", Path("/b")) == []
