"""Options of clang's driver (`-O2 -fPIC -c`) as cc1 options, which recorded command lines consist of.

google/ml-compiler-opt asks its users to write the former into a corpus's `global_command_override`. The driver itself
translates them: `clang -###` prints the cc1 command without running it. It knows nothing of the corpus's other rules:
the cc1 options still have to pass the allow-list of `command_line.py`.
"""

import functools
import os
import re
from collections.abc import Sequence
from pathlib import Path

from compiler_opt.corpus.builds import response_files
from compiler_opt.corpus.command_lines.command_line import INDEX_OPTION
from compiler_opt.errors import CorpusError
from compiler_opt.files import shown
from compiler_opt.llvm import processes
from compiler_opt.llvm.sandbox import Sandbox
from compiler_opt.llvm.scratch import scratch_directory

UNSPECIFIED = "<UNSPECIFIED>"
"""LLVM's extract_ir writes it instead of options, for users to replace."""

_FIX = "write the options of the build into corpus_description.json"
_TIMEOUT_S = 60.0

_LISTED = re.compile(
    r"-c|-w|-pthread|-nostdlib(\+\+)?|-no-canonical-prefixes|--sysroot=.*|-?-target=[\w.-]+|-std=[\w+]+"
    r"|-O[0-3sgz]?|-[fmgW][\w+-]*(=[\w.,+-]*)?"
)
"""Options with which the driver reads no file and starts no program, not even to find out about the machine."""
_LISTED_WITH_VALUE = ("-mllvm", "-target")


def are_driver_options(options: Sequence[str]) -> bool:
    """Whether options are the driver's rather than cc1's, which begin with `-cc1`."""
    return bool(options) and options[0] != "-cc1"


def to_cc1(clang: Path | str, options: tuple[str, ...], *, has_index: bool, trusted: bool) -> tuple[str, ...]:
    """Translates the driver's options as a compiler does; nothing is compiled.

    Args:
      clang: the compiler.
      options: the driver's options.
      has_index: whether the module has a ThinLTO index, with which it is compiled.
      trusted: accept options with which the driver may read files.

    Raises:
      CorpusError: an option is unknown to the compiler, or not one that a corpus may use.
    """
    index = (f"{INDEX_OPTION}<module>.thinlto.bc",) if has_index else ()
    return (*_translated(str(clang), options, trusted), *index)


@functools.lru_cache(maxsize=16)
def _translated(clang: str, options: tuple[str, ...], trusted: bool) -> tuple[str, ...]:
    _check(options, trusted)
    command = [clang, *options, "-c", "-x", "ir", os.devnull, "-o", os.devnull, "-###"]
    files = ["-o", os.devnull, "-x", "ir", os.devnull]
    with scratch_directory() as scratch:
        log = scratch / "commands"
        result = processes.run_logged(command, log, timeout_s=_TIMEOUT_S, sandbox=Sandbox.for_folder(scratch))
        commands = [line for line in log.read_text(errors="surrogateescape").splitlines() if '"-cc1"' in line]
    # It is printed as for a response file, in which, unlike in Python's shlex, \$ within quotes is $.
    words = response_files.split(commands[0]) if result.ok and len(commands) == 1 else []
    if words[-len(files) :] != files:
        raise CorpusError(f"global_command_override: expected options of one compilation, {result.describe()}; {_FIX}")
    return tuple(words[words.index("-cc1") : -len(files)])


def _check(options: Sequence[str], trusted: bool) -> None:
    """Raises CorpusError for options that a corpus may not use; even a trusted one may not name response files.

    The driver reads those wherever a word begins with @, also as the value of an option.
    """
    if UNSPECIFIED in options:
        raise CorpusError(f"global_command_override: is {UNSPECIFIED}; {_FIX}")
    position = 0
    while position < len(options):
        option = options[position]
        takes_value = option in _LISTED_WITH_VALUE
        if takes_value and position + 1 == len(options):
            raise CorpusError(f"global_command_override: {shown(option)} is the last option, but takes a value; {_FIX}")
        words = options[position : position + 1 + takes_value]
        position += len(words)
        is_listed = trusted or takes_value or _LISTED.fullmatch(option)
        if not is_listed or any(word.startswith("@") for word in words):
            raise CorpusError(
                f"global_command_override: {shown(' '.join(words))} is not an option of clang's driver that a corpus "
                "may use; remove it or, if the corpus is your own, give --trust_corpus"
            )
