"""Response files of compilers and linkers: their quoting, and the expansion of `@file` arguments.

clang and lld read them alike: blanks, tabs and ends of lines separate arguments, single and double quotes group, and a
backslash escapes the next character, also within both kinds of quotes (in a shell, not within single ones). Empty
arguments are dropped, and a NUL ends an argument. A response file may contain `@file` arguments.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from compiler_opt.corpus.validation import read_text
from compiler_opt.errors import CorpusError
from compiler_opt.files import printable

MAX_FILE_BYTES = 1 << 26
MAX_WORDS = 1 << 21
MAX_FILES = 1 << 12
MAX_DEPTH = 32

# An escaped character, a run of plain characters, a quoted run (which may be cut off by the end of the text, as may an
# escape), or a run of white space: no more characters than in C, so neither a form feed nor Unicode's.
_PIECE = re.compile(
    r"""\\(.)|([^ \t\r\n"'\\]+|\\)|"((?:[^"\\]|\\.)*\\?)"?|'((?:[^'\\]|\\.)*\\?)'?|([ \t\r\n]+)""", re.DOTALL
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def split(text: str) -> list[str]:
    """Splits the text of a response file into arguments, as clang does."""
    words: list[str] = []
    pieces: list[str] = []

    def end_word() -> None:
        if word := "".join(pieces):
            words.append(word.partition("\0")[0])
        pieces.clear()

    for match in _PIECE.finditer(text):
        escaped, plain, double, single, space = match.groups()
        if space is not None:
            end_word()
        elif (quoted := double if double is not None else single) is not None:
            pieces.append(_ESCAPED.sub(r"\1", quoted))
        else:
            pieces.append(plain if plain is not None else escaped)
    end_word()
    return words


def read(path: Path, what: str) -> list[str]:
    """Reads the arguments in a response file; raises CorpusError, which asks for `what`, if it cannot be read."""
    return split(read_text(path, MAX_FILE_BYTES, what))


def expand(words: Sequence[str], directory: Path, where: str) -> list[str]:
    """Replaces each `@file` by the arguments in the file, recursively; keeps it if there is no such file.

    Files are relative to the directory. Raises CorpusError, whose message starts with `where`, if a file includes
    itself, or if files are nested too deeply, too many or too large.
    """
    if not any(word.startswith("@") for word in words):
        return list(words)
    return list(_Expansion(directory, where).expand(words, ()))


class _Expansion:
    """Expands one command; the limits hold for all of its files together, since small files may multiply."""

    def __init__(self, directory: Path, where: str) -> None:
        self._directory = directory
        self._where = where
        self._num_chars = 0
        self._num_files = 0
        self._num_words = 0

    def expand(self, words: Sequence[str], within: tuple[Path, ...]) -> Iterator[str]:
        for word in words:
            path = self._file_of(word)
            if path is None:
                self._num_words += 1
                self._check(self._num_words, MAX_WORDS, "arguments")
                yield word
                continue
            if path in within:
                raise CorpusError(
                    f"{self._where}: {printable(word)} includes itself, by way of {len(within)} files; fix the files"
                )
            self._check(len(within) + 1, MAX_DEPTH, "nested response files")
            yield from self.expand(self._words_of(path), (*within, path))

    def _file_of(self, word: str) -> Path | None:
        if len(word) < 2 or word[0] != "@" or "\0" in word:
            return None
        try:
            path = (self._directory / word[1:]).resolve()
            return path if path.is_file() else None
        except (OSError, RuntimeError, ValueError):
            return None

    def _words_of(self, path: Path) -> list[str]:
        text = read_text(path, MAX_FILE_BYTES, "a build with its response files")
        self._num_chars += len(text)
        self._check(self._num_chars, MAX_FILE_BYTES, "characters in response files")
        self._num_files += 1
        self._check(self._num_files, MAX_FILES, "response files")
        return split(text)

    def _check(self, found: int, limit: int, what: str) -> None:
        if found > limit:
            raise CorpusError(f"{self._where}: expected at most {limit} {what}, found more")
