"""Makes a command of a function: parses flags, reports user errors in one line, sets the exit status; prints text.

    @entry_point.command
    def entry() -> None:
        ...

    if __name__ == "__main__":
        entry()

The module then runs as a script from the repository's root, with `python -m` and, named in `commands.py`, as
`compiler_opt VERB`. Exit status: 0 for success, 2 for an error that the user can fix, 130 if interrupted, 141 if nobody
reads the output. A traceback (status 1) is a bug of ours.

Every command has `--quiet`, so lines about progress go through `say`. A command with `shared_flags.json` gives its
result to `print_json`, too.
"""

import contextlib
import errno
import functools
import json
import logging
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from absl import app, flags
from absl import logging as absl_logging

from compiler_opt.collect.machine import available_cpus
from compiler_opt.errors import CompilerOptError, ConfigError
from compiler_opt.files import one_line, printable
from compiler_opt.tools import ml_compiler_opt

EXIT_USER_ERROR = 2
_EXIT_INTERRUPTED = 130
_EXIT_UNREAD = 141
"""The status that a shell shows for SIGPIPE, which we ignore because our pipes to compilers may break, too."""

_REMEDIES = {
    errno.ENOSPC: "the disk is full; free some space and run the same command again",
    errno.EDQUOT: "the disk quota is used up; free some space and run the same command again",
    errno.EROFS: "the file system is read-only; give another output folder",
    errno.EACCES: "no permission; check the folder's owner and mode, or give another",
    errno.EPERM: "not permitted; check the folder's owner and mode, or give another",
}
"""Messages for system errors whose cause lies outside this program."""

_QUIET = flags.DEFINE_bool("quiet", False, "Show no progress, only results, notes, warnings and errors.")


def command(main: Callable[[], int | None]) -> Callable[[], NoReturn]:
    """Makes a command of `main`, which returns the exit status (None for 0)."""
    module = sys.argv[0] if main.__module__ == "__main__" else main.__module__  # absl's name of it
    flags.FLAGS.register_key_flag_for_module(module, flags.FLAGS[_QUIET.name])

    @functools.wraps(main)
    def run() -> NoReturn:
        _show_help_of(main.__module__)
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # of schedulers and `timeout`: as Ctrl-C
        try:
            try:
                app.run(lambda argv: _exit_status(main, argv), flags_parser=_parse_flags)
            except KeyboardInterrupt as error:
                # While flags are parsed; later, `_exit_status` catches it.
                sys.exit(_report_interrupt(error))
            except SystemExit:
                # Python would flush at exit, too late to notice that nobody reads the output.
                sys.stdout.flush()
                raise
        except BrokenPipeError:
            _exit_if_unread()
            raise
        raise AssertionError("app.run returned")

    return run


def num_workers(given: int | None) -> int:
    """The number of processes or threads to run at a time, by default one for each CPU available to this process."""
    return given or available_cpus()


def echo(text: str) -> None:
    """Prints lines and flushes stdout; escapes control characters, and bytes of names that are not UTF-8."""
    print("\n".join(map(printable, text.split("\n"))), flush=True)


def say(text: str) -> None:
    """Prints lines about progress as `echo` does, unless the command is quiet."""
    if not _QUIET.value:
        echo(text)


def print_json(result: Path | Mapping[str, object]) -> None:
    """Prints the result of a command with --json: an object, or the content of the JSON file that has it."""
    if _prints_json():
        text = result.read_text() if isinstance(result, Path) else json.dumps(result, indent=1)
        print(text.rstrip(), file=sys.__stdout__, flush=True)


def note(text: str) -> None:
    """Prints a line to stderr about how the command was understood."""
    print(f"note: {one_line(printable(text))}", file=sys.stderr)


def warn(text: str) -> None:
    """Prints a line to stderr about what may go wrong later."""
    print(f"warning: {one_line(printable(text))}", file=sys.stderr)


