import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from compiler_opt.errors import told_if_interrupted
from compiler_opt.tools.entry_point import echo, first_of
from tests.machine import open_terminal

ROOT = Path(__file__).parents[2]

PROGRAM = """\
'''The program's docstring.'''
import errno, os, sys, time
from absl import flags
from compiler_opt.errors import CorpusError
from compiler_opt.tools import entry_point
NUMBER = flags.DEFINE_integer("number", 0, "A number.")
{head}
flags.DEFINE_string("needed", None, "Something needed.", required={required})
@entry_point.command
def entry():
    {body}
entry()
"""


def start(
    folder: Path, body: str, *arguments: str, required: bool = False, head: str = "", stderr: int = subprocess.PIPE
) -> "subprocess.Popen[str]":
    program = folder / "program.py"
    program.write_text(PROGRAM.format(body=body or "pass", required=required, head=head))
    return subprocess.Popen(
        [sys.executable, str(program), *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )


def run(folder: Path, body: str, *arguments: str, required: bool = False, head: str = "") -> tuple[int, str, str]:
    """Exit status, stdout and stderr of an entry point with this body, below some lines."""
    process = start(folder, body, *arguments, required=required, head=head)
    stdout, stderr = process.communicate(timeout=60)
    return process.returncode, stdout, stderr


@pytest.mark.parametrize(("returned", "status"), [("None", 0), ("0", 0), ("2", 2)])
def test_exit_status_is_what_main_returns(returned: str, status: int, tmp_path: Path) -> None:
    assert run(tmp_path, f"print(NUMBER.value); return {returned}", "--number=3") == (status, "3\n", "")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise CorpusError('no corpus at x')", "error: no corpus at x\n"),
        ("raise CorpusError('two\\nlines')", "error: two lines\n"),
        ("raise OSError(errno.ENOSPC, 'No space', 'some/file')", "error: some/file: the disk is full; "),
        ("raise OSError(errno.ENOSPC, 'No space')", "error: output: the disk is full; "),
        ("raise PermissionError(errno.EACCES, 'Denied', 'some/file')", "error: some/file: no permission; "),
        ("raise OSError(errno.EROFS, 'Read-only', 'some/file')", "error: some/file: the file system is read-only; "),
    ],
)
def test_a_users_error_is_one_line(body: str, message: str, tmp_path: Path) -> None:
    status, stdout, stderr = run(tmp_path, body)
    assert (status, stdout) == (2, "")
    assert stderr.startswith(message) and stderr.count("\n") == 1


def test_a_bug_of_ours_keeps_its_traceback(tmp_path: Path) -> None:
    status, _, stderr = run(tmp_path, "return [][1]")
    assert status == 1
    assert "Traceback" in stderr and "IndexError" in stderr
    status, _, stderr = run(tmp_path, "raise FileNotFoundError(errno.ENOENT, 'No such file', 'x')")
    assert status == 1 and "Traceback" in stderr


@pytest.mark.parametrize("argument", ["--number=three", "--nubmer=3", "extra", "--number"])
def test_a_wrong_command_line_is_one_line(argument: str, tmp_path: Path) -> None:
    status, stdout, stderr = run(tmp_path, "print('never')", argument)
    assert (status, stdout) == (2, "")
    assert stderr.startswith("error: ") and stderr.count("\n") == 1
    assert argument.strip("-").split("=")[0] in stderr and "--help" in stderr


def test_a_required_flag_that_is_missing(tmp_path: Path) -> None:
    status, stdout, stderr = run(tmp_path, "print('never')", required=True)
    assert (status, stdout) == (2, "")
    assert stderr.startswith("error: ") and stderr.count("\n") == 1 and "needed" in stderr


def test_help_succeeds(tmp_path: Path) -> None:
    status, stdout, stderr = run(tmp_path, "print('never')", "--help")
    assert (status, stderr) == (0, "")
    assert "The program's docstring." in stdout and "--number" in stdout and "never" not in stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(tmp_path: Path, number: signal.Signals) -> None:
    process = start(tmp_path, "print('ready', flush=True); time.sleep(60)")
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    time.sleep(0.1)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=30)
    assert (process.returncode, stderr) == (130, "interrupted\n")


def test_interrupted_work_says_how_far_it_was(tmp_path: Path) -> None:
    status, _, stderr = run(tmp_path, "raise KeyboardInterrupt('2 of 5 done')")
    assert (status, stderr) == (130, "interrupted: 2 of 5 done\n")


