"""Turns the recorded cc1 options of a module into the command that compiles its bitcode.

A corpus is untrusted input, so its options pass through an allow-list (`cc1_options.py`). Options that affect code
generation are kept, with values that cannot name a file. Options that affect only the front end, which the bitcode is
past, or that name other outputs are dropped. All others are refused by name: plugins, profiles and other inputs,
response files, and unknown options of newer compilers.

Untrusted bitcode is verified, because an invalid module has undefined effects on the compiler. So
`-disable-llvm-verifier`, which release builds of clang record for every module, is dropped.

Users may trust a corpus that they have built (`--trust_corpus`): unlisted options are then kept as recorded, with any
value. Options that name the output or an input are still dropped, as are the listed ones that always are.
"""

import enum
import functools
import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from compiler_opt.corpus.command_lines import cc1_options
from compiler_opt.errors import CorpusError
from compiler_opt.files import shown

INDEX_SUFFIX = ".thinlto.bc"
INDEX_OPTION = "-fthinlto-index="
_EMBED_OPTION = "-lto-embed-bitcode="
_MERGED_OPTION = "-thinlto-assume-merged"

_PLAIN_VALUE = re.compile(r"[A-Za-z0-9_.,:=+-]*")
"""The values of kept options: words, numbers and lists, but no paths and no `@file`."""

_REMEDY = (
    "remove it from the module's .cmd file, leave the module out of the corpus, or, if the corpus is your own, give "
    "--trust_corpus"
)

_NO_VERIFIER = "-disable-llvm-verifier"

_ONE_TARGET = "-Werror=override-module"
"""Bitcode is for one target, down to the sizes of its types; otherwise clang compiles it for the target in the options,
or for its own default, and only warns."""


class _Table(NamedTuple):
    """A table of options: flags, options with a separate value, and prefixes of options with a joined value."""

    flags: frozenset[str]
    separate: frozenset[str]
    joined: tuple[str, ...]


class _Effect(enum.Enum):
    KEPT = enum.auto()
    DROPPED = enum.auto()
    UNLISTED = enum.auto()


def compile_command(
    clang: Path | str,
    options: Sequence[str],
    bitcode: Path | str,
    output: Path | str,
    extra: Sequence[str] = (),
    *,
    trusted: bool = False,
) -> list[str]:
    """The command that compiles a corpus module to an object file as the build did, without embedding bitcode.

    A ThinLTO backend's options get the module's own index (`X.thinlto.bc` next to `X.bc`) instead of the one they name.

    Args:
      clang: the compiler.
      options: the module's cc1 options, `Module.options()`.
      bitcode: the module's `.bc` file.
      output: the object file to write.
      extra: our own cc1 options, e.g. `-mllvm` pairs; trusted, and last so that they take precedence.
      trusted: keep options that are not on the allow-list.

    Raises:
      CorpusError: an option is not on the allow-list.
    """
    kept = list(checked_options(_without_index(options), trusted))
    kept += _own_index(bitcode) if is_thinlto(options) else []
    return [str(clang), "-cc1", *kept, "-emit-obj", _ONE_TARGET, *extra, "-x", "ir", str(bitcode), "-o", str(output)]


def is_thinlto(options: Sequence[str]) -> bool:
    """Whether the options are a ThinLTO backend's."""
    return any(option.startswith(INDEX_OPTION) for option in options)


def _without_index(options: Sequence[str]) -> tuple[str, ...]:
    """The options except those about the ThinLTO index."""
    kept: list[str] = []
    for option in options:
        if kept and kept[-1] == "-mllvm" and option.lstrip("-").startswith((_EMBED_OPTION[1:], _MERGED_OPTION[1:])):
            kept.pop()
        elif not option.startswith(INDEX_OPTION):
            kept.append(option)
    return tuple(kept)


def index_path(bitcode_path: Path | str) -> Path:
    """The path of a module's index, next to its bitcode."""
    return Path(f"{str(bitcode_path).removesuffix('.bc')}{INDEX_SUFFIX}")