def first_of(heading: str, reasons: Sequence[str], max_shown: int = 10, *, remedy: str = "") -> list[str]:
    """A line for each of the first reasons, and one with the number of the others, which ends with the remedy."""
    lines = [one_line(f"{heading}: {reason}") for reason in reasons[:max_shown]]
    if len(reasons) > max_shown:
        lines.append(f"{heading}: {len(reasons) - max_shown} more{remedy}")
    return lines


def _exit_status(main: Callable[[], int | None], argv: list[str]) -> int:
    """Calls `main`; turns errors that the user can fix into one line and a status."""
    try:
        if len(argv) > 1:
            raise ConfigError(f"expected flags only, found the argument {argv[1]!r}; see --help")
        with _output():
            return main() or 0
    except CompilerOptError as error:
        return _report_error(str(error))
    except app.UsageError as error:
        return _report_error(f"{error}; see --help")
    except OSError as error:
        if error.errno not in _REMEDIES:
            raise
        return _report_error(f"{error.filename or 'output'}: {_REMEDIES[error.errno]}")
    except KeyboardInterrupt as error:
        return _report_interrupt(error)


@contextlib.contextmanager
def _output() -> Iterator[None]:
    """Within the block, what is printed and logged is as --quiet and --json ask for."""
    handler = absl_logging.get_absl_handler()
    handler.setFormatter(_PlainTime())
    with contextlib.ExitStack() as stack:
        if _QUIET.value:
            from compiler_opt.progress_bar import hide_bars  # which takes some time

            hide_bars()
            handler.setLevel(logging.WARNING)
        if _prints_json():
            # With both, the text is no result.
            others = stack.enter_context(Path(os.devnull).open("w")) if _QUIET.value else sys.stderr
            stack.enter_context(contextlib.redirect_stdout(others))
        yield


def _prints_json() -> bool:
    return "json" in flags.FLAGS and bool(flags.FLAGS["json"].value)


class _PlainTime(logging.Formatter):
    """Formats `12:03:45 text` and `12:03:45 warning: text`."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        level = "" if record.levelno <= logging.INFO else f"{record.levelname.lower()}: "
        return f"{self.formatTime(record, '%H:%M:%S')} {level}{record.message}"


def _parse_flags(argv: list[str]) -> list[str]:
    """Parses flags as absl does, but reports an error in one line with exit status 2, and exits with 0 after --help."""
    try:
        return list(flags.FLAGS(argv))
    except flags.UnrecognizedFlagError as error:
        reason = ml_compiler_opt.flag_refusal(error.flagname, list(flags.FLAGS))
        sys.exit(_report_error(f"--{error.flagname} {reason}" if reason else f"{error}; see --help"))
    except flags.Error as error:
        sys.exit(_report_error(f"{error}; see --help"))
    except SystemExit:
        # absl has printed the help, and would exit with 1.
        sys.exit(0)


def _exit_if_unread() -> None:
    """Exits if the reader of our output is gone, as with `| head`."""
    poll = select.poll()
    for stream in (sys.stdout, sys.stderr):
        poll.register(stream.fileno(), 0)
    unread = [descriptor for descriptor, event in poll.poll(0) if event & select.POLLERR]
    for descriptor in unread:
        # Otherwise Python would try to write its buffers again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
    if unread:
        sys.exit(_EXIT_UNREAD)


def _show_help_of(module: str) -> None:
    """Makes `--help` show the flags of this module, even if `compiler_opt VERB` has imported it."""
    for flag in flags.FLAGS.get_key_flags_for_module(module):
        flags.FLAGS.register_key_flag_for_module(sys.argv[0], flag)
    sys.modules["__main__"].__doc__ = sys.modules[module].__doc__


def _report_error(message: str) -> int:
    print(f"error: {one_line(message)}", file=sys.stderr)
    return EXIT_USER_ERROR


def _report_interrupt(error: KeyboardInterrupt) -> int:
    print(one_line(f"interrupted: {error}" if str(error) else "interrupted"), file=sys.stderr)
    return _EXIT_INTERRUPTED
