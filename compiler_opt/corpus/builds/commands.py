"""Recorded commands: the line of a shell as words, and the program that runs behind launchers.

    cd sub && env A=1 B=2 ccache clang++ -c a.cpp  ->  clang++ -c a.cpp, in the folder sub

What comes before the program, such as the -E of `cmake -E env`, never counts as one of its options.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

_PIECE = re.compile(
    r"""\\(.)|([^ \t\r\n"'\\]+)|"((?:[^"\\]|\\.)*)"|'([^']*)'|([ \t\r\n]+)|(.)""",
    re.DOTALL,
)
_ESCAPED = re.compile(r'\\(?:([$`"\\])|\n)')
"""What a backslash escapes within double quotes."""
_OPERATORS = frozenset(("&&", "||", ";", "|", "&"))
_REDIRECTION = re.compile(r"\d*(?:[<>]&|&>>?|<>|>\||>>?|<)(.*)", re.DOTALL)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)

_COMPILER = re.compile(
    r"(?:[\w.+-]+-)?(?:clang(?:-cl|-cpp|-fast)?|gcc|cc|c89|c99|icx|icc|dpcpp|mpicc|emcc|nvcc|hipcc|tcc|xlc|cl"
    r"|(?:clang|clang-fast|g|c|em|mpic|mpicxx|xlc)\+\+|icpc|icpx|mpicxx)(?:-?\d[\d.]*)?(?:\.exe)?"
)
_CXX = re.compile(r".*(?:\+\+|icpc|icpx|mpicxx)[\d.-]*(?:\.exe)?")
_CLANG_CL = re.compile(r"(?:.*-)?(?:clang-)?cl(?:-?\d[\d.]*)?(?:\.exe)?")
_ARCHIVER = re.compile(r"(?:[\w.-]+-)?ar(?:-\d[\d.]*)?")
_LINKER = re.compile(r"(?:[\w.-]+-)?(?:ld(?:\.\w+)?|lld|gold|mold|wild)(?:-\d[\d.]*)?")


class _Launcher(NamedTuple):
    """The command line of a launcher: `NAME [OPTION...] [ARGUMENT...] PROGRAM...`.

    Attributes:
      letters: its one-letter options that take a value.
      names: its long options that take a value.
      arguments: how many words precede the program.
    """

    letters: str = ""
    names: tuple[str, ...] = ()
    arguments: int = 0


_LAUNCHERS: Mapping[str, _Launcher] = MappingProxyType(
    {
        **{name: _Launcher() for name in ("nohup", "exec", "command", "chronic", "unbuffer", "catchsegv", "pump")},
        "env": _Launcher("uCSa", ("unset", "chdir", "split-string", "argv0")),
        "cmake -E env": _Launcher("", ("unset", "modify")),
        "cmake -E time": _Launcher(),
        "cmake -E chdir": _Launcher("", (), 1),
        "cmake -E __run_co_compile": _Launcher("", ("launcher", "tidy", "cpplint", "iwyu", "lwyu", "source", "object")),
        "nice": _Launcher("n", ("adjustment",)),
        "ionice": _Launcher("cn", ("class", "classdata")),
        "chrt": _Launcher("TPD", ("sched-runtime", "sched-period", "sched-deadline"), 1),
        "taskset": _Launcher("", (), 1),
        "stdbuf": _Launcher("ioe", ("input", "output", "error")),
        "time": _Launcher("fo", ("format", "output")),
        "timeout": _Launcher("ks", ("kill-after", "signal"), 1),
        "flock": _Launcher("wE", ("timeout", "wait", "conflict-exit-code"), 1),
        "strace": _Launcher("abeEIoOpPsSuUX", ("attach", "output", "trace", "env", "user", "string-limit", "columns")),
        "ltrace": _Launcher("aADeFlnopsuwxX", ("align", "config", "indent", "library", "output")),
        "libtool": _Launcher("", ("mode", "tag")),
    }
)
_CACHES = frozenset("ccache sccache distcc icecc gomacc buildcache cachecc1 colorgcc ccache-swig fastbuild".split())
"""Launchers without options of their own: what begins with a dash after them is the default compiler's."""
_SHELLS = frozenset(("sh", "bash", "dash", "ash", "ksh", "zsh"))
_MAX_DEPTH = 64


@dataclasses.dataclass(frozen=True)
class Command:
    """A program and its arguments, without launchers.

    Attributes:
      directory: the folder that it runs in.
      words: the program, as written, and its arguments.
    """

    directory: Path
    words: tuple[str, ...]

    @property
    def name(self) -> str:
        """The program's name without folders; empty if the command has no words."""
        return _name(self.words[0]) if self.words else ""

    @property
    def is_compiler(self) -> bool:
        """Whether the program has the name of a compiler driver, such as `x86_64-linux-gnu-g++-12`."""
        return _COMPILER.fullmatch(self.name) is not None

    @property
    def is_cxx(self) -> bool:
        """Whether it has the name of a C++ compiler driver."""
        return self.is_compiler and _CXX.fullmatch(self.name) is not None

    @property
    def is_clang_cl(self) -> bool:
        """Whether it takes the options of Microsoft's compiler."""
        return _CLANG_CL.fullmatch(self.name) is not None or "--driver-mode=cl" in self.words

    @property
    def is_archiver(self) -> bool:
        """Whether it has the name of `ar`."""
        return _ARCHIVER.fullmatch(self.name) is not None

    @property
    def is_linker(self) -> bool:
        """Whether it has the name of a linker."""
        return _LINKER.fullmatch(self.name) is not None


def of_shell(text: str, directory: Path) -> list[Command]:
    """The commands in a line for a shell, in order, without their launchers.

    Quotes are a POSIX shell's. Operators and redirections count if blanks set them apart; nothing is expanded.

    Raises:
      ValueError: a quote is not closed.
    """
    return _of_shell(text, directory, 0)


def of_words(words: Sequence[str], directory: Path) -> list[Command]:
    """The same for a command in words; several only if it is a shell's."""
    return _of_words(list(words), directory, 0)


def _name(word: str) -> str:
    return word.replace("\\", "/").rpartition("/")[2]


def _of_shell(text: str, directory: Path, depth: int) -> list[Command]:
    commands: list[Command] = []
    for words in _simple_commands(text):
        if words[0] == "cd" and len(words) == 2:
            directory /= words[1]
        else:
            commands += _of_words(words, directory, depth)
    return commands


def _of_words(words: list[str], directory: Path, depth: int) -> list[Command]:
    """The program behind launchers, which may be nested."""
    while words and depth < _MAX_DEPTH:
        depth += 1
        if _ASSIGNMENT.fullmatch(words[0]) or words[0] == "--":
            words = words[1:]
            continue
        name = _name(words[0])
        if _COMPILER.fullmatch(name):
            break
        if name in _SHELLS and len(words) > 1:
            if words[1] == "-c" and len(words) > 2:
                return _of_shell(words[2], directory, depth)
            behind = words[1:]
        elif name == "cmake" and words[1:2] == ["-E"] and (key := f"cmake -E {''.join(words[2:3])}") in _LAUNCHERS:
            behind, directory = _behind(_LAUNCHERS[key], key, words[3:], directory)
        elif name in _LAUNCHERS:
            behind, directory = _behind(_LAUNCHERS[name], name, words[1:], directory)
        elif name in _CACHES:
            behind = words[1:]
        else:
            behind = _behind_unknown(words)
        if not behind or behind[0].startswith("-"):
            break
        words = behind
    return [Command(directory, tuple(words))] if words else []


def _behind(launcher: _Launcher, name: str, words: list[str], directory: Path) -> tuple[list[str], Path]:
    """What a launcher starts, and the folder that it does so in."""
    position = 0
    while position < len(words) and words[position].startswith("-") and words[position] != "-":
        option = words[position]
        position += 1
        if option == "--":
            break
        if option.startswith("--"):
            long, equals, value = option[2:].partition("=")
            takes_next = long in launcher.names and not equals
        else:
            # As by getopt: letters may stand together, and a value may follow its letter.
            at = next((at for at, letter in enumerate(option) if at and letter in launcher.letters), None)
            long, value = (option[at], option[at + 1 :]) if at else ("", "")
            takes_next = at is not None and not value
        if takes_next:
            value = words[position] if position < len(words) else ""
            position += 1
        if name == "env" and long in ("C", "chdir"):
            directory /= value
        elif name == "env" and long in ("S", "split-string"):
            split = [word for each in _simple_commands(value) for word in each]
            return split + words[position:], directory
    if words[position : position + 1] == ["-"]:  # As `env -i`.
        position += 1
    if name == "cmake -E chdir" and position < len(words):
        directory /= words[position]
    return words[position + launcher.arguments :], directory


def _behind_unknown(words: list[str]) -> list[str]:
    """What a program that we do not know starts, if an argument before a compiler's options is a compiler or ar."""
    for position, word in enumerate(words):
        if word in ("-c", "-o"):
            break
        if position and (_COMPILER.fullmatch(_name(word)) or _ARCHIVER.fullmatch(_name(word))):
            return words[position:]
    return []


def _simple_commands(text: str) -> list[list[str]]:
    """A line for a shell as its commands, each at least one word."""
    commands: list[list[str]] = [[]]
    skips_next = False
    for word, is_quoted in _shell_words(text):
        if not is_quoted and word in _OPERATORS:
            commands.append([])
        elif not is_quoted and (match := _REDIRECTION.fullmatch(word)):
            skips_next = not match[1]
        elif skips_next:
            skips_next = False
        elif not is_quoted and len(word) > 1 and word.endswith(";"):
            commands[-1].append(word[:-1])
            commands.append([])
        else:
            commands[-1].append(word)
    return [command for command in commands if command]


def _shell_words(text: str) -> list[tuple[str, bool]]:
    """The words of a line for a shell, and whether each has quotes or backslashes."""
    words: list[tuple[str, bool]] = []
    pieces: list[str] = []
    is_quoted = False
    for match in _PIECE.finditer(text + "\n"):
        escaped, plain, double, single, space, unclosed = match.groups()
        if unclosed is not None:
            raise ValueError(f"no closing {unclosed}")
        if space is not None:
            if pieces:
                words.append(("".join(pieces), is_quoted))
            pieces, is_quoted = [], False
        elif plain is not None:
            pieces.append(plain)
        elif escaped != "\n":
            is_quoted = True
            if double is not None:
                pieces.append(_ESCAPED.sub(lambda found: found[1] or "", double))
            else:
                pieces.append(single if single is not None else escaped)
    return words