def test_the_work_itself_knows_better_how_far_it_was() -> None:
    for own, told in (("", "2 of 5"), ("epoch 7", "epoch 7")):
        with pytest.raises(KeyboardInterrupt, match=f"^{told}$"), told_if_interrupted(lambda: "2 of 5"):
            raise KeyboardInterrupt(own)
    with told_if_interrupted(lambda: "never"):
        pass


@pytest.mark.parametrize(
    ("body", "arguments"), [("print('few')", ()), ("print('many' * 1_000_000)", ()), ("print('never')", ("--help",))]
)
def test_when_nobody_reads_the_output(body: str, arguments: tuple[str, ...], tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(body=body, required=False, head=""))
    reading, writing = os.pipe()
    os.close(reading)
    result = subprocess.run(
        [sys.executable, str(program), *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writing)
    assert (result.returncode, result.stderr) == (141, "")


PRINTS = """
    from compiler_opt.tools.entry_point import echo, note, print_json, say, warn
    print('table'); echo('result'); say('step 1'); note('a note'); warn('a warning'); print_json({'a': [1]})
"""


@pytest.mark.parametrize(
    ("flags", "stdout", "stderr"),
    [
        ((), "table result step 1", "note: a note warning: a warning"),
        (("--quiet",), "table result", "note: a note warning: a warning"),
        (("--json",), '{ "a": [ 1 ] }', "table result step 1 note: a note warning: a warning"),
        (("--json", "--quiet"), '{ "a": [ 1 ] }', "note: a note warning: a warning"),
    ],
)
def test_what_is_printed_where(flags: tuple[str, ...], stdout: str, stderr: str, tmp_path: Path) -> None:
    result = run(tmp_path, PRINTS, *flags, head="from compiler_opt.tools import shared_flags; shared_flags.json()")
    assert [" ".join(str(text).split()) for text in result] == ["0", stdout, stderr]


def test_a_command_without_a_json_result_does_not_have_the_flag(tmp_path: Path) -> None:
    status, stdout, stderr = run(tmp_path, "print('never')", "--json")
    assert (status, stdout) == (2, "") and "flag 'json'" in stderr
    assert "--[no]json" not in run(tmp_path, "", "--help")[1]


def test_log_lines_begin_with_the_time(tmp_path: Path) -> None:
    body = "logging.root.setLevel('INFO'); logging.info('said %d', 1); logging.warning('two'); logging.error('three')"
    status, _, stderr = run(tmp_path, body, head="import logging")
    assert status == 0
    time = r"\d\d:\d\d:\d\d"
    assert re.fullmatch(f"{time} said 1\n{time} warning: two\n{time} error: three\n", stderr)
    quiet = run(tmp_path, body, "--quiet", head="import logging")[2]
    assert re.fullmatch(f"{time} warning: two\n{time} error: three\n", quiet)


def test_every_command_with_flags_is_made_here() -> None:
    """So all of them log in the same way."""
    for folder in ("compiler_opt", "benchmarks", "studies"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text()
            assert path.name == "entry_point.py" or not re.search(r"\bapp\.run\(|absl import .*\bapp\b", text), path
            if "__main__" in text and re.search(r"\bflags\.DEFINE|\bshared_flags\.", text):
                assert "@entry_point.command\n" in text, path


@pytest.mark.parametrize("flags", [(), ("--quiet",)])
def test_quiet_shows_no_bar(flags: tuple[str, ...], tmp_path: Path) -> None:
    head = "from compiler_opt.progress_bar import progress_bar"
    ours, theirs = open_terminal()
    process = start(tmp_path, "list(progress_bar([1, 2], 'counting'))", *flags, head=head, stderr=theirs)
    os.close(theirs)
    text = b""
    # When nobody else has the terminal open, reading it fails.
    with contextlib.suppress(OSError):
        while part := os.read(ours, 10_000):
            text += part
    os.close(ours)
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert (text == b"") if flags else (b"counting: 100%" in text)


def test_another_broken_pipe_is_a_bug_of_ours(tmp_path: Path) -> None:
    status, _, stderr = run(tmp_path, "raise BrokenPipeError(errno.EPIPE, 'Broken pipe')")
    assert status == 1 and "Traceback" in stderr


def test_unprintable_characters_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    echo("caf\udce9.o: 1\n\ttwo é")
    assert capsys.readouterr().out == "caf\\udce9.o: 1\n\\ttwo é\n"


def test_the_first_reasons_are_named_and_the_others_counted() -> None:
    assert first_of("left out", []) == []
    assert first_of("left out", ["a:\n no  object", "b"], 2) == ["left out: a: no object", "left out: b"]
    assert first_of("left out", ["a", "b", "c"], 1, remedy="; see x") == ["left out: a", "left out: 2 more; see x"]
