"""What every entry point shares: flags are parsed, `main` runs, and a user's mistake is one line and exit status 2.

An entry point ends in

    def entry() -> None:
        entry_point.run(main)

    if __name__ == "__main__":
        entry()

and can then be started as a script from the repository's root, with `python -m`, and as a console command. Exit status:
0 for success, 2 for something that the user can fix, 130 when interrupted, 141 when nobody reads what is printed any
more; a traceback (status 1) is a bug of ours.
"""

import contextlib
import errno
import os
import select
import sys
import tokenize
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from absl import app, flags, logging

from compiler_opt.errors import CompilerOptError, ConfigError

EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 130
EXIT_UNREAD = 141
"""As a shell shows what SIGPIPE has ended. We do not let it: there are compilers at the ends of pipes, too."""

_REMEDIES = {
    errno.ENOSPC: "the disk is full; free some space and run the same command again",
    errno.EDQUOT: "the disk quota is used up; free some space and run the same command again",
    errno.EROFS: "the file system is read-only; give another output folder",
    errno.EACCES: "no permission; check the folder's owner and mode, or give another",
    errno.EPERM: "not permitted; check the folder's owner and mode, or give another",
}
"""What the system refuses for reasons outside this program, by error number."""


def run(main: Callable[[list[str]], int | None]) -> NoReturn:
    """Parses the command line's flags, calls `main`, and exits.

    Args:
      main: given the program's name alone, since what is not a flag is refused; returns the exit status, None for 0.
    """
    _show_help_of(main.__module__)
    try:
        app.run(lambda argv: _guarded(main, argv), flags_parser=_parse_flags)
    except KeyboardInterrupt:
        # While flags are parsed; later, `_guarded` sees to it.
        sys.exit(_interrupted())
    except SystemExit:
        _flush()
        raise
    except BrokenPipeError:
        _leave_if_unread()
        raise
    raise AssertionError("app.run returned")


def num_workers(given: int | None) -> int:
    """How many processes or threads work at a time, by default one for each CPU that we may use."""
    return given or len(os.sched_getaffinity(0))


def parse_gin(files: Sequence[str], bindings: Sequence[str]) -> None:
    """Reads gin files, then bindings, which win.

    Everything that may be configured has to be imported before.

    Args:
      files: paths of gin files.
      bindings: such as `train_eval.num_iterations=10`.

    Raises:
      ConfigError: a file is missing; a file or binding is not gin, or names what does not exist.
    """
    import gin

    with gin.unlock_config(), _without_chatter():
        for file in files:
            if not Path(file).is_file():
                raise ConfigError(f"--gin_files={file}: no such file")
            try:
                _parse_beside(Path(file).resolve())
            except _GIN_ERRORS as error:
                raise ConfigError(f"--gin_files={file}: {one_line(str(error))}; fix the file") from error
        for binding in bindings:
            try:
                gin.parse_config(binding)
            except _GIN_ERRORS as error:
                raise ConfigError(
                    f"--gin_bindings={binding}: {one_line(str(error))}; "
                    "expected name.parameter=value, both of which exist"
                ) from error
        try:
            gin.finalize()  # references to what does not exist show only now
        except _GIN_ERRORS as error:
            raise ConfigError(f"gin configuration: {one_line(str(error))}") from error


def _parse_beside(file: Path) -> None:
    """Parses a file which may include its neighbours, or others by their path from the working directory."""
    import gin

    working_directory = Path.cwd()
    gin.add_config_file_search_path(str(working_directory))
    os.chdir(file.parent)  # Where gin looks first; it keeps every other place that it was ever told of.
    try:
        gin.parse_config_file(str(file))
    finally:
        os.chdir(working_directory)


@contextlib.contextmanager
def _without_chatter() -> Iterator[None]:
    """Gin logs as an error each place where an included file is not, before it finds it in the next."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.FATAL)
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)


_GIN_ERRORS = (ValueError, SyntaxError, tokenize.TokenError, TypeError, ImportError, RuntimeError, OSError)
"""What gin raises for a configuration that is wrong; none of it is a class of its own."""


def one_line(text: str) -> str:
    """The text with every run of white space made one blank."""
    return " ".join(text.split())


def _guarded(main: Callable[[list[str]], int | None], argv: list[str]) -> int:
    """Calls `main`; turns what the user can fix into one line and a status."""
    try:
        if len(argv) > 1:
            raise ConfigError(f"expected flags only, found the argument {argv[1]!r}; see --help")
        return main(argv) or 0
    except CompilerOptError as error:
        return _complain(str(error))
    except app.UsageError as error:
        return _complain(f"{error}; see --help")
    except OSError as error:
        if error.errno not in _REMEDIES:
            raise
        return _complain(f"{error.filename or 'output'}: {_REMEDIES[error.errno]}")
    except KeyboardInterrupt:
        return _interrupted()


def _parse_flags(argv: list[str]) -> list[str]:
    """As absl does, but a mistake is one line and exit status 2, and asking for help is no failure."""
    try:
        return list(flags.FLAGS(argv))
    except flags.Error as error:
        sys.exit(_complain(f"{error}; see --help"))
    except SystemExit:
        # absl has printed the help, and would exit with 1.
        sys.exit(0)


def _flush() -> None:
    """Prints what is left, which Python would do too late for us to see whether anybody reads it."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _leave_if_unread()
        raise


def _leave_if_unread() -> None:
    """Exits when nobody reads what we print any more, as with `| head`."""
    poll = select.poll()
    for stream in (sys.stdout, sys.stderr):
        poll.register(stream.fileno(), 0)
    unread = [descriptor for descriptor, event in poll.poll(0) if event & select.POLLERR]
    for descriptor in unread:
        # What a buffer still holds would be tried again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
    if unread:
        sys.exit(EXIT_UNREAD)


def _show_help_of(module: str) -> None:
    """Makes `--help` show the flags of this module, also when a console command has imported it."""
    for flag in flags.FLAGS.get_key_flags_for_module(module):
        flags.FLAGS.register_key_flag_for_module(sys.argv[0], flag)
    sys.modules["__main__"].__doc__ = sys.modules[module].__doc__


def _complain(message: str) -> int:
    print(f"error: {one_line(message)}", file=sys.stderr)
    return EXIT_USER_ERROR


def _interrupted() -> int:
    print("interrupted", file=sys.stderr)
    return EXIT_INTERRUPTED
