"""The exceptions of this project, whose messages are one line that a user can act on.

A message says what was expected, what was found, where, and what to do. Commands print it after `error: ` and exit with
status 2; a traceback means a bug of ours.
"""

import contextlib
import errno
from collections.abc import Callable, Iterator


class CompilerOptError(Exception):
    """Base class of all exceptions that this project raises on purpose; `str()` is one line."""


class ToolchainError(CompilerOptError):
    """A compiler or one of its tools is missing, too old, or lacks an ability."""


class CorpusError(CompilerOptError):
    """A corpus, one of its modules, or a command line in it cannot be used."""


class ProtocolError(CompilerOptError):
    """Data from the interactive channel, a training log or an object file do not have the expected format."""


class CompileError(CompilerOptError):
    """A compilation failed; the message has command, exit status or signal, and the tail of stderr."""


class BenchmarkError(CompilerOptError):
    """A program that is measured fails, does not end, or prints something else than it should."""


class ResourceError(CompilerOptError):
    """The machine ran short of memory, disk or processes; trying again may help."""

    ERRNOS = frozenset({errno.EAGAIN, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC})
    """Error numbers for this condition."""


class PolicyError(CompilerOptError):
    """A policy or a vocabulary cannot be loaded, or does not fit the compiler's features."""


class ConfigError(CompilerOptError):
    """A flag, a gin binding or another setting is wrong."""


class MissingPackageError(CompilerOptError):
    """A Python package that a minimal installation lacks is needed."""


class OutputError(CompilerOptError):
    """A result cannot be written (folder not writable, disk full); an existing file is untouched."""


@contextlib.contextmanager
def told_if_interrupted(how_far: Callable[[], str]) -> Iterator[None]:
    """If the block is interrupted, the command's last line is `how_far()`, unless the work has a text of its own."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt(str(error) or how_far()) from None