def _own_index(bitcode_path: Path | str) -> list[str]:
    """The options that compile a module's bitcode with its own index.

    Without `-thinlto-assume-merged`, clang would import again, from files that an untrusted index names.

    Raises:
      CorpusError: there is no index; clang would silently compile without it.
    """
    index = index_path(bitcode_path)
    if not index.is_file():
        raise CorpusError(
            f"{index}: expected the module's ThinLTO index, found none; extract the corpus again, with --thinlto_build"
        )
    return [f"{INDEX_OPTION}{index}", "-mllvm", _MERGED_OPTION]


def opt_command(
    opt: Path | str,
    options: Sequence[str],
    bitcode: Path | str,
    output: Path | str,
    extra: Sequence[str] = (),
    passes: str = "",
    *,
    trusted: bool = False,
) -> list[str]:
    """The command that optimises a module's bitcode by `opt`, up to code generation; see `compile_command`.

    Args:
      opt: path of `opt`.
      options: the module's cc1 options.
      bitcode: the module's `.bc` file.
      output: the bitcode file to write; `compile_command` with `-disable-llvm-passes` compiles it to an object.
      extra: our own LLVM options.
      passes: a pipeline for `opt -passes`; by default that of the module's `-O` level.
      trusted: keep options that are not on the allow-list.
    """
    kept = checked_options(tuple(options), trusted)
    llvm_options = [value for name, value in itertools.pairwise(kept) if name == "-mllvm"]
    level = optimization_level(kept)
    pipeline = passes or f"default<{'O1' if level == '-Og' else level[1:]}>"
    return [str(opt), f"-passes={pipeline}", *llvm_options, *extra, str(bitcode), "-o", str(output)]


def optimization_level(options: Sequence[str]) -> str:
    """The last `-O` option, such as `-Oz`; `-O0`, the compiler's default, without one."""
    return next((option for option in reversed(options) if option.startswith("-O") and len(option) <= 3), "-O0")


_MAX_CACHED = 1 << 12
_MAX_CACHED_BYTES = 1 << 14
"""Longer command lines are not cached: the cache stays below 64 MiB whatever a corpus holds."""
_STRING_BYTES = 64
"""The memory of a Python string, apart from its characters."""


def checked_options(options: tuple[str, ...], trusted: bool = False) -> tuple[str, ...]:
    """The options that steer code generation, in order; the others are dropped.

    Args:
      options: a whole cc1 command line, as recorded.
      trusted: also keep options that are not on the allow-list, with any value; response files are still refused, as
        their contents are unknown.

    Raises:
      CorpusError: `options` is no cc1 command line, or one of them is not on the allow-list.
    """
    is_short = sum(map(len, options)) + _STRING_BYTES * len(options) <= _MAX_CACHED_BYTES
    return _checked_and_cached(options, trusted) if is_short else _checked(options, trusted)


def _checked(options: tuple[str, ...], trusted: bool) -> tuple[str, ...]:
    if not options or options[0] != "-cc1":
        found = shown(options[0]) if options else "nothing"
        raise CorpusError(f"command line: expected cc1 options that start with '-cc1', found {found}")
    kept: list[str] = []
    for effect, words in _entries(options):
        if effect is _Effect.DROPPED or (trusted and effect is _Effect.UNLISTED and _is_input_or_output(words)):
            continue
        if not trusted and words == (_NO_VERIFIER,):
            continue
        file = next((word for word in words if word.startswith("@")), None)
        if file is not None or not (trusted or effect is _Effect.KEPT):
            refused = file or words[0]
            what = f"{shown(refused)} is not an option that a corpus may use{_reason(refused)}"
            raise CorpusError(f"command line: {what}; {_REMEDY}")
        if not trusted:
            _check(words)
        kept += words
    return tuple(kept)


