"""The exceptions of this project: one small tree, each a one-line message that a user can act on.

A message says what was expected, what was found, where, and what to do. Entry points print it after `error: ` and
exit with status 2; a traceback means a bug of ours.
"""

import errno


class CompilerOptError(Exception):
    """Root of everything that this project raises on purpose; `str()` is one line."""


class ToolchainError(CompilerOptError):
    """A compiler or one of its tools is missing, too old, or cannot do what is asked of it."""


class CorpusError(CompilerOptError):
    """A corpus, one of its modules, or a command line in it cannot be used."""


class ProtocolError(CompilerOptError):
    """What came over the interactive channel or stands in a training log is not the expected format."""


class CompileError(CompilerOptError):
    """One compilation failed: says command, exit status or signal, and the tail of stderr."""


class ResourceError(CompilerOptError):
    """The machine ran short of memory, disk or processes: says nothing about what was compiled, and may pass."""

    ERRNOS = frozenset({errno.EAGAIN, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC})
    """With which the system says so."""


class PolicyError(CompilerOptError):
    """A policy or a vocabulary cannot be loaded, or does not fit the compiler's features."""


class ConfigError(CompilerOptError):
    """A flag, a gin binding or another setting is wrong."""


class OutputError(CompilerOptError):
    """A result cannot be written (folder not writable, disk full); what stood there before is untouched."""
