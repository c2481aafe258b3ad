"""Turns the recorded cc1 options of a module into the command that compiles its bitcode.

A corpus is untrusted input, so options pass through an allow-list by effect (`cc1_options.py`): those that steer code
generation are kept, with values that cannot name a file; those that only concern the front end or name other outputs
are dropped (the bitcode is already past the front end); and everything else is refused by name: plugins, profiles and
other inputs, response files, and whatever a newer compiler may bring.
"""

import functools
import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from compiler_opt.corpus import cc1_options
from compiler_opt.errors import CorpusError

_PLAIN_VALUE = re.compile(r"[A-Za-z0-9_.,:=+-]*")
"""Values of kept options: words, numbers and lists; nothing that leads to a file elsewhere, or to `@file`."""

_REMEDY = "remove it from the module's .cmd file, or leave the module out of the corpus"


class _Table(NamedTuple):
    """Options with one effect: those that stand alone, that take the next argument, and that carry their value."""

    flags: frozenset[str]
    separate: frozenset[str]
    joined: tuple[str, ...]


def compile_command(
    clang: Path | str,
    options: Sequence[str],
    bitcode: Path | str,
    output: Path | str,
    extra: Sequence[str] = (),
) -> list[str]:
    """The command that compiles a corpus module to an object file, as the build did, minus the embedded bitcode.

    Args:
      clang: the compiler.
      options: the module's recorded cc1 options, `Module.options()`.
      bitcode: the module's `.bc` file.
      output: the object file to write.
      extra: our own cc1 options, e.g. `-mllvm` pairs; trusted, and last so that they win.

    Raises:
      CorpusError: an option is not on the allow-list.
    """
    kept = checked_options(tuple(options))
    return [str(clang), "-cc1", *kept, "-emit-obj", _ONE_TARGET, *extra, "-x", "ir", str(bitcode), "-o", str(output)]


_ONE_TARGET = "-Werror=override-module"
"""Bitcode is for one target, down to the sizes of its types. Left to itself clang compiles it for whatever target the
options name, or for its own when they name none, and only warns."""


def opt_command(
    opt: Path | str,
    options: Sequence[str],
    bitcode: Path | str,
    output: Path | str,
    extra: Sequence[str] = (),
    passes: str = "",
) -> list[str]:
    """The command that has `opt` do the part of a module's compilation that ends before code is generated.

    Args:
      opt: the program.
      options: the module's recorded cc1 options.
      bitcode: the module's `.bc` file.
      output: the bitcode file to write; `compile_command` with `-disable-llvm-passes` makes an object of it.
      extra: our own LLVM options; trusted, and last so that they win.
      passes: a pipeline as `opt -passes` takes it; by default that of the module's `-O` level.

    Raises:
      CorpusError: an option is not on the allow-list.
    """
    kept = checked_options(tuple(options))
    of_llvm = [value for name, value in itertools.pairwise(kept) if name == "-mllvm"]
    level = next((option for option in reversed(kept) if option in _PIPELINE_LEVELS), "-O0")
    pipeline = passes or f"default<{level[1:]}>"
    return [str(opt), f"-passes={pipeline}", *of_llvm, *extra, str(bitcode), "-o", str(output)]


_PIPELINE_LEVELS = frozenset({"-O0", "-O1", "-O2", "-O3", "-Os", "-Oz"})


@functools.lru_cache(maxsize=1 << 16)
def checked_options(options: tuple[str, ...]) -> tuple[str, ...]:
    """The options that steer code generation, in order; the others are dropped.

    Raises:
      CorpusError: `options` is no cc1 command line, or one of them is not on the allow-list.
    """
    if not options or options[0] != "-cc1":
        found = _shown(options[0]) if options else "nothing"
        raise CorpusError(f"command line: expected cc1 options that start with '-cc1', found {found}")
    kept: list[str] = []
    arguments = iter(options)
    for option in arguments:
        is_kept, takes_value = _effect(option)
        words = [option]
        if takes_value:
            value = next(arguments, None)
            if value is None:
                raise CorpusError(f"command line: {_shown(option)} is the last option, but takes a value")
            words.append(value)
        if is_kept:
            _check(words)
            kept += words
    return tuple(kept)


def _effect(option: str) -> tuple[bool, bool]:
    """Whether an option is kept, and whether the next argument belongs to it."""
    if option == "-mllvm":
        return True, True
    for is_kept, table in ((True, _KEPT), (False, _DROPPED)):
        if option in table.flags:
            return is_kept, False
        if option in table.separate:
            return is_kept, True
    for is_kept, table in ((True, _KEPT), (False, _DROPPED)):
        if option.startswith(table.joined):
            return is_kept, False
    raise CorpusError(f"command line: {_shown(option)} is not an option that a corpus may use; {_REMEDY}")


def _check(words: Sequence[str]) -> None:
    """Checks the value of an option that is kept."""
    option, value = words[0], words[-1]
    if option == "-mllvm":
        name = value.partition("=")[0]
        # LLVM takes one dash or two.
        if f"-{name.lstrip('-')}" not in _LLVM_KNOBS or not _PLAIN_VALUE.fullmatch(value):
            raise CorpusError(f"command line: -mllvm {_shown(value)} is not an option that a corpus may use; {_REMEDY}")
    elif not all(_PLAIN_VALUE.fullmatch(word) for word in words):
        raise CorpusError(f"command line: {_shown(' '.join(words))}: expected a plain word as the value; {_REMEDY}")


def _parse_table(text: str) -> _Table:
    """Reads one of the tables of `cc1_options.py`."""
    flags, separate, joined = set(), set(), set()
    for line in text.splitlines():
        entry = line.strip()
        if not entry or entry.startswith("#"):
            continue
        if entry.endswith(" <value>"):
            separate.add(entry.removesuffix(" <value>"))
        elif entry.endswith("<value>"):
            joined.add(entry.removesuffix("<value>"))
        else:
            flags.add(entry)
    return _Table(frozenset(flags), frozenset(separate), tuple(sorted(joined)))


def _shown(text: str) -> str:
    return repr(text) if len(text) <= 80 else f"{text[:80]!r}..."


_KEPT = _parse_table(cc1_options.KEPT)
_DROPPED = _parse_table(cc1_options.DROPPED)
_LLVM_KNOBS = _parse_table(cc1_options.LLVM_KNOBS).flags