_checked_and_cached = functools.lru_cache(maxsize=_MAX_CACHED)(_checked)


def split_options(options: Sequence[str]) -> list[tuple[str, ...]]:
    """Splits a command line into options with their values; raises CorpusError if the last one's value is missing."""
    return [words for _, words in _entries(options)]


def takes_separate_value(option: str) -> bool:
    """Whether a listed option takes its value as the next argument."""
    return option == "-mllvm" or any(option in table.separate for table in (_KEPT, _DROPPED))


def takes_value_after_equals(option: str) -> bool:
    """Whether a listed option has the form `option=value`."""
    return any(f"{option}=" in table.joined for table in (_KEPT, _DROPPED))


def _entries(options: Sequence[str]) -> Iterator[tuple[_Effect, tuple[str, ...]]]:
    """Yields each option with its value, and its effect."""
    position = 0
    while position < len(options):
        option = options[position]
        effect, takes_value = _effect(option)
        if effect is _Effect.UNLISTED:
            # Only the compiler knows whether it takes a value: assume so if the next argument looks like one.
            following = options[position + 1 : position + 2]
            takes_value = option[:1] == "-" and bool(following) and following[0][:1] not in ("-", "@")
        end = position + 1 + takes_value
        if end > len(options):
            raise CorpusError(f"command line: {shown(option)} is the last option, but takes a value")
        yield effect, tuple(options[position:end])
        position = end


def _effect(option: str) -> tuple[_Effect, bool]:
    """The effect of an option, and whether the next argument is its value."""
    if option == "-mllvm":
        return _Effect.KEPT, True
    tables = ((_Effect.KEPT, _KEPT), (_Effect.DROPPED, _DROPPED))
    for effect, table in tables:
        if option in table.flags:
            return effect, False
        if option in table.separate:
            return effect, True
    for effect, table in tables:
        if option.startswith(table.joined):
            return effect, False
    return _Effect.UNLISTED, False


def _is_input_or_output(words: Sequence[str]) -> bool:
    """Whether an unlisted option names an input or the output; a joined `-ox` is overridden by our own `-o`."""
    return words[0] in ("-o", "-", "--", "") or words[0][0] not in "-@"


def _reason(option: str) -> str:
    """Why an option is refused, in parentheses, if known."""
    found = (reason for reason, starts in cc1_options.REASONS.items() if option.startswith(tuple(starts.split())))
    return next((f" ({reason})" for reason in found), "")


def _check(words: Sequence[str]) -> None:
    """Checks the value of a kept option."""
    option, value = words[0], words[-1]
    if option == "-mllvm":
        name = value.partition("=")[0]
        # LLVM accepts one dash or two.
        if f"-{name.lstrip('-')}" not in _LLVM_KNOBS or not _PLAIN_VALUE.fullmatch(value):
            raise CorpusError(f"command line: -mllvm {shown(value)} is not an option that a corpus may use; {_REMEDY}")
    elif not all(_PLAIN_VALUE.fullmatch(word) for word in words) or (
        # A compiler in which the option takes no value would take this one for an option.
        len(words) > 1 and value.startswith("-") and option != "-target-feature"
    ):
        raise CorpusError(f"command line: {shown(' '.join(words))}: expected a plain word as the value; {_REMEDY}")


def _parse_table(table: str) -> _Table:
    flags, separate, joined = set(), set(), set()
    for entry in cc1_options.entries(table):
        if entry.endswith(" <value>"):
            separate.add(entry.removesuffix(" <value>"))
        elif entry.endswith("<value>"):
            joined.add(entry.removesuffix("<value>"))
        else:
            flags.add(entry)
    return _Table(frozenset(flags), frozenset(separate), tuple(sorted(joined)))


_KEPT = _parse_table(cc1_options.KEPT)
_DROPPED = _parse_table(cc1_options.DROPPED)
_LLVM_KNOBS = _parse_table(cc1_options.LLVM_KNOBS).flags
